//! Warnings about resource slices.

use super::{SPEC, Texts, WrittenObject};
use values::field::go_quote;

/// Warns about a driver name with uppercase characters.
pub(in crate::strategy) fn resource_slice(texts: &mut Texts, written: WrittenObject) {
    let driver = written.view().child("spec").text("driver");
    if driver != driver.to_lowercase() {
        let driver = go_quote(driver);
        let text = format!("driver names should be lowercase; {driver} contains uppercase characters");
        texts.at(SPEC.child("driver"), &text);
    }
}
