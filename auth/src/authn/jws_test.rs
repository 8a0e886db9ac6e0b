use super::*;
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaEncoding, RsaKeyPair};
use rcgen::KeyPair;

#[test]
fn a_key_from_a_jwk_equals_the_key_from_its_certificate() {
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
        assert_eq!(again.algorithms, key.algorithms);
    }
}

#[test]
fn an_unusable_key_of_a_jwk_set_is_skipped() {
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
fn the_unverified_issuer_is_read_only_from_texts_with_three_segments() {
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

/// Returns a token whose header is `header`, signed by `sign`.
fn token(header: &str, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode("{}"));
    let signature = URL_SAFE_NO_PAD.encode(sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

/// Returns whether `key` verifies `token`, and whether `key` verifies `token` after the last byte of the
/// signature is removed.
fn accepted(token: &str, key: &PublicKey) -> (bool, bool) {
    let mut compact = Compact::parse(token).unwrap();
    let whole = compact.is_signed_by(key);
    compact.signature.pop();
    (whole, compact.is_signed_by(key))
}

/// Signs a token for each algorithm name with `sign`. Checks that only the token that names `algorithm` is
/// verified, and only with `key`.
fn check_each_name(
    algorithm: Algorithm,
    sign: impl Fn(&[u8]) -> Vec<u8>,
    key: &PublicKey,
    wrong: &PublicKey,
) {
    for named in Algorithm::ALL {
        let token = token(&format!(r#"{{"alg":"{}"}}"#, named.name()), &sign);
        assert_eq!(accepted(&token, key), (named == algorithm, false), "{algorithm:?} {named:?}");
        assert_eq!(accepted(&token, wrong), (false, false), "{algorithm:?} {named:?}");
    }
}

/// Returns the public key of a key pair, read from its subject public key info.
fn public(pair: &impl AsDer<PublicKeyX509Der<'static>>) -> PublicKey {
    PublicKey::from_spki(pair.as_der().unwrap().as_ref()).unwrap()
}

#[test]
fn every_rsa_algorithm_is_verified_with_its_own_key() {
    let pair = || RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let (pair, other) = (pair(), pair());
    let (key, wrong) = (public(pair.public_key()), public(other.public_key()));
    let cases: [(Algorithm, &'static dyn RsaEncoding); 6] = [
        (Algorithm::Rs256, &signature::RSA_PKCS1_SHA256),
        (Algorithm::Rs384, &signature::RSA_PKCS1_SHA384),
        (Algorithm::Rs512, &signature::RSA_PKCS1_SHA512),
        (Algorithm::Ps256, &signature::RSA_PSS_SHA256),
        (Algorithm::Ps384, &signature::RSA_PSS_SHA384),
        (Algorithm::Ps512, &signature::RSA_PSS_SHA512),
    ];
    for (algorithm, encoding) in cases {
        let sign = |signed: &[u8]| {
            let mut out = vec![0; pair.public_modulus_len()];
            pair.sign(encoding, &SystemRandom::new(), signed, &mut out).unwrap();
            out
        };
        check_each_name(algorithm, sign, &key, &wrong);
    }
}

#[test]
fn every_elliptic_algorithm_is_verified_with_its_own_key() {
    for (algorithm, signing) in [
        (Algorithm::Es256, &signature::ECDSA_P256_SHA256_FIXED_SIGNING),
        (Algorithm::Es384, &signature::ECDSA_P384_SHA384_FIXED_SIGNING),
        (Algorithm::Es512, &signature::ECDSA_P521_SHA512_FIXED_SIGNING),
    ] {
        let pair = || EcdsaKeyPair::generate(signing).unwrap();
        let (pair, other) = (pair(), pair());
        let (key, wrong) = (public(pair.public_key()), public(other.public_key()));
        let sign = |signed: &[u8]| pair.sign(&SystemRandom::new(), signed).unwrap().as_ref().to_vec();
        check_each_name(algorithm, sign, &key, &wrong);
    }
}

#[test]
fn algorithms_that_are_not_supported_verify_nothing() {
    let pair = Ed25519KeyPair::generate().unwrap();
    let rsa = public(RsaKeyPair::generate(KeySize::Rsa2048).unwrap().public_key());
    // kube-apiserver does not support EdDSA. Therefore EdDSA keys are refused, and no other key verifies
    // EdDSA signatures.
    let spki: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
    assert!(PublicKey::from_spki(spki.as_ref()).is_err());
    for name in ["EdDSA", "none", "NONE", "HS256", "rs256", ""] {
        let header = format!(r#"{{"alg":"{name}"}}"#);
        let signed = token(&header, |signed| pair.sign(signed).as_ref().to_vec());
        assert_eq!(accepted(&signed, &rsa), (false, false), "{name}");
        assert_eq!(accepted(&token(&header, |_| Vec::new()), &rsa), (false, false), "{name}");
    }
}

#[test]
fn a_header_that_cannot_be_read_is_an_error() {
    let padding = "x".repeat(TOKEN_BYTES_MAX);
    for header in ["hello", "[]", r#"{"alg":5}"#, &format!(r#"{{"alg":"RS256","kid":"{padding}"}}"#)] {
        assert!(Compact::parse(&token(header, |_| vec![0; 256])).is_err(), "{header:.40}");
    }
    let long = format!(r#"{{"alg":"RS256","kid":"{}"}}"#, "x".repeat(100 << 10));
    let token = token(&long, |_| vec![0; 256]);
    assert_eq!(Compact::parse(&token).unwrap().header.kid.len(), 100 << 10);
}
