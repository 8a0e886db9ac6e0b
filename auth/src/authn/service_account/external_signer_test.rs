//! Tests valid and invalid responses of a signer.

use rcgen::{KeyPair, PublicKeyData};
use serde_json::json;

use super::*;
use crate::authn::SigningKey;

fn encoded(header: serde_json::Value) -> String {
    URL_SAFE_NO_PAD.encode(header.to_string())
}

#[test]
fn the_header_of_an_external_signer_has_only_algorithm_key_id_and_type() {
    let long = "k".repeat(KEY_ID_BYTES_MAX + 1);
    for (header, want) in [
        (json!({"alg": "RS256", "kid": "one", "typ": "JWT"}), "one"),
        (json!({"alg": "ES512", "kid": "one", "typ": "JWT"}), "one"),
        (json!({"alg": "none", "kid": "one", "typ": "JWT"}), "bad signing algorithm \"none\""),
        (json!({"alg": "HS256", "kid": "one", "typ": "JWT"}), "bad signing algorithm \"HS256\""),
        (json!({"alg": "PS256", "kid": "one", "typ": "JWT"}), "bad signing algorithm \"PS256\""),
        (json!({"alg": "RS256", "typ": "JWT"}), "key id missing"),
        (json!({"alg": "RS256", "kid": long, "typ": "JWT"}), "key id longer than 1 kb"),
        (json!({"alg": "RS256", "kid": "one"}), "bad type"),
        (json!({"alg": "RS256", "kid": "one", "typ": "at+jwt"}), "bad type"),
        (
            json!({"alg": "RS256", "kid": "one", "typ": "JWT", "jku": "https://x"}),
            "while parsing header JSON: unknown field `jku`",
        ),
        (json!("RS256"), "while parsing header JSON: "),
        (json!(["RS256"]), "while parsing header JSON: "),
        (json!(["RS256", "one", "JWT"]), "while parsing header JSON: "),
    ] {
        let got = key_id_of(&encoded(header.clone())).unwrap_or_else(|error| error.to_string());
        let got = got.strip_prefix("while validating header: ").unwrap_or(&got);
        assert!(got == want || got.starts_with(want) && want.contains(' '), "{header}: {got}");
    }
    let refused = key_id_of("a+b").unwrap_err().to_string();
    assert!(refused.starts_with("while validating header: while unwrapping header: "), "{refused}");
}

#[test]
fn an_assembled_token_must_have_a_valid_signature_of_a_known_key() {
    let pem = KeyPair::generate().unwrap().serialize_pem();
    let key = SigningKey::from_pem(pem.as_bytes()).unwrap();
    let der = KeyPair::from_pem(&pem).unwrap().subject_public_key_info();
    let keys = [VerificationKey::named(key.public().id(), &der).unwrap()];
    // A token that the server's own key signs has a header without a type. A signature covers the header, so
    // this signature is wrong for a header with a type.
    let signed = key.sign(br#"{"iss":"x"}"#).unwrap();
    let [own, claims, signature] = signed.split('.').collect::<Vec<_>>()[..] else { panic!("{signed}") };
    assert!(matches!(assemble(own, claims, signature, &keys), Err(AnswerError::Type)));
    let header = encoded(json!({"alg": "ES256", "kid": key.public().id(), "typ": "JWT"}));
    let refused = assemble(&header, claims, signature, &keys).unwrap_err();
    assert!(matches!(refused, AnswerError::Signature(_)), "of another header: {refused}");
    assert!(matches!(assemble(&header, claims, "", &keys), Err(AnswerError::NoSignature)));
    let long = "A".repeat(TOKEN_BYTES_MAX);
    assert!(matches!(assemble(&header, claims, &long, &keys), Err(AnswerError::Long(_))));

    let whole = key.sign_with(&header, claims).unwrap();
    let (_, signature) = whole.rsplit_once('.').unwrap();
    assert_eq!(assemble(&header, claims, signature, &keys).unwrap(), whole);
    assert!(assemble(&header, claims, signature, &[]).is_err(), "of a key that is not known");
    let other = [VerificationKey::named("two", &der).unwrap()];
    assert!(assemble(&header, claims, signature, &other).is_err(), "of a key with another name");
}
