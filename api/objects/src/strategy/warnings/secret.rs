//! Warnings about secrets.

use auth::authn::key_pair;

use super::{Texts, WrittenObject};
use values::base64_text;

/// Warns about a certificate and a key that a server cannot use.
pub(super) fn secret(texts: &mut Texts, written: WrittenObject) {
    let secret = written.view();
    if secret.text("type") != written.naming.label("tls") {
        return;
    }
    let data = |name: &str| base64_text::decode(secret.child("data").text(name)).unwrap_or_default();
    if let Some(problem) = key_pair::problem(&data("tls.crt"), &data("tls.key")) {
        texts.add(problem);
    }
}
