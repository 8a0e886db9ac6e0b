//! The encryption providers. Each provider stores values in the form of kube-apiserver
//! (docs/api/encryption.md#stored-form).
//!
//! ```text
//! aesgcm     <word>:enc:aesgcm:v1:<key>:     nonce, 12 bytes | encrypted value | tag, 16 bytes
//! aescbc     <word>:enc:aescbc:v1:<key>:     vector, 16 bytes | encrypted value with its padding (PKCS #7)
//! secretbox  <word>:enc:secretbox:v1:<key>:  nonce, 24 bytes | tag, 16 bytes | encrypted value
//! kms        <word>:enc:kms:v2:<service>:    a message with the encrypted value, see `kms.rs`
//! identity   the value
//! ```
//!
//! A value is written with the first encryption key of its provider and read with the encryption key that its
//! head names. `aesgcm` and `kms` bind a value to its key in the store: a value that was copied to another
//! key in the store cannot be decrypted.

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    self, DecryptionContext, EncryptionContext, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey,
    UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use crypto_secretbox::{AeadInPlace, KeyInit, XSalsa20Poly1305};
use engine::SealError;

use super::kms::Wrapping;

/// Length of the CBC initialization vector.
const VECTOR_BYTES: usize = 16;
/// Lengths of the nonce of a secret box, and of the tag before its value.
const BOX_NONCE_BYTES: usize = 24;
const BOX_TAG_BYTES: usize = 16;

/// A kind of provider with keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Method {
    /// AES in Galois/counter mode.
    AesGcm,
    /// AES in cipher block chaining.
    AesCbc,
    /// XSalsa20 and Poly1305.
    Secretbox,
}

impl Method {
    /// The provider types that encrypt with configured keys.
    pub const ALL: [Method; 3] = [Method::AesGcm, Method::AesCbc, Method::Secretbox];

    /// Returns the name in configuration files and heads.
    pub fn name(self) -> &'static str {
        match self {
            Method::AesGcm => "aesgcm",
            Method::AesCbc => "aescbc",
            Method::Secretbox => "secretbox",
        }
    }

    /// Returns the allowed key lengths in bytes.
    pub fn key_bytes(self) -> &'static [usize] {
        match self {
            Method::AesGcm | Method::AesCbc => &[16, 24, 32],
            Method::Secretbox => &[32],
        }
    }
}

/// A key, and the prefix of the stored values that are encrypted with this key. `Debug` does not show the bytes
/// of the key.
pub struct Key {
    head: Box<[u8]>,
    cipher: Cipher,
}

enum Cipher {
    Gcm(LessSafeKey),
    /// The value is boxed, because it is forty times as large as the other variants.
    Cbc(Box<(PaddedBlockEncryptingKey, PaddedBlockDecryptingKey)>),
    Box(Box<XSalsa20Poly1305>),
    Wrapped(Wrapping),
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Key").field(&String::from_utf8_lossy(&self.head)).finish()
    }
}

fn failed(what: &str) -> SealError {
    SealError(what.to_owned())
}

impl Key {
    /// Returns a key of an encryption method, for stored values that begin with `mark`; `None` if the length of
    /// the key is invalid for the method.
    pub fn new(mark: &str, method: Method, name: &str, secret: &[u8]) -> Option<Key> {
        let head = format!("{mark}{}:v1:{name}:", method.name()).into_bytes().into();
        let cipher = match method {
            Method::AesGcm => {
                let algorithm = match secret.len() {
                    16 => &aead::AES_128_GCM,
                    24 => &aead::AES_192_GCM,
                    32 => &aead::AES_256_GCM,
                    _ => return None,
                };
                Cipher::Gcm(LessSafeKey::new(UnboundKey::new(algorithm, secret).ok()?))
            }
            Method::AesCbc => {
                let algorithm = match secret.len() {
                    16 => &cipher::AES_128,
                    24 => &cipher::AES_192,
                    32 => &cipher::AES_256,
                    _ => return None,
                };
                let key = || UnboundCipherKey::new(algorithm, secret).ok();
                Cipher::Cbc(Box::new((
                    PaddedBlockEncryptingKey::cbc_pkcs7(key()?).ok()?,
                    PaddedBlockDecryptingKey::cbc_pkcs7(key()?).ok()?,
                )))
            }
            Method::Secretbox => Cipher::Box(Box::new(XSalsa20Poly1305::new_from_slice(secret).ok()?)),
        };
        Some(Key { head, cipher })
    }

    /// Returns the key of a service that wraps seeds, for values that begin with `mark`.
    pub fn of_service(mark: &str, wrapping: Wrapping) -> Key {
        let head = format!("{mark}kms:v2:{}:", wrapping.name()).into_bytes().into();
        Key { head, cipher: Cipher::Wrapped(wrapping) }
    }

    /// Returns the service that wraps the key, if any.
    pub fn service(&self) -> Option<&Wrapping> {
        match &self.cipher {
            Cipher::Wrapped(wrapping) => Some(wrapping),
            _ => None,
        }
    }

    /// Returns whether a stored value was sealed with the key that seals new values.
    pub fn is_current(&self, stored: &[u8]) -> bool {
        let rest = stored.strip_prefix(&*self.head);
        rest.is_some_and(|rest| self.service().is_none_or(|service| service.is_current(rest)))
    }

    /// Encrypts a value that is stored under the key `place`, and returns the bytes to store.
    pub fn seal(&self, place: &[u8], value: &[u8]) -> Result<Vec<u8>, SealError> {
        let unsealed = |_| failed("the value cannot be encrypted");
        let mut sealed = self.head.to_vec();
        match &self.cipher {
            Cipher::Gcm(key) => {
                let mut nonce = [0; aead::NONCE_LEN];
                random(&mut nonce)?;
                sealed.extend_from_slice(&nonce);
                let begin = sealed.len();
                sealed.extend_from_slice(value);
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = key
                    .seal_in_place_separate_tag(nonce, Aad::from(place), &mut sealed[begin..])
                    .map_err(unsealed)?;
                sealed.extend_from_slice(tag.as_ref());
            }
            Cipher::Cbc(keys) => {
                let mut vector = [0; VECTOR_BYTES];
                random(&mut vector)?;
                let context = EncryptionContext::Iv128(FixedLength::from(vector));
                let mut text = value.to_vec();
                keys.0.less_safe_encrypt(&mut text, context).map_err(unsealed)?;
                sealed.extend_from_slice(&vector);
                sealed.extend_from_slice(&text);
            }
            Cipher::Box(key) => {
                let mut nonce = [0; BOX_NONCE_BYTES];
                random(&mut nonce)?;
                sealed.extend_from_slice(&nonce);
                let tag_at = sealed.len();
                sealed.extend_from_slice(&[0; BOX_TAG_BYTES]);
                sealed.extend_from_slice(value);
                let text = &mut sealed[tag_at + BOX_TAG_BYTES..];
                let tag = key
                    .encrypt_in_place_detached(&nonce.into(), &[], text)
                    .map_err(|_| failed("the value cannot be encrypted"))?;
                sealed[tag_at..tag_at + BOX_TAG_BYTES].copy_from_slice(&tag);
            }
            Cipher::Wrapped(wrapping) => return wrapping.seal(&self.head, place, value),
        }
        Ok(sealed)
    }

    /// Returns whether a stored value names the key.
    pub fn is_named_by(&self, stored: &[u8]) -> bool {
        stored.starts_with(&self.head)
    }

    /// Decrypts the value that is stored under the key `place`. The value must name this encryption key.
    pub fn open(&self, place: &[u8], stored: &[u8]) -> Result<Vec<u8>, SealError> {
        let unopened = || failed("the value cannot be decrypted with the key that it names");
        let rest = stored.strip_prefix(&*self.head).ok_or_else(unopened)?;
        match &self.cipher {
            Cipher::Gcm(key) => {
                let (nonce, text) = rest.split_first_chunk::<{ aead::NONCE_LEN }>().ok_or_else(unopened)?;
                let mut text = text.to_vec();
                let nonce = Nonce::assume_unique_for_key(*nonce);
                let len =
                    key.open_in_place(nonce, Aad::from(place), &mut text).map_err(|_| unopened())?.len();
                text.truncate(len);
                Ok(text)
            }
            Cipher::Cbc(keys) => {
                let (vector, text) = rest.split_first_chunk::<VECTOR_BYTES>().ok_or_else(unopened)?;
                let mut text = text.to_vec();
                let context = DecryptionContext::Iv128(FixedLength::from(*vector));
                let len = keys.1.decrypt(&mut text, context).map_err(|_| unopened())?.len();
                text.truncate(len);
                Ok(text)
            }
            Cipher::Box(key) => {
                let (nonce, rest) = rest.split_first_chunk::<BOX_NONCE_BYTES>().ok_or_else(unopened)?;
                let (tag, text) = rest.split_first_chunk::<BOX_TAG_BYTES>().ok_or_else(unopened)?;
                let mut text = text.to_vec();
                key.decrypt_in_place_detached(&(*nonce).into(), &[], &mut text, &(*tag).into())
                    .map_err(|_| unopened())?;
                Ok(text)
            }
            Cipher::Wrapped(wrapping) => wrapping.open(place, rest),
        }
    }
}

fn random(bytes: &mut [u8]) -> Result<(), SealError> {
    aws_lc_rs::rand::fill(bytes).map_err(|_| failed("no random bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: &str = "word:enc:";

    #[test]
    fn a_sealed_value_opens_only_with_its_storage_key_and_its_encryption_key() {
        for method in Method::ALL {
            for &len in method.key_bytes() {
                let key = Key::new(MARK, method, "one", &vec![7; len]).unwrap();
                for value in [&b""[..], b"{}", &[9; 100]] {
                    let sealed = key.seal(b"/core/secrets/a/b", value).unwrap();
                    assert!(sealed.starts_with(format!("word:enc:{}:v1:one:", method.name()).as_bytes()));
                    assert_ne!(sealed, key.seal(b"/core/secrets/a/b", value).unwrap(), "nonces differ");
                    assert!(key.is_named_by(&sealed));
                    assert_eq!(key.open(b"/core/secrets/a/b", &sealed).unwrap(), value);
                    let elsewhere = key.open(b"/core/secrets/a/c", &sealed);
                    assert_eq!(elsewhere.is_err(), method == Method::AesGcm, "{method:?}");
                    let other = Key::new(MARK, method, "one", &vec![8; len]).unwrap();
                    assert_ne!(other.open(b"/core/secrets/a/b", &sealed).ok().as_deref(), Some(value));
                    for cut in 0..sealed.len() {
                        assert_ne!(
                            key.open(b"/core/secrets/a/b", &sealed[..cut]).ok().as_deref(),
                            Some(&[9; 100][..]),
                            "{method:?} {cut}"
                        );
                    }
                }
            }
            assert!(Key::new(MARK, method, "one", &[7; 15]).is_none());
        }
    }

    /// Checks the test vector of NaCl for `secretbox`.
    #[test]
    fn secretbox_matches_the_nacl_test_vector() {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
        };
        let secret = hex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389");
        let nonce = hex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37");
        let boxed = hex(concat!(
            "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186a",
            "c0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae",
            "90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74",
            "e355a5"
        ));
        let value = hex(concat!(
            "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c6129",
            "6cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde",
            "048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705"
        ));
        let key = Key::new(MARK, Method::Secretbox, "one", &secret).unwrap();
        let stored = [b"word:enc:secretbox:v1:one:", &nonce[..], &boxed[..]].concat();
        assert_eq!(key.open(b"", &stored).unwrap(), value);
    }
}
