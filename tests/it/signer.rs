//! Service account tokens that an external process signs. The process changes its keys, hangs, sends wrong responses,
//! ends and restarts (docs/api/authentication.md#external-signers).

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tests::server::{TempDir, binary};
use tests::{Options, PATIENCE, Server};
use tokio::task::AbortHandle;

const TOKENS: &str = "/api/v1/namespaces/default/serviceaccounts/robot/token";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const ISSUER: &str = "https://issuer.example";

/// A key and its name. The first published key signs.
#[derive(Clone)]
struct Key {
    id: &'static str,
    pair: Arc<EcdsaKeyPair>,
    is_hidden: bool,
}

impl Key {
    fn new(id: &'static str) -> Key {
        let pair = Arc::new(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap());
        Key { id, pair, is_hidden: false }
    }

    fn hidden(&self) -> Key {
        Key { is_hidden: true, ..self.clone() }
    }

    fn der(&self) -> Vec<u8> {
        self.pair.public_key().as_der().unwrap().as_ref().to_vec()
    }

    fn sign(&self, text: &str) -> String {
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        URL_SAFE_NO_PAD.encode(signature.as_ref())
    }

    /// Returns a token that the signer would have issued for another server.
    fn token(&self, claims: &Value) -> String {
        let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
        let header = header(&json!({"alg": "ES256", "kid": self.id, "typ": "JWT"}));
        let text = format!("{header}.{claims}");
        format!("{text}.{}", self.sign(&text))
    }
}

fn header(header: &Value) -> String {
    URL_SAFE_NO_PAD.encode(header.to_string())
}

/// The response of a signer to a request to sign.
#[derive(Clone)]
enum Manner {
    Honest,
    Hangs,
    /// Returns this header and a valid signature.
    Says(Value),
    /// Signs with the public key as if it were a shared secret.
    SharesPublicKey,
    /// Signs other claims than requested.
    SignsOther,
    /// Returns this many bytes.
    Talks(usize),
    /// Returns bytes that are not a message.
    Babbles,
    /// Returns a gRPC status code.
    Fails(&'static str),
}

struct Said {
    keys: Vec<Key>,
    manner: Manner,
    hint: u64,
    lifetime: u64,
    fetches: usize,
}

/// A signer on a socket, with the gRPC protocol `v1.ExternalJWTSigner`.
struct Signer {
    path: PathBuf,
    said: Arc<Mutex<Said>>,
    running: Mutex<Vec<AbortHandle>>,
}

impl Signer {
    fn new(directory: &Path, keys: &[&Key]) -> Signer {
        let keys = keys.iter().map(|key| (*key).clone()).collect();
        let said = Said { keys, manner: Manner::Honest, hint: 600, lifetime: 7200, fetches: 0 };
        Signer {
            path: directory.join("signer.sock"),
            said: Arc::new(Mutex::new(said)),
            running: Mutex::default(),
        }
    }

    fn start(&self) {
        let _ = std::fs::remove_file(&self.path);
        let listener = tokio::net::UnixListener::bind(&self.path).unwrap();
        let said = self.said.clone();
        let connections = Arc::new(Mutex::new(tokio::task::JoinSet::new()));
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let said = said.clone();
                let answer = service_fn(move |request| {
                    let said = said.clone();
                    async move { Ok::<_, Infallible>(answer(&said, request).await) }
                });
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), answer);
                connections.lock().spawn(async move { drop(connection.await) });
            }
        });
        self.running.lock().push(accepting.abort_handle());
    }

    /// Ends like a killed process: connections break.
    fn stop(&self) {
        self.running.lock().drain(..).for_each(|task| task.abort());
        let _ = std::fs::remove_file(&self.path);
    }

    fn set_keys(&self, keys: &[&Key]) {
        self.said.lock().keys = keys.iter().map(|key| (*key).clone()).collect();
    }

    /// Sets the time after which the server fetches the keys again, and returns the number of fetches so far.
    fn set_hint(&self, seconds: u64) -> usize {
        let mut said = self.said.lock();
        said.hint = seconds;
        said.fetches
    }

    fn is(&self, manner: Manner) {
        self.said.lock().manner = manner;
    }

    fn options(&self, flags: &[&str]) -> Options {
        let mut all = vec![
            format!("--service-account-signing-endpoint={}", self.path.display()),
            format!("--service-account-issuer={ISSUER}"),
            "--api-audiences=here".to_owned(),
        ];
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Options { flags: all, ..Options::default() }
    }
}

/// Encodes a field of a message that is a number, or bytes.
fn number(field: u8, value: u64) -> Vec<u8> {
    [vec![field << 3], varint(value)].concat()
}

fn bytes(field: u8, value: &[u8]) -> Vec<u8> {
    [vec![field << 3 | 2], varint(value.len() as u64), value.to_vec()].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// Returns the text of the only field of a request.
fn claims_of(message: &[u8]) -> String {
    let (mut len, mut at) = (0_usize, 1);
    loop {
        let byte = message[at];
        len |= usize::from(byte & 0x7f) << (7 * (at - 1));
        at += 1;
        if byte & 0x80 == 0 {
            break;
        }
    }
    String::from_utf8(message[at..at + len].to_vec()).unwrap()
}

async fn answer(said: &Mutex<Said>, request: Request<Incoming>) -> Response<BoxBody<Bytes, Infallible>> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let manner = said.lock().manner.clone();
    let (message, status) = match path.strip_prefix("/v1.ExternalJWTSigner/").unwrap() {
        "Metadata" => (number(1, said.lock().lifetime), "0"),
        "FetchKeys" => {
            let mut said = said.lock();
            said.fetches += 1;
            let keys = said.keys.iter().flat_map(|key| {
                let hidden = number(3, u64::from(key.is_hidden));
                bytes(1, &[bytes(1, key.id.as_bytes()), bytes(2, &key.der()), hidden].concat())
            });
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            let message = keys.chain(bytes(2, &number(1, now))).chain(number(3, said.hint)).collect();
            (message, if matches!(manner, Manner::Fails(_)) { "14" } else { "0" })
        }
        "Sign" => sign(said, &manner, &claims_of(&body[5..])).await,
        other => panic!("{other}"),
    };
    let mut framed = vec![0];
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(&message);
    let trailers = HeaderMap::from_iter([
        (HeaderName::from_static("grpc-status"), status.parse().unwrap()),
        (HeaderName::from_static("grpc-message"), "as%20it%20likes".parse().unwrap()),
    ]);
    let body = Full::new(Bytes::from(framed)).with_trailers(std::future::ready(Some(Ok(trailers))));
    Response::builder().header("content-type", "application/grpc").body(body.boxed()).unwrap()
}

async fn sign(said: &Mutex<Said>, manner: &Manner, claims: &str) -> (Vec<u8>, &'static str) {
    let keys = said.lock().keys.clone();
    let key = keys.iter().find(|key| !key.is_hidden).unwrap_or(&keys[0]);
    let usual = json!({"alg": "ES256", "kid": key.id, "typ": "JWT"});
    let signed = |head: &Value| {
        let head = header(head);
        let signature = key.sign(&format!("{head}.{claims}"));
        [bytes(1, head.as_bytes()), bytes(2, signature.as_bytes())].concat()
    };
    let message = match manner {
        Manner::Honest => signed(&usual),
        Manner::Hangs => std::future::pending().await,
        Manner::Says(head) => signed(head),
        Manner::SharesPublicKey => {
            let head = header(&json!({"alg": "HS256", "kid": key.id, "typ": "JWT"}));
            let secret = hmac::Key::new(hmac::HMAC_SHA256, &key.der());
            let tag = hmac::sign(&secret, format!("{head}.{claims}").as_bytes());
            let signature = URL_SAFE_NO_PAD.encode(tag.as_ref());
            [bytes(1, head.as_bytes()), bytes(2, signature.as_bytes())].concat()
        }
        Manner::SignsOther => {
            let head = header(&usual);
            let signature = key.sign(&format!("{head}.e30"));
            [bytes(1, head.as_bytes()), bytes(2, signature.as_bytes())].concat()
        }
        Manner::Talks(len) => bytes(1, &vec![b'A'; *len]),
        Manner::Babbles => vec![0xff; 9],
        Manner::Fails(code) => return (Vec::new(), code),
    };
    (message, "0")
}

async fn account(server: &Server) {
    let made = server.client().post(ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await;
    assert_eq!(made.status, 201, "{}", made.text());
}

fn request() -> Value {
    json!({"spec": {"audiences": ["here"], "expirationSeconds": 3600}})
}

async fn token(server: &Server) -> String {
    let made = server.client().post(TOKENS, &request()).await;
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()["status"]["token"].as_str().unwrap().to_owned()
}

fn part(token: &str, at: usize) -> Value {
    let part = token.split('.').nth(at).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

/// Returns the code and user that the server reports for a token.
async fn whoami(server: &Server, token: &str) -> (u16, String) {
    let client = server.client().with_token(token);
    let review = client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await;
    let name = review.json()["status"]["userInfo"]["username"].as_str().unwrap_or_default().to_owned();
    (review.status, name)
}

const ROBOT: &str = "system:serviceaccount:default:robot";

async fn is_robot(server: &Server, token: &str) -> bool {
    whoami(server, token).await == (201, ROBOT.to_owned())
}

async fn published_key_ids(server: &Server) -> Vec<String> {
    let set = server.client().get("/openid/v1/jwks").await.json();
    set["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_external_signer_signs_tokens_and_can_change_its_keys() {
    let directory = TempDir::new();
    let [one, two, three] = ["one", "two", "three"].map(Key::new);
    let signer = Signer::new(directory.path(), &[&one, &two.hidden()]);
    signer.said.lock().hint = 2;
    signer.start();
    let server = Server::start(signer.options(&[])).await;
    account(&server).await;

    let first = token(&server).await;
    assert_eq!(part(&first, 0), json!({"alg": "ES256", "kid": "one", "typ": "JWT"}));
    assert_eq!(part(&first, 1)["iss"], ISSUER);
    assert!(is_robot(&server, &first).await);
    assert_eq!(
        published_key_ids(&server).await,
        ["one"],
        "a key that is excluded from discovery is not published"
    );
    let reply = server.client().get("/openid/v1/jwks").await;
    let cache = reply.header_all("cache-control").join("");
    assert!(
        matches!(cache.as_str(), "public, max-age=0" | "public, max-age=1" | "public, max-age=2"),
        "{cache}"
    );

    // A key that is excluded from discovery still verifies tokens.
    let mut claims = part(&first, 1);
    claims["jti"] = "other".into();
    assert!(is_robot(&server, &two.token(&claims)).await);

    // The next key of the signer is used immediately, and tokens of the previous key are still valid.
    // The keys are fetched once more, then not for a long time.
    let fetches = signer.set_hint(600);
    let began = Instant::now();
    while signer.said.lock().fetches == fetches {
        assert!(began.elapsed() < PATIENCE, "the keys are not fetched again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let fetches = signer.said.lock().fetches;
    signer.set_keys(&[&one.hidden(), &three]);
    let second = token(&server).await;
    assert_eq!(part(&second, 0)["kid"], "three");
    assert!(is_robot(&server, &second).await && is_robot(&server, &first).await);
    assert_eq!(published_key_ids(&server).await, ["three"]);
    assert_eq!(signer.said.lock().fetches, fetches + 1);

    // Another server issued this token with a key that this server has not seen yet.
    let four = Key::new("four");
    signer.set_keys(&[&three, &four]);
    assert!(is_robot(&server, &four.token(&claims)).await);
    // Tokens of a removed key are refused.
    assert_eq!(whoami(&server, &first).await.0, 401);
    // Invalid tokens cause at most one request to the signer per second.
    let (began, fetches) = (Instant::now(), signer.said.lock().fetches);
    let client = server.client().with_token(&Key::new("nobody's").token(&claims));
    let ask = || async { client.another().get("/api").await.status };
    let refused = futures_util::future::join_all((0..20).map(|_| ask())).await;
    assert_eq!(refused, [401; 20]);
    let calls = signer.said.lock().fetches - fetches;
    assert!(calls as u64 <= began.elapsed().as_secs() + 2, "{calls} calls in {:?}", began.elapsed());

    // A known key id with another algorithm is refused.
    let mut forged = three.token(&claims);
    forged.replace_range(..forged.find('.').unwrap(), &header(&json!({"alg": "none", "kid": "three"})));
    assert_eq!(whoami(&server, &forged).await.0, 401);

    let text = server.client().get("/metrics").await.text();
    for begin in [
        "apiserver_externaljwt_fetch_keys_success_timestamp 1",
        "apiserver_externaljwt_fetch_keys_data_timestamp 1",
        "apiserver_externaljwt_fetch_keys_request_total{code=\"OK\"} ",
        "apiserver_externaljwt_sign_request_total{code=\"OK\"} 2",
        "apiserver_externaljwt_request_duration_seconds_bucket{code=\"OK\",method=\"/v1.ExternalJWTSigner/Sign\",le=\"0.001\"}",
        "apiserver_externaljwt_request_duration_seconds_count{code=\"OK\",method=\"/v1.ExternalJWTSigner/Metadata\"} 1",
    ] {
        assert!(text.lines().any(|line| line.starts_with(begin)), "{begin} is not in {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_tokens_of_an_external_signer_are_not_returned() {
    let directory = TempDir::new();
    let [one, old] = ["one", "old"].map(Key::new);
    let signer = Signer::new(directory.path(), &[&one, &old.hidden()]);
    signer.start();
    let server = Server::start(signer.options(&[])).await;
    account(&server).await;
    let says = |head: Value| Manner::Says(head);
    for (manner, want) in [
        (says(json!({"alg": "none", "kid": "one", "typ": "JWT"})), "bad signing algorithm \"none\""),
        (says(json!({"alg": "RS512", "kid": "one", "typ": "JWT"})), "bad signing algorithm \"RS512\""),
        (
            says(json!({"alg": "RS256", "kid": "one", "typ": "JWT"})),
            "the signature is not one of the key \"one\"",
        ),
        (says(json!({"alg": "ES256", "typ": "JWT"})), "key id missing"),
        (says(json!({"alg": "ES256", "kid": "k".repeat(1025), "typ": "JWT"})), "key id longer than 1 kb"),
        (says(json!({"alg": "ES256", "kid": "one"})), "bad type"),
        (
            says(json!({"alg": "ES256", "kid": "one", "typ": "JWT", "jwk": {}})),
            "while parsing header JSON: unknown field `jwk`",
        ),
        (
            says(json!({"alg": "ES256", "kid": "unknown", "typ": "JWT"})),
            "the signature is not one of the key \"unknown\"",
        ),
        (
            says(json!({"alg": "ES256", "kid": "old", "typ": "JWT"})),
            "key used for signing JWT (kid: old) is excluded from OIDC discovery docs",
        ),
        (Manner::SharesPublicKey, "bad signing algorithm \"HS256\""),
        (Manner::SignsOther, "the signature is not one of the key \"one\""),
        (Manner::Talks(30_000), "while parsing header JSON"),
        (Manner::Talks(3_000_000), "code = ResourceExhausted desc = the answer is too long"),
        (Manner::Babbles, "the answer cannot be read"),
        (Manner::Fails("7"), "code = PermissionDenied desc = as it likes"),
        (Manner::Fails("99"), "code = Unknown desc = as it likes"),
    ] {
        signer.is(manner);
        let refused = server.client().post(TOKENS, &request()).await;
        assert_eq!(refused.status, 500, "{want}: {}", refused.text());
        let message = refused.json()["message"].as_str().unwrap().to_owned();
        assert!(
            message.contains("failed to generate token: ") && message.contains(want),
            "{want}: {message}"
        );
        assert!(!message.contains("eyJ"), "a token is not in a message: {message}");
    }
    signer.is(Manner::Honest);
    assert!(is_robot(&server, &token(&server).await).await);
    let text = server.client().get("/metrics").await.text();
    for line in [
        "apiserver_externaljwt_sign_request_total{code=\"OK\"} 1",
        "apiserver_externaljwt_sign_request_total{code=\"PermissionDenied\"} 1",
        "apiserver_externaljwt_sign_request_total{code=\"unknown-non-grpc\"} 13",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line} is not in {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_or_dead_external_signer_delays_only_token_requests() {
    let directory = TempDir::new();
    let [one, two] = ["one", "two"].map(Key::new);
    let signer = Signer::new(directory.path(), &[&one]);
    // At its start the server waits for the signer.
    let starting = tokio::spawn(Server::start(signer.options(&[])));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!starting.is_finished());
    signer.start();
    let server = starting.await.unwrap();
    account(&server).await;
    let issued = token(&server).await;

    signer.is(Manner::Hangs);
    let began = Instant::now();
    let slow = server.client().another();
    let hanging = tokio::spawn(async move { slow.post(TOKENS, &request()).await });
    let mut rounds = 0;
    while !hanging.is_finished() {
        assert_eq!(server.client().get("/api/v1/namespaces").await.status, 200);
        assert!(is_robot(&server, &issued).await);
        rounds += u32::from(!hanging.is_finished());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(rounds > 0, "other requests are served meanwhile");
    let refused = hanging.await.unwrap();
    assert_eq!(refused.status, 500);
    assert!(refused.text().contains("code = DeadlineExceeded"), "{}", refused.text());
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());

    // While the signer is down, existing tokens stay valid; requests for new tokens wait until the signer is
    // back, even if it has another key then.
    signer.stop();
    signer.is(Manner::Honest);
    signer.set_keys(&[&two, &one]);
    assert!(is_robot(&server, &issued).await);
    let slow = server.client().another();
    let waiting = tokio::spawn(async move { slow.post(TOKENS, &request()).await });
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!waiting.is_finished());
    assert!(is_robot(&server, &issued).await);
    signer.start();
    let made = waiting.await.unwrap();
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json()["status"]["token"].as_str().unwrap().to_owned();
    assert_eq!(part(&made, 0)["kid"], "two");
    assert!(is_robot(&server, &made).await && is_robot(&server, &issued).await);
    // A token becomes invalid immediately when its service account is deleted, whether or not the signer runs.
    assert_eq!(server.client().delete(&format!("{ACCOUNTS}/robot")).await.status, 200);
    assert_eq!(whoami(&server, &made).await.0, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_last_no_longer_than_the_external_signer_allows() {
    let directory = TempDir::new();
    let one = Key::new("one");
    let signer = Signer::new(directory.path(), &[&one]);
    signer.start();
    let server = Server::start(signer.options(&[])).await;
    account(&server).await;
    let long = json!({"spec": {"audiences": ["here"], "expirationSeconds": 86400}});
    let made = server.client().post(TOKENS, &long).await;
    assert_eq!(made.json()["spec"]["expirationSeconds"], 7200, "{}", made.text());
    let warning = made.header_all("warning").join("");
    assert!(warning.contains("requested expiration of 86400 seconds shortened to 7200 seconds"), "{warning}");

    let refusal = |flags: &[&str]| {
        let data = TempDir::new();
        let mut command = Command::new(binary());
        command
            .arg(format!("--data-dir={}", data.path().display()))
            .args(["--naming=kubernetes", "--secure-port=free"]);
        command.args(signer.options(flags).flags);
        let output = tokio::task::spawn_blocking(move || (command.output().unwrap(), data));
        async move {
            let (output, _data) = output.await.unwrap();
            assert_eq!(output.status.code(), Some(1));
            String::from_utf8_lossy(&output.stderr).into_owned()
        }
    };
    let why = refusal(&["--service-account-max-token-expiration=3h"]).await;
    let want = "service-account-max-token-expiration cannot be set longer than the token expiration supported by \
                service-account-signing-endpoint: 3h0m0s > 2h0m0s";
    assert!(why.contains(want), "{why}");
    signer.said.lock().lifetime = 300;
    let why = refusal(&[]).await;
    let want = "max token life supported by external-jwt-signer (300s) is less than acceptable (min 600s)";
    assert!(why.contains(want), "{why}");
    signer.said.lock().lifetime = 7200;
    signer.is(Manner::Fails("14"));
    let why = refusal(&[]).await;
    let want = "while setting up external-jwt-signer: while initially filling key cache: while performing initial cache \
                fill: while fetching token verification keys: while getting externally supported jwt signing keys: rpc \
                error: code = Unavailable desc = as it likes";
    assert!(why.contains(want), "{why}");
    signer.is(Manner::Honest);
    signer.set_keys(&[]);
    let why = refusal(&[]).await;
    assert!(why.contains("while fetching token verification keys: found no keys"), "{why}");
}
