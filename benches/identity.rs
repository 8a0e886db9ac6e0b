//! Benchmark of the cost of identity for a request: authentication of a certificate or a token, and
//! authorization. The authorizer has as many roles as a new server, and many bindings.
//!
//! - `certificate` and `account token` authenticate the same credential repeatedly. Each time, RBAC
//!   authorizes a request with 10 000 role bindings, a few of which apply to the user.
//! - `new account tokens` authenticates a new token each time, which requires a signature check. The result
//!   is the number of tokens per second on one core.
//!
//! The measurements exclude HTTP and TLS, and the store is a table in memory. The times are processor times,
//! so that other programs on the machine have no influence.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use auth::authn::service_account::{
    AccountSource, Incarnation, Reference, ServiceAccountTokens, TokenIssuer, TokenSecret, TokenSpec,
};
use auth::authn::x509::{CaBundle, ClientCertificates, PeerCertificates};
use auth::authn::{Authenticator, Credentials, NameDomains, SigningKey};
use auth::authz::{Binding, Module, Policy, RoleRef, Rule, Subject};
use auth::{Attributes, Authorizer, Selectors, User};
use benches::{process, scale};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;

const BINDINGS: usize = 10_000;
const TOKENS: usize = 10_000;
const AUDIENCE: &str = "https://issuer.example";

/// A source of accounts in which every account exists.
struct EveryAccount;

impl AccountSource for EveryAccount {
    fn service_account(&self, _: &str, name: &str) -> Option<Incarnation> {
        Some(Incarnation { uid: format!("uid-{name}"), deleted: None })
    }
    fn pod(&self, _: &str, _: &str) -> Option<Incarnation> {
        None
    }
    fn secret(&self, _: &str, _: &str) -> Option<Incarnation> {
        None
    }
    fn node(&self, _: &str) -> Option<Incarnation> {
        None
    }
    fn token_secret(&self, _: &str, _: &str) -> Option<TokenSecret> {
        None
    }

    fn note_use(&self, _: &str, _: &str, _: &str) {}
}

/// Returns the result of a future that never waits.
fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("nothing here waits"),
    }
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

/// Returns an authorizer with many bindings and with fifty roles of twenty rules each. The roles of a new
/// server have about the same size.
fn authorizer() -> Authorizer {
    let mut policy = Policy::default();
    for role in 0..50 {
        let rule = |at: usize| Rule {
            verbs: texts(&["get", "list", "watch"]),
            api_groups: texts(&["", "apps"]),
            resources: vec![format!("things{role}x{at}")],
            ..Rule::default()
        };
        let mut rules: Vec<Rule> = (0..20).map(rule).collect();
        rules.push(Rule {
            verbs: texts(&["get"]),
            api_groups: texts(&[""]),
            resources: texts(&["pods"]),
            ..Rule::default()
        });
        policy.set_cluster_role(&format!("role{role}"), Some(rules.into()));
    }
    for binding in 0..BINDINGS {
        let name = match binding % 1000 {
            0 => "jane".to_owned(),
            1 => "system:serviceaccount:ns0:robot0".to_owned(),
            _ => format!("user{binding}"),
        };
        policy.set_binding(Binding {
            namespace: format!("ns{}", binding % 100),
            name: format!("binding{binding}"),
            role: RoleRef {
                api_group: "rbac".into(),
                kind: "ClusterRole".into(),
                name: format!("role{}", binding % 50),
            },
            subjects: vec![Subject {
                kind: "User".into(),
                api_group: "rbac".into(),
                name,
                namespace: String::new(),
            }],
        });
    }
    Authorizer::new(vec![Module::Rbac], Arc::new(policy), "rbac")
}

fn attributes<'u>(user: &'u User, namespace: &'static str) -> Attributes<'u> {
    Attributes {
        verb: "get",
        resource_request: true,
        group: "",
        version: "v1",
        resource: "pods",
        subresource: "",
        namespace,
        name: "p",
        path: "/api/v1/namespaces/ns0/pods/p",
        user,
        selectors: Selectors::default(),
    }
}

fn certificate() -> (ClientCertificates, CertificateDer<'static>) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).expect("a certificate").pem();
    let issuer = Issuer::new(params, key);
    let mut leaf = CertificateParams::default();
    leaf.distinguished_name.push(DnType::CommonName, "jane");
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().expect("a key");
    let leaf = leaf.signed_by(&key, &issuer).expect("a certificate");
    let bundle = CaBundle::from_pem(authority.as_bytes()).expect("a bundle");
    (ClientCertificates::new(bundle, &NameDomains::new("example.org")), leaf.der().clone())
}

fn tokens(count: usize) -> (ServiceAccountTokens, Vec<String>) {
    let domains = NameDomains::new("example.org");
    let key = KeyPair::generate().expect("a key").serialize_pem();
    let key = SigningKey::from_pem(key.as_bytes()).expect("a key");
    let verifying = vec![key.public().clone()];
    let issuer = TokenIssuer::new(AUDIENCE, key, domains.clone());
    let issue = |at: usize| {
        let name = format!("robot{at}");
        let spec = TokenSpec {
            namespace: "ns0".into(),
            account: Reference { uid: format!("uid-{name}"), name },
            audiences: texts(&[AUDIENCE]),
            issued: SystemTime::now(),
            lifetime: Duration::from_secs(3600),
            warn_after: None,
            pod: None,
            secret: None,
            node: None,
        };
        issuer.issue(&spec).expect("a token").token
    };
    let all = (0..count).map(issue).collect();
    let accounts = ServiceAccountTokens::new(texts(&[AUDIENCE]), verifying, Arc::new(EveryAccount), domains);
    (accounts.with_audiences(texts(&[AUDIENCE])), all)
}

/// Prints the processor time of one call, in microseconds: the minimum of several rounds.
fn measure<T>(name: &str, calls: usize, mut call: impl FnMut() -> T) {
    let round = |_| {
        let before = process::cpu_time(std::process::id());
        for _ in 0..calls {
            black_box(call());
        }
        (process::cpu_time(std::process::id()) - before).as_secs_f64() * 1e6 / calls as f64
    };
    let least = (0..scale(5, 1)).map(round).fold(f64::MAX, f64::min);
    line(&format!("identity, {name}: {least:.2} us of CPU, {:.0} a second", 1e6 / least));
}

fn main() {
    let authorizer = authorizer();
    let (certificates, leaf) = certificate();
    let (accounts, all) = tokens(scale(TOKENS, 100));
    let chain = Authenticator::new()
        .with_certificates(Arc::new(certificates))
        .with_audiences(texts(&[AUDIENCE]))
        .with_tokens(accounts);
    let leaf = PeerCertificates::new(vec![leaf]);
    let token = format!("Bearer {}", all[0]);
    let serve = |credentials: Credentials<'_>, namespace| {
        let known = ready(chain.authenticate(&credentials, std::time::SystemTime::now())).expect("a user");
        ready(authorizer.authorize(&attributes(known.user(), namespace)))
            .expect("it may")
            .attributes()
            .verb
            .len()
    };
    measure("certificate", scale(200_000, 100), || {
        serve(Credentials { certificates: black_box(Some(&leaf)), ..Credentials::default() }, "ns0")
    });
    let known = Credentials { authorization: Some(&token), ..Credentials::default() };
    measure("account token", scale(200_000, 100), || serve(black_box(known), "ns1"));
    let mut at = 0;
    // `all` has more tokens than the cache holds, so that the cache never contains the next token.
    measure("new account tokens", scale(10_000, 100), || {
        at = (at + 1) % all.len();
        let credentials = format!("Bearer {}", all[at]);
        let credentials = Credentials { authorization: Some(&credentials), ..Credentials::default() };
        ready(chain.authenticate(&credentials, std::time::SystemTime::now())).expect("a user")
    });
}

#[expect(clippy::print_stdout, reason = "benchmarks report on standard output")]
fn line(text: &str) {
    println!("{text}");
}
