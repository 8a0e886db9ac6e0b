//! Scalars that JSON writes as text: the canonical form is a fixed point with the same value.

use std::cmp::Ordering;

use quantity::Quantity;
use types::schema::scalars::{duration, time};
use values::base64_text as bytes;

/// Reads the text as each of the scalars; a line end separates two quantities that are added and compared.
pub fn scalars(data: &[u8]) {
    let encoded = bytes::encode(data);
    assert_eq!(bytes::canonical(&encoded).as_deref(), Ok(encoded.as_str()));
    assert_eq!((bytes::decode(&encoded).as_deref(), bytes::decoded_len(&encoded)), (Some(data), data.len()));

    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(kept) = bytes::canonical(text) {
        assert_eq!(bytes::canonical(&kept).as_deref(), Ok(&*kept), "{text}");
        let decoded = bytes::decode(&kept).expect("the canonical form decodes");
        assert_eq!((decoded.len(), bytes::encode(&decoded).as_str()), (bytes::decoded_len(&kept), &*kept));
    }
    if let Ok(kept) = duration::canonical(text) {
        assert_eq!(duration::canonical(&kept).as_deref(), Ok(&*kept), "{text}");
        assert_eq!(go::duration::parse(&kept), go::duration::parse(text));
    }
    if let Ok(Some(kept)) = time::canonical_seconds(text) {
        assert_eq!(time::canonical_seconds(&kept).as_ref().map(Option::as_deref), Ok(Some(&*kept)), "{text}");
        let seconds = time::unix_seconds(text).expect("it is a time");
        assert_eq!(
            (time::unix_seconds(&kept), time::format_seconds(seconds).as_str()),
            (Some(seconds), &*kept)
        );
    }
    if let Ok(Some(kept)) = time::canonical_micros(text) {
        assert_eq!(time::canonical_micros(&kept).as_ref().map(Option::as_deref), Ok(Some(&*kept)), "{text}");
        assert_eq!(time::unix_seconds(&kept), time::unix_seconds(text));
    }
    if let Ok(kept) = quantity::canonical(text) {
        assert_eq!(quantity::canonical(&kept).as_deref(), Ok(&*kept), "{text}");
        assert!(kept.len() <= text.len() + 32, "{} bytes from {}", kept.len(), text.len());
    }
    let (a, b) = text.split_once('\n').unwrap_or((text, "1"));
    if let (Ok(a), Ok(b)) = (Quantity::parse(a), Quantity::parse(b)) {
        compute(a, b);
    }
}

fn compute(a: Quantity, b: Quantity) {
    // A sum may exceed the largest readable quantity; only its text must not be empty.
    assert!(!a.plus(b).to_text().is_empty());
    for quantity in [a, b, a.rounded_up_to_milli()] {
        let text = quantity.to_text();
        let again = Quantity::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(again.to_text(), text);
        assert_eq!(again.is_negative(), quantity.is_negative(), "{text}");
    }
    assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
    assert_eq!(a.cmp(&a), Ordering::Equal);
    assert_eq!(a.plus(b).cmp(&b.plus(a)), Ordering::Equal);
}
