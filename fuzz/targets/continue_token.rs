//! Continue tokens: a decoded token lies inside the collection, and encodes to the same token.

use api::requests::verbs::continue_token::ContinueToken;
use values::base64_text;

use super::check_refusal;

const META: &str = "meta.example/v1";

/// Decodes the bytes as a token, as the document in a token, and as the position of a token.
pub fn continue_token(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        check(text);
        let token = ContinueToken {
            revision: (!data.len().is_multiple_of(3)).then_some(engine::Revision::new(data.len() as u64)),
            start: text.to_owned(),
        };
        let encoded = token.encode(META);
        if let Some(again) = check(&encoded) {
            assert_eq!(again, token);
        }
    }
    let url_safe = base64_text::encode(data).replace('+', "-").replace('/', "_");
    check(url_safe.trim_end_matches('='));
}

fn check(text: &str) -> Option<ContinueToken> {
    let token = match ContinueToken::decode(text, META) {
        Ok(token) => token,
        Err(status) => {
            check_refusal(&status, &[400]);
            return None;
        }
    };
    // A key consists of the collection's prefix and an optional suffix: no segment may be empty or leave the
    // collection.
    let suffix = token.suffix();
    let leads_out = suffix.split('/').any(|step| matches!(step, "" | "." | ".."));
    assert!(suffix.is_empty() || !leads_out, "{suffix:?}");
    assert_eq!(ContinueToken::decode(&token.encode(META), META).expect("our own token"), token);
    Some(token)
}
