//! Encryption of values with keys that an external key service protects, by the protocol KMS v2
//! (docs/api/encryption.md#key-services).
//!
//! ```text
//! seed, 32 random bytes ─ the service ─► wrapped seed, id of its key
//! value ─ AES-256-GCM, with a key derived from the seed and 32 random bytes (HKDF-Expand, SHA-256) ─► sealed value
//! stored: <word>:enc:kms:v2:<name>: | message { sealed value, id of the key, wrapped seed, annotations, kind }
//! ```
//!
//! The server asks the service to wrap a new seed if the server has no seed, or if the key of the service has a new id.
//! The server asks the service to unwrap a seed that is not cached. The service never encrypts values itself. Sealing
//! a value does not wait for the service. Opening waits for the service at most once for each seed.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use aws_lc_rs::aead::{self, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use bytes::Bytes;
use engine::SealError;
use parking_lot::Mutex;
use prost::Message;

/// Length of seeds, of the random bytes from which a key is derived together with the seed, and of keys.
const SEED_BYTES: usize = 32;
const INFO_BYTES: usize = 32;

/// Maximum size of a wrapped seed, of a key id, and of annotations, as in kube-apiserver.
const WRAPPED_BYTES_MAX: usize = 1 << 10;
const KEY_ID_BYTES_MAX: usize = 1 << 10;
const ANNOTATIONS_BYTES_MAX: usize = 32 << 10;

/// Time after the last healthy report of the service during which the server still seals values.
const TRUST: Duration = Duration::from_secs(3 * 60);

/// Maximum number of cached unwrapped seeds. There is one seed for each start of a server and each key of the
/// service.
const SEEDS_MAX: usize = 1000;

/// A client of a key service, which may be on another machine. Calls block for a bounded time.
pub trait KeyService: Send + Sync {
    /// Calls a method of the service with a message, and returns the response message.
    ///
    /// # Errors
    /// The service was not reached, or reported a failure.
    fn call(&self, method: &'static str, message: Vec<u8>) -> Result<Vec<u8>, String>;
}

#[derive(Clone, PartialEq, Message)]
struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
struct StatusResponse {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    healthz: String,
    #[prost(string, tag = "3")]
    key_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct EncryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
    #[prost(string, tag = "2")]
    uid: String,
}

#[derive(Clone, PartialEq, Message)]
struct EncryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    key_id: String,
    #[prost(map = "string, bytes", tag = "3")]
    annotations: HashMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct DecryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    key_id: String,
    #[prost(map = "string, bytes", tag = "4")]
    annotations: HashMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct DecryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
}

/// A stored value without its head.
#[derive(Clone, PartialEq, Message)]
struct EncryptedObject {
    #[prost(bytes = "bytes", tag = "1")]
    data: Bytes,
    #[prost(string, tag = "2")]
    key_id: String,
    #[prost(bytes = "vec", tag = "3")]
    wrapped: Vec<u8>,
    #[prost(map = "string, bytes", tag = "4")]
    annotations: HashMap<String, Vec<u8>>,
    #[prost(int32, tag = "5")]
    kind: i32,
}

/// A stored value of which only the key id is decoded.
#[derive(Clone, PartialEq, Message)]
struct KeyIdOf {
    #[prost(string, tag = "2")]
    key_id: String,
}

/// The kind of the wrapped bytes: a key, as before release 1.29 of kube-apiserver, or a seed from which keys
/// are derived.
const KIND_KEY: i32 = 0;
const KIND_SEED: i32 = 1;

/// The unwrapped bytes of a key or a seed.
type Source = [u8; SEED_BYTES];

/// The seed with which values are sealed at present.
struct Current {
    seed: Source,
    wrapped: Vec<u8>,
    key_id: String,
    annotations: HashMap<String, Vec<u8>>,
}

/// A key service with the seeds that it has wrapped. `Debug` does not show the seeds.
pub struct Wrapping {
    name: String,
    calls: Arc<dyn KeyService>,
    current: ArcSwapOption<Current>,
    /// The time when the service last reported that the service is healthy, and the last error after this time; empty
    /// without an error.
    condition: Mutex<(Option<Instant>, String)>,
    /// Unwrapped seeds, by the digests of the wrapped seeds.
    seeds: Mutex<HashMap<[u8; 32], Source>>,
}

impl fmt::Debug for Wrapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wrapping").field("name", &self.name).finish_non_exhaustive()
    }
}

fn failed(what: impl Into<String>) -> SealError {
    SealError(what.into())
}

impl Wrapping {
    /// Returns a provider for a service, which has not been called yet.
    pub fn new(name: &str, calls: Arc<dyn KeyService>) -> Wrapping {
        let condition = Mutex::new((None, "not asked yet".to_owned()));
        let seeds = Mutex::default();
        Wrapping { name: name.to_owned(), calls, current: ArcSwapOption::empty(), condition, seeds }
    }

    /// Returns the name of the service.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asks the service for its status. If the key of the service has changed, asks the service to wrap a new
    /// seed.
    ///
    /// # Errors
    /// The service is not healthy.
    pub fn refresh(&self) -> Result<(), String> {
        let refreshed = self.refreshed();
        let mut condition = self.condition.lock();
        match &refreshed {
            Ok(()) => *condition = (Some(Instant::now()), String::new()),
            Err(why) => condition.1.clone_from(why),
        }
        refreshed
    }

    fn refreshed(&self) -> Result<(), String> {
        let status: StatusResponse = self.call("Status", &StatusRequest {})?;
        if !matches!(status.version.as_str(), "v2" | "v2beta1") {
            return Err(format!(
                "the key service has version {:?}, and only v2 is supported",
                status.version
            ));
        }
        if status.healthz != "ok" {
            return Err(format!("the key service reports {:?} instead of ok", status.healthz));
        }
        checked_id(&status.key_id)?;
        if self.current.load().as_ref().is_some_and(|current| current.key_id == status.key_id) {
            return Ok(());
        }
        let mut seed = [0; SEED_BYTES];
        random(&mut seed).map_err(|error| error.to_string())?;
        let request = EncryptRequest { plaintext: seed.to_vec(), uid: uid() };
        let EncryptResponse { ciphertext, key_id, annotations } = self.call("Encrypt", &request)?;
        checked_id(&key_id)?;
        if ciphertext.is_empty() || ciphertext.len() > WRAPPED_BYTES_MAX {
            let len = ciphertext.len();
            return Err(format!("a wrapped seed has {len} bytes, not 1 to {WRAPPED_BYTES_MAX}"));
        }
        let len: usize = annotations.iter().map(|(name, value)| name.len() + value.len()).sum();
        if len > ANNOTATIONS_BYTES_MAX {
            return Err(format!("annotations of a seed have {len} bytes, more than {ANNOTATIONS_BYTES_MAX}"));
        }
        self.remember(&ciphertext, seed);
        let current = Current { seed, wrapped: ciphertext, key_id, annotations };
        self.current.store(Some(Arc::new(current)));
        Ok(())
    }

    /// Checks that the last refresh found the service healthy.
    ///
    /// # Errors
    /// Returns the last error of the service.
    pub fn health(&self) -> Result<(), String> {
        let condition = self.condition.lock();
        if condition.1.is_empty() { Ok(()) } else { Err(format!("{}: {}", self.name, condition.1)) }
    }

    /// Returns whether a stored value, given without its head, was sealed with the current key of the
    /// service.
    pub fn is_current(&self, stored: &[u8]) -> bool {
        let current = self.current.load();
        let id = KeyIdOf::decode(stored).map(|object| object.key_id);
        current.as_ref().is_some_and(|current| id.is_ok_and(|id| id == current.key_id))
    }

    /// Encrypts a value that is stored under the key `place`, and returns the bytes to store, which begin
    /// with `head`.
    ///
    /// # Errors
    /// The service has not provided a seed yet, or has not been healthy for too long.
    pub fn seal(&self, head: &[u8], place: &[u8], value: &[u8]) -> Result<Vec<u8>, SealError> {
        let (last, why) = self.condition.lock().clone();
        if last.is_none_or(|last| last.elapsed() > TRUST) {
            return Err(failed(format!("the key service {} is not available: {why}", self.name)));
        }
        let current = self.current.load();
        let Some(current) = &*current else { return Err(failed("there is no seed")) };
        let mut data = vec![0; INFO_BYTES + aead::NONCE_LEN];
        random(&mut data)?;
        let (info, nonce) = data.split_at(INFO_BYTES);
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| failed("no nonce"))?;
        let key = key_of(&derive_key(&current.seed, info)?)?;
        let begin = data.len();
        data.extend_from_slice(value);
        let tag = key
            .seal_in_place_separate_tag(nonce, Aad::from(place), &mut data[begin..])
            .map_err(|_| failed("the value cannot be encrypted"))?;
        data.extend_from_slice(tag.as_ref());
        let object = EncryptedObject {
            data: data.into(),
            key_id: current.key_id.clone(),
            wrapped: current.wrapped.clone(),
            annotations: current.annotations.clone(),
            kind: KIND_SEED,
        };
        let mut stored = Vec::with_capacity(head.len() + object.encoded_len());
        stored.extend_from_slice(head);
        object.encode(&mut stored).map_err(|error| failed(error.to_string()))?;
        Ok(stored)
    }

    /// Decrypts the value that is stored under the key `place`, given without its head.
    ///
    /// # Errors
    /// The value is malformed, or the service does not unwrap the seed of the value.
    pub fn open(&self, place: &[u8], stored: &[u8]) -> Result<Vec<u8>, SealError> {
        let unopened = || failed("the value cannot be decrypted with the key that it names");
        let object = EncryptedObject::decode(stored).map_err(|_| unopened())?;
        let source = self.unwrapped(&object)?;
        let (key, rest) = match object.kind {
            KIND_KEY => (source, &object.data[..]),
            KIND_SEED => {
                let (info, rest) = object.data.split_at_checked(INFO_BYTES).ok_or_else(unopened)?;
                (derive_key(&source, info)?, rest)
            }
            kind => return Err(failed(format!("the value is encrypted in the unknown way {kind}"))),
        };
        let (nonce, text) = rest.split_first_chunk::<{ aead::NONCE_LEN }>().ok_or_else(unopened)?;
        let mut text = text.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = key_of(&key)?.open_in_place(nonce, Aad::from(place), &mut text);
        let len = opened.map_err(|_| unopened())?.len();
        text.truncate(len);
        Ok(text)
    }

    /// Returns the unwrapped bytes for a stored value.
    fn unwrapped(&self, object: &EncryptedObject) -> Result<Source, SealError> {
        if let Some(source) = self.seeds.lock().get(&seed_digest(&object.wrapped)) {
            return Ok(*source);
        }
        // The lock is not held here, so that other values can be opened in the meantime.
        let request = DecryptRequest {
            ciphertext: object.wrapped.clone(),
            uid: uid(),
            key_id: object.key_id.clone(),
            annotations: object.annotations.clone(),
        };
        let DecryptResponse { plaintext } = self.call("Decrypt", &request).map_err(failed)?;
        let len = plaintext.len();
        let source = Source::try_from(plaintext)
            .map_err(|_| failed(format!("an unwrapped seed has {len} bytes, not {SEED_BYTES}")))?;
        self.remember(&object.wrapped, source);
        Ok(source)
    }

    fn remember(&self, wrapped: &[u8], source: Source) {
        let mut seeds = self.seeds.lock();
        if seeds.len() >= SEEDS_MAX {
            // Dropping all seeds is rare and cheap: the service unwraps each seed that is still in use once more.
            seeds.clear();
        }
        seeds.insert(seed_digest(wrapped), source);
    }

    fn call<M: Message + Default>(&self, method: &'static str, request: &impl Message) -> Result<M, String> {
        let answer = self.calls.call(method, request.encode_to_vec());
        let answer = answer.map_err(|why| format!("{method} of the key service {}: {why}", self.name))?;
        M::decode(&answer[..]).map_err(|error| format!("{method} of the key service {}: {error}", self.name))
    }
}

fn checked_id(id: &str) -> Result<(), String> {
    match id.len() {
        1..=KEY_ID_BYTES_MAX => Ok(()),
        len => Err(format!("the id of a key has {len} bytes, not 1 to {KEY_ID_BYTES_MAX}")),
    }
}

fn seed_digest(wrapped: &[u8]) -> [u8; 32] {
    let mut name = [0; 32];
    name.copy_from_slice(digest(&SHA256, wrapped).as_ref());
    name
}

fn uid() -> String {
    values::names::uid()
}

/// The key length, as the parameter of the key derivation.
struct KeyBytes;

impl KeyType for KeyBytes {
    fn len(&self) -> usize {
        SEED_BYTES
    }
}

/// Derives the key from a seed and the random bytes stored with the value.
fn derive_key(seed: &Source, info: &[u8]) -> Result<Source, SealError> {
    let mut key = [0; SEED_BYTES];
    let prk = Prk::new_less_safe(HKDF_SHA256, seed);
    let info = [info];
    let okm = prk.expand(&info, KeyBytes).map_err(|_| failed("no key"))?;
    okm.fill(&mut key).map_err(|_| failed("no key"))?;
    Ok(key)
}

fn key_of(bytes: &Source) -> Result<LessSafeKey, SealError> {
    UnboundKey::new(&AES_256_GCM, bytes).map(LessSafeKey::new).map_err(|_| failed("no key"))
}

fn random(bytes: &mut [u8]) -> Result<(), SealError> {
    aws_lc_rs::rand::fill(bytes).map_err(|_| failed("no random bytes"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A fake service that wraps by flipping bits, with a key whose number can be changed.
    #[derive(Default)]
    struct Fake {
        key: AtomicU32,
        is_down: std::sync::atomic::AtomicBool,
        unwrapped: AtomicU32,
    }

    impl KeyService for Fake {
        fn call(&self, method: &'static str, message: Vec<u8>) -> Result<Vec<u8>, String> {
            if self.is_down.load(Ordering::Relaxed) {
                return Err("connection refused".to_owned());
            }
            let id = self.key.load(Ordering::Relaxed).to_string();
            let turned = |bytes: Vec<u8>| bytes.into_iter().map(|byte| !byte).collect::<Vec<u8>>();
            Ok(match method {
                "Status" => {
                    let (version, healthz) = ("v2".to_owned(), "ok".to_owned());
                    StatusResponse { version, healthz, key_id: id }.encode_to_vec()
                }
                "Encrypt" => {
                    let request = EncryptRequest::decode(&message[..]).unwrap();
                    let annotations = HashMap::from([("a.example".to_owned(), b"1".to_vec())]);
                    let ciphertext = turned(request.plaintext);
                    EncryptResponse { ciphertext, key_id: id, annotations }.encode_to_vec()
                }
                "Decrypt" => {
                    let request = DecryptRequest::decode(&message[..]).unwrap();
                    if request.annotations.get("a.example").is_none_or(|value| value != b"1") {
                        return Err("no annotation".to_owned());
                    }
                    self.unwrapped.fetch_add(1, Ordering::Relaxed);
                    DecryptResponse { plaintext: turned(request.ciphertext) }.encode_to_vec()
                }
                other => panic!("{other}"),
            })
        }
    }

    const HEAD: &[u8] = b"word:enc:kms:v2:one:";
    const PLACE: &[u8] = b"/core/secrets/a/b";

    #[test]
    fn sealing_needs_no_kms_call_and_opening_needs_one_for_each_seed() {
        let service = Arc::new(Fake::default());
        let wrapping = Wrapping::new("one", service.clone());
        assert!(wrapping.seal(HEAD, PLACE, b"{}").is_err(), "no seed yet");
        wrapping.refresh().unwrap();
        service.is_down.store(true, Ordering::Relaxed);
        let first = wrapping.seal(HEAD, PLACE, b"{}").unwrap();
        let second = wrapping.seal(HEAD, PLACE, b"{}").unwrap();
        assert_ne!(first, second);
        let behind = |stored: &[u8]| stored.strip_prefix(HEAD).unwrap().to_vec();
        assert_eq!(wrapping.open(PLACE, &behind(&first)).unwrap(), b"{}");
        assert!(wrapping.open(b"/core/secrets/a/c", &behind(&first)).is_err(), "bound to its place");
        let other = Wrapping::new("one", service.clone());
        assert!(other.open(PLACE, &behind(&first)).is_err(), "the service is down");
        service.is_down.store(false, Ordering::Relaxed);
        for stored in [&first, &second, &first] {
            assert_eq!(other.open(PLACE, &behind(stored)).unwrap(), b"{}");
        }
        assert_eq!(service.unwrapped.load(Ordering::Relaxed), 1);
        for cut in 0..behind(&first).len() {
            assert!(other.open(PLACE, &behind(&first)[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_new_kms_key_brings_a_new_seed_and_marks_old_values_as_stale() {
        let service = Arc::new(Fake::default());
        let wrapping = Wrapping::new("one", service.clone());
        wrapping.refresh().unwrap();
        let old = wrapping.seal(b"", PLACE, b"{}").unwrap();
        wrapping.refresh().unwrap();
        assert!(wrapping.is_current(&old));
        service.key.store(7, Ordering::Relaxed);
        wrapping.refresh().unwrap();
        let new = wrapping.seal(b"", PLACE, b"{}").unwrap();
        assert_eq!((wrapping.is_current(&old), wrapping.is_current(&new)), (false, true));
        assert_eq!(wrapping.open(PLACE, &old).unwrap(), b"{}");
        service.is_down.store(true, Ordering::Relaxed);
        assert!(wrapping.refresh().is_err());
        assert!(wrapping.health().unwrap_err().contains("connection refused"));
        assert!(wrapping.seal(b"", PLACE, b"{}").is_ok(), "trusted for a while");
    }

    /// Checks the second step of the test vector in RFC 5869, appendix A.1.
    #[test]
    fn derive_key_matches_the_hkdf_vector_of_rfc_5869() {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
        };
        let seed = hex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
        let key = derive_key(&seed.try_into().unwrap(), &hex("f0f1f2f3f4f5f6f7f8f9")).unwrap();
        assert_eq!(key[..], hex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf")[..]);
    }
}
