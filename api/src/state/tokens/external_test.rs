//! Tests of the keys of a signer: which responses are accepted, and when keys are fetched.

use std::sync::atomic::{AtomicUsize, Ordering};

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

use super::*;

fn key(id: &str) -> KeyMessage {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let der = pair.public_key().as_der().unwrap().as_ref().to_vec();
    KeyMessage { key_id: id.to_owned(), key: der, exclude_from_oidc_discovery: false }
}

fn keys_response(keys: Vec<KeyMessage>) -> KeysResponse {
    KeysResponse { keys, data_timestamp: Some(Timestamp { seconds: 7, nanos: 0 }), refresh_hint_seconds: 60 }
}

#[test]
fn a_key_set_of_an_external_signer_with_any_invalid_key_is_refused() {
    let good = key("one");
    let with = |change: fn(&mut KeysResponse)| {
        let mut response = keys_response(vec![good.clone()]);
        change(&mut response);
        response
    };
    for (response, want) in [
        (with(|_| {}), "1 keys"),
        (with(|response| response.refresh_hint_seconds = 0), "found invalid refresh hint (0s)"),
        (with(|response| response.refresh_hint_seconds = -5), "found invalid refresh hint (-5s)"),
        (with(|response| response.refresh_hint_seconds = i64::MAX), "1 keys"),
        (with(|response| response.keys.clear()), "found no keys"),
        (
            with(|response| response.keys = vec![response.keys[0].clone(); KEYS_MAX + 1]),
            "found 1001 keys, more than 1000",
        ),
        (with(|response| response.data_timestamp = None), "invalid data timestamp"),
        (with(|response| response.data_timestamp.as_mut().unwrap().nanos = -1), "invalid data timestamp"),
        (with(|response| response.keys[0].key_id.clear()), "found invalid public key id \"\""),
        (with(|response| response.keys[0].key.clear()), "found empty public key"),
        (
            with(|response| response.keys[0].key.truncate(40)),
            "while parsing external public keys: no RSA, P-256, P-384 or P-521 public key",
        ),
    ] {
        let got = match Keys::read(&response.encode_to_vec()) {
            Ok(keys) => format!("{} keys", keys.all.len()),
            Err(error) => error.to_string(),
        };
        assert_eq!(got, want);
    }
    let long = KeyMessage { key_id: "k".repeat(KEY_ID_BYTES_MAX + 1), ..good };
    assert!(matches!(Keys::read(&keys_response(vec![long]).encode_to_vec()), Err(FetchError::Id(_))));
    assert!(matches!(Keys::read(&[0xff]), Err(FetchError::Unreadable(_))));
}

/// A fake signer: each call of FetchKeys adds one key, returns all keys so far, and increments a counter.
struct Fake {
    keys: Vec<KeyMessage>,
    fetches: AtomicUsize,
    lifetime: i64,
}

impl Calls for Fake {
    fn call(&self, method: &'static str, _: Vec<u8>) -> Called {
        let answer = match method {
            "FetchKeys" => {
                let count = self.fetches.fetch_add(1, Ordering::Relaxed) + 1;
                keys_response(self.keys.iter().take(count).cloned().collect()).encode_to_vec()
            }
            "Metadata" => MetadataResponse { max_token_expiration_seconds: self.lifetime }.encode_to_vec(),
            _ => return Box::pin(async { Err(CallError { code: "Unimplemented", text: "no".to_owned() }) }),
        };
        Box::pin(async move { Ok(answer) })
    }
}

fn fake(lifetime: i64) -> Arc<Fake> {
    Arc::new(Fake { keys: vec![key("one"), key("two")], fetches: AtomicUsize::new(0), lifetime })
}

#[tokio::test(start_paused = true)]
async fn a_signer_with_token_lifetimes_below_ten_minutes_is_refused() {
    for (lifetime, want) in [(600, None), (599, Some("(599s)")), (0, Some("(0s)")), (-1, Some("(-1s)"))] {
        let opened = External::open(fake(lifetime), Arc::default()).await;
        let why = opened.map_err(|why| why.contains("is less than acceptable (min 600s)").then_some(why));
        match (why, want) {
            (Ok(external), None) => assert_eq!(external.lifetime_max(), Duration::from_secs(600)),
            (Err(Some(why)), Some(shown)) => assert!(why.contains(shown), "{why}"),
            (got, want) => panic!("{got:?}, not {want:?}"),
        }
    }
}

/// The clock of the timers is paused, so the first request waits before its fetch, however late it begins.
/// Otherwise this fetch could be complete before the other requests begin, and they would need another fetch.
#[tokio::test(start_paused = true)]
async fn requests_with_unknown_keys_share_one_fetch_of_the_keys() {
    let signer = fake(3600);
    let external = Arc::new(External::open(signer.clone(), Arc::default()).await.unwrap());
    // The timers are set from the times of fetches, which come from the clock of the system. After this
    // pause, the timer of the second fetch ends after that of the first.
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(signer.fetches.load(Ordering::Relaxed), 1);
    let wait = |id: &'static str| {
        let external = external.clone();
        async move { external.learn(id).await }
    };
    let known =
        futures_util::future::join_all((0..50).map(|at| wait(if at % 2 == 0 { "two" } else { "none" })));
    let known = known.await;
    assert_eq!(known.iter().filter(|known| **known).count(), 25);
    assert_eq!(signer.fetches.load(Ordering::Relaxed), 2, "one call answers all");
    // Requests beyond the limit do not wait.
    let many = futures_util::future::join_all((0..WAITING_MAX + 10).map(|_| wait("none"))).await;
    assert!(many.iter().all(|known| !known));
    assert_eq!(signer.fetches.load(Ordering::Relaxed), 3);
}
