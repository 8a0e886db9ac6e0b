use super::*;
use rcgen::KeyPair;

#[test]
fn keys_of_a_set_and_keys_of_a_certificate_are_the_same() {
    for algorithm in [
        &rcgen::PKCS_RSA_SHA256,
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ECDSA_P521_SHA512,
    ] {
        let pair = KeyPair::generate_for(algorithm).unwrap();
        let pem = pair.public_key_pem();
        let der = pem.lines().filter(|line| !line.starts_with('-')).collect::<String>();
        let der = base64::engine::general_purpose::STANDARD.decode(der).unwrap();
        let key = PublicKey::from_spki(&der).unwrap();
        let jwk = key.to_jwk("id");
        let again = PublicKey::from_jwk(&serde_json::from_value(jwk.clone()).unwrap()).unwrap();
        assert_eq!(again.to_jwk("id"), jwk);
        assert_eq!(again.verifiers.len(), key.verifiers.len());
    }
}

#[test]
fn a_key_of_a_set_that_cannot_be_used_is_left_out() {
    let zeros = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let short = "q".repeat(171); // 1024 bits
    for text in [
        "{}".to_owned(),
        r#"{"kty":"oct","k":"c2VjcmV0"}"#.to_owned(),
        r#"{"kty":"RSA"}"#.to_owned(),
        r#"{"kty":"RSA","n":"!","e":"AQAB"}"#.to_owned(),
        format!(r#"{{"kty":"RSA","n":"{short}","e":"AQAB"}}"#),
        r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#.to_owned(),
        format!(r#"{{"kty":"EC","crv":"P-256","x":"{zeros}","y":"{zeros}"}}"#), // not on the curve
        format!(r#"{{"kty":"EC","crv":"secp256k1","x":"{zeros}","y":"{zeros}"}}"#),
        format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{zeros}"}}"#),
    ] {
        assert!(PublicKey::from_jwk(&serde_json::from_str(&text).unwrap()).is_none(), "{text}");
    }
}

#[test]
fn the_issuer_is_read_from_texts_in_the_form_of_a_token_only() {
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    for (token, issuer) in [
        (format!("x.{}.y", encode(r#"{"iss":"a"}"#)), Some("a")),
        (format!(".{}.", encode(r#"{"iss":"a"}"#)), Some("a")),
        (format!("x.{}.y.z", encode(r#"{"iss":"a"}"#)), None),
        (format!("x.{}", encode(r#"{"iss":"a"}"#)), None),
        (format!("x.{}.y", encode(r#"{"iss":5}"#)), None),
        (format!("x.{}.y", encode("{}")), None),
        (format!("x.{}.y", encode("[]")), None),
        (format!("x.{}.y", encode("hello")), None),
        ("x.%.y".to_owned(), None),
        ("token".to_owned(), None),
        (format!("{}.{}.y", "x".repeat(TOKEN_BYTES_MAX), encode(r#"{"iss":"a"}"#)), None),
    ] {
        assert_eq!(unverified_issuer(&token).as_deref(), issuer, "{token:.80}");
    }
}
