//! The file of `--encryption-provider-config`: an `EncryptionConfiguration`. The error texts are those of the
//! reference server (docs/api/encryption.md#which-objects-are-encrypted).
//!
//! Error messages about the file never contain secrets.

use std::sync::Arc;
use std::time::Duration;

use auth::strict::{MemberType, Object as Members};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::kms::{KeyService, Wrapping};
use super::provider::{Key, Method};
use super::{Provider, Rule};
use values::json::{Object, Value};
use values::naming::Naming;
use wire::config_type::ConfigType;

/// The members of a file.
const FORM: Members = Members {
    name: "EncryptionConfiguration",
    members: &[
        ("apiVersion", MemberType::Text),
        ("kind", MemberType::Text),
        ("resources", MemberType::List(&MemberType::Object(&RULE))),
    ],
};

const FILE: ConfigType = ConfigType {
    names: &[("apiserver.config", &["v1"], FORM.name)],
    scheme: "apiserver/pkg/server/options/encryptionconfig/config.go:79",
    form: &FORM,
    is_implied: false,
};

const RULE: Members = Members {
    name: "ResourceConfiguration",
    members: &[
        ("resources", MemberType::List(&MemberType::Text)),
        ("providers", MemberType::List(&MemberType::Object(&PROVIDER))),
    ],
};

const PROVIDER: Members = Members {
    name: "ProviderConfiguration",
    members: &[
        ("aesgcm", MemberType::Object(&AES)),
        ("aescbc", MemberType::Object(&AES)),
        ("secretbox", MemberType::Object(&SECRETBOX)),
        (IDENTITY, MemberType::Object(&Members { name: "IdentityConfiguration", members: &[] })),
        (KMS, MemberType::Object(&SERVICE)),
    ],
};

const AES: Members = Members { name: "AESConfiguration", members: KEYS };
const SECRETBOX: Members = Members { name: "SecretboxConfiguration", members: KEYS };
const KEYS: &[(&str, MemberType)] = &[("keys", MemberType::List(&MemberType::Object(&KEY)))];
const KEY: Members =
    Members { name: "Key", members: &[("name", MemberType::Text), ("secret", MemberType::Text)] };

const SERVICE: Members = Members {
    name: "KMSConfiguration",
    members: &[
        ("apiVersion", MemberType::Text),
        ("name", MemberType::Text),
        ("cachesize", MemberType::Int32),
        ("endpoint", MemberType::Text),
        ("timeout", MemberType::Duration),
    ],
};

/// Names of the provider without keys, and of the provider that uses a key service.
const IDENTITY: &str = "identity";
const KMS: &str = "kms";

/// Maximum number of rules, keys and names in a file. Larger numbers are a mistake, and each entry costs time
/// for each value.
const RULES_MAX: usize = 1000;

/// An error in a file, on one line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Wrong {
    /// The file is not a configuration.
    Form(String),
    /// The configuration cannot be used.
    Content(String),
}

/// Creates a client for the key service at a socket, with a timeout per call. The client connects at its
/// first call.
pub type Connect<'c> = dyn Fn(&str, Duration) -> Arc<dyn KeyService> + 'c;

/// The state for reading a provider.
struct Reading<'r> {
    mark: String,
    connect: &'r Connect<'r>,
    /// Names of the key services read so far.
    services: Vec<String>,
    wrong: Vec<String>,
}

/// Reads the rules of a file.
///
/// # Errors
/// The error text contains all errors in the file.
pub fn read(bytes: &[u8], naming: &'static Naming, connect: &Connect<'_>) -> Result<Vec<Rule>, Wrong> {
    let document = FILE.read(bytes, naming).map_err(Wrong::Form)?;
    let mut reading = Reading { mark: mark(naming), connect, services: Vec::new(), wrong: Vec::new() };
    let rules = list(&document, "resources");
    if rules.is_empty() {
        reading.wrong.push("resources: Required value: at least one resources is required".to_owned());
    }
    if rules.len() > RULES_MAX {
        let count = rules.len();
        return Err(Wrong::Content(format!(
            "resources: Too many: {count}: must have at most {RULES_MAX} items"
        )));
    }
    let events = naming.group("events", true);
    let rules = rules
        .iter()
        .enumerate()
        .map(|(at, rule)| read_rule(&mut reading, &events, &format!("resources[{at}]"), rule));
    let rules: Vec<Rule> = rules.collect();
    go::join_errors(&reading.wrong).map_or(Ok(rules), |wrong| Err(Wrong::Content(wrong)))
}

/// Returns the prefix of encrypted values.
pub fn mark(naming: &Naming) -> String {
    let word = naming.own("").split('.').next().unwrap_or_default().to_owned();
    format!("{word}:enc:")
}

fn list<'v>(value: &'v Value, member: &str) -> &'v [Value] {
    value.get(member).and_then(Value::as_array).unwrap_or_default()
}

fn read_rule(reading: &mut Reading<'_>, events: &str, path: &str, rule: &Value) -> Rule {
    let wrong = &mut reading.wrong;
    let resources: Vec<String> =
        list(rule, "resources").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let at = format!("{path}.resources");
    if resources.is_empty() {
        wrong.push(format!("{at}: Required value: at least one {at} is required"));
    }
    check_overlap(&at, &resources, wrong);
    for (index, name) in resources.iter().enumerate() {
        if let Some(why) = wrong_name(name, events) {
            wrong.push(format!("{at}[{index}]: Invalid value: {}: {why}", go::quote(name)));
        }
    }
    let providers = list(rule, "providers");
    let at = format!("{path}.providers");
    if providers.is_empty() {
        wrong.push(format!("{at}: Required value: at least one {at} is required"));
    }
    let providers = providers.iter().enumerate();
    let providers =
        providers.filter_map(|(index, provider)| read_provider(reading, &format!("{at}[{index}]"), provider));
    Rule { providers: providers.collect(), resources }
}

/// Splits a name into resource and group. A name without a dot belongs to the core group.
fn parts(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or((name, ""))
}

/// Reports names of one rule that other names of the rule cover.
fn check_overlap(path: &str, resources: &[String], wrong: &mut Vec<String>) {
    let pairs = || {
        let all = resources.iter().map(|name| parts(name)).enumerate();
        all.clone().flat_map(move |(i, one)| {
            all.clone().filter(move |(j, _)| i != *j).map(move |(_, other)| (one, other))
        })
    };
    let is_doubled = pairs().any(|(one, other)| one == other);
    let is_masked = pairs().any(|(one, other)| {
        one != other && (one == ("*", "*") || one.1 == other.1 && (one.0 == "*" || other.0 == "*"))
    });
    let shown: Vec<String> = resources.iter().map(|name| go::quote(name).to_string()).collect();
    let mut say = |why: &str| {
        wrong.push(format!("{path}: Invalid value: [{}]: {why}", shown.join(",")));
    };
    if is_doubled {
        say("the same resource cannot be specified multiple times");
    }
    if is_masked {
        say(
            "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be \
             masked",
        );
    }
}

/// Names of stored data without a resource.
const WITHOUT_RESOURCE: [&str; 3] = ["apiserveripinfo", "serviceipallocations", "servicenodeportallocations"];

fn wrong_name(name: &str, events: &str) -> Option<String> {
    let (resource, group) = parts(name);
    let why = match group {
        _ if name.bytes().any(|byte| byte.is_ascii_uppercase()) => {
            "resource name should not contain capital letters"
        }
        _ if name == "*" => {
            "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
        }
        _ if WITHOUT_RESOURCE.contains(&name) => "resources which do not have REST API/s cannot be encrypted",
        group if group == events => {
            return Some(format!(
                "'*.{events}' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config \
                 file"
            ));
        }
        "extensions" => "'extensions' group has been removed and cannot be used for encryption",
        "*" if resource != "*" => "encrypting the same resource across groups is not supported",
        _ => return None,
    };
    Some(why.to_owned())
}

fn read_provider(reading: &mut Reading<'_>, path: &str, provider: &Value) -> Option<Provider> {
    let none = Object::default();
    let members = provider.as_object().unwrap_or(&none);
    let names: Vec<&str> =
        members.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name).collect();
    let is_known = |name: &str| {
        name == IDENTITY || name == KMS || Method::ALL.iter().any(|method| method.name() == name)
    };
    let known: Vec<&str> = names.into_iter().filter(|name| is_known(name)).collect();
    let [name] = known[..] else {
        reading.wrong.push(format!(
            "{path}: Invalid value: {}",
            if known.is_empty() {
                "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"
            } else {
                "more than one provider specified in a single element, should split into different list elements"
            }
        ));
        return None;
    };
    if name == IDENTITY {
        return Some(Provider::Identity);
    }
    let Some(method) = Method::ALL.into_iter().find(|method| method.name() == name) else {
        let service = read_service(reading, &format!("{path}.{KMS}"), members.get(KMS)?);
        return service.map(|key| Provider::Keys(vec![key]));
    };
    let path = format!("{path}.{name}.keys");
    let keys = list(members.get(name).unwrap_or(&Value::Null), "keys");
    let Reading { mark, wrong, .. } = reading;
    if keys.is_empty() {
        wrong.push(format!("{path}: Required value: at least one keys is required"));
    }
    let keys = keys.iter().enumerate();
    let keys = keys.filter_map(|(at, key)| read_key(mark, method, &format!("{path}[{at}]"), key, wrong));
    Some(Provider::Keys(keys.collect()))
}

/// Timeout of a call to a key service if the file sets none.
const SERVICE_TIMEOUT: &str = "3s";

/// Reads a provider whose keys a service wraps.
fn read_service(reading: &mut Reading<'_>, path: &str, service: &Value) -> Option<Key> {
    let quote = go::quote;
    let (name, endpoint) = (service.str_at(&["name"]), service.str_at(&["endpoint"]));
    let version = Some(service.str_at(&["apiVersion"])).filter(|version| !version.is_empty()).unwrap_or("v1");
    let before = reading.wrong.len();
    let mut say = |member: &str, what: &str| reading.wrong.push(format!("{path}.{member}: {what}"));
    if name.is_empty() {
        say("name", "Required value: name is a mandatory field for a provider");
    }
    if version != "v1" && name.contains(':') {
        let quoted = quote(name);
        say(
            "name",
            &format!("Invalid value: {quoted}: invalid KMS provider name {name}, must not contain ':'"),
        );
    }
    if reading.services.iter().any(|known| known == name) {
        let quoted = quote(name);
        say(
            "name",
            &format!("Invalid value: {quoted}: duplicate KMS provider name {name}, names must be unique"),
        );
    }
    let given = Some(service.str_at(&["timeout"])).filter(|text| !text.is_empty()).unwrap_or(SERVICE_TIMEOUT);
    let timeout = go::duration::parse(given).ok().and_then(|nanos| u64::try_from(nanos).ok());
    let timeout = timeout.filter(|nanos| *nanos > 0).map(Duration::from_nanos);
    if timeout.is_none() {
        say("timeout", &format!("Invalid value: {}: timeout should be a positive value", quote(given)));
    }
    let socket = endpoint.strip_prefix("unix://");
    if endpoint.is_empty() {
        say("endpoint", "Invalid value: \"\": endpoint is a mandatory field for a kms");
    } else if socket.is_none() {
        let scheme = endpoint.split_once(':').map_or("", |(scheme, _)| scheme);
        let (quoted, scheme) = (quote(endpoint), quote(scheme));
        say(
            "endpoint",
            &format!(
                "Invalid value: {quoted}: unsupported scheme {scheme} for KMS provider, only unix is supported"
            ),
        );
    }
    if version != "v1"
        && let Some(size) = service.get("cachesize")
    {
        let size = size.as_i64().unwrap_or(0);
        say("cachesize", &format!("Invalid value: {size}: cachesize is not supported in v2"));
    }
    match version {
        "v2" => {}
        "v1" => say(
            "apiVersion",
            "Forbidden: KMSv1 is deprecated and not supported by this server. Use KMSv2 instead",
        ),
        _ => say(
            "apiVersion",
            &format!(
                "Invalid value: {}: unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported",
                quote(version)
            ),
        ),
    }
    reading.services.push(name.to_owned());
    let (Some(socket), Some(timeout), true) = (socket, timeout, reading.wrong.len() == before) else {
        return None;
    };
    Some(Key::of_service(&reading.mark, Wrapping::new(name, (reading.connect)(socket, timeout))))
}

fn read_key(mark: &str, method: Method, path: &str, key: &Value, wrong: &mut Vec<String>) -> Option<Key> {
    let (name, secret) = (key.str_at(&["name"]), key.str_at(&["secret"]));
    if name.is_empty() {
        wrong.push(format!("{path}.name: Required value: name is a mandatory field for a key"));
    }
    if secret.is_empty() {
        wrong.push(format!("{path}.secret: Required value: secret is a mandatory field for a key"));
        return None;
    }
    let path = format!("{path}.secret: Invalid value: \"REDACTED\"");
    let Ok(secret) = STANDARD.decode(secret) else {
        wrong.push(format!("{path}: secrets must be base64 encoded"));
        return None;
    };
    let made = Key::new(mark, method, name, &secret);
    if made.is_none() {
        let lengths: Vec<String> = method.key_bytes().iter().map(usize::to_string).collect();
        wrong.push(format!(
            "{path}: secret is not of the expected length, got {}, expected one of [{}]",
            secret.len(),
            lengths.join(" ")
        ));
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::KUBERNETES;

    struct Nothing;

    impl KeyService for Nothing {
        fn call(&self, _: &'static str, _: Vec<u8>) -> Result<Vec<u8>, String> {
            Err("nothing is there".to_owned())
        }
    }

    const NONE: &Connect<'static> = &|_, _| Arc::new(Nothing);

    #[test]
    fn the_kms_section_of_an_encryption_configuration_is_validated() {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:";
        let kms = |kms: &str| format!("{head} [{{resources: [secrets], providers: [{{kms: {{{kms}}}}}]}}]");
        let at = "resources[0].providers[0].kms";
        for (text, want) in [
            ("apiVersion: v2, name: a, endpoint: 'unix:///run/kms.sock', timeout: 1s", String::new()),
            (
                "apiVersion: v2, name: 'a:b', endpoint: 'http://x', timeout: 0s, cachesize: 5",
                format!(
                    "[{at}.name: Invalid value: \"a:b\": invalid KMS provider name a:b, must not contain ':', {at}.timeout: \
                     Invalid value: \"0s\": timeout should be a positive value, {at}.endpoint: Invalid value: \
                     \"http://x\": unsupported scheme \"http\" for KMS provider, only unix is supported, {at}.cachesize: \
                     Invalid value: 5: cachesize is not supported in v2]"
                ),
            ),
            (
                "apiVersion: v2",
                format!(
                    "[{at}.name: Required value: name is a mandatory field for a provider, {at}.endpoint: Invalid value: \
                     \"\": endpoint is a mandatory field for a kms]"
                ),
            ),
            (
                "name: a, endpoint: 'unix:///x'",
                format!(
                    "{at}.apiVersion: Forbidden: KMSv1 is deprecated and not supported by this server. Use KMSv2 instead"
                ),
            ),
        ] {
            let got = match read(kms(text).as_bytes(), &KUBERNETES, NONE) {
                Ok(_) => String::new(),
                Err(Wrong::Content(why) | Wrong::Form(why)) => why,
            };
            assert_eq!(got, want, "{text}");
        }
        let one = "{kms: {apiVersion: v2, name: a, endpoint: 'unix:///x'}}";
        let twice = format!("{head} [{{resources: [secrets], providers: [{one}, {one}]}}]");
        let Err(Wrong::Content(why)) = read(twice.as_bytes(), &KUBERNETES, NONE) else { panic!("a twice") };
        assert!(why.ends_with("duplicate KMS provider name a, names must be unique"), "{why}");
    }

    #[test]
    fn an_encryption_configuration_is_validated() {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:";
        let key = "keys: [{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]";
        let good = format!(
            "{head} [{{resources: [secrets], providers: [{{aescbc: {{{key}}}}}, {{identity: {{}}}}]}}]"
        );
        assert_eq!(read(good.as_bytes(), &KUBERNETES, NONE).unwrap().len(), 1);
        for (text, want) in [
            (format!("{head} []"), "resources: Required value: at least one resources is required"),
            (
                format!("{head} [{{providers: [{{identity: {{}}}}]}}]"),
                "resources[0].resources: Required value: at least one resources[0].resources is required",
            ),
            (
                format!("{head} [{{resources: [a]}}]"),
                "resources[0].providers: Required value: at least one resources[0].providers is required",
            ),
            (
                format!("{head} [{{resources: [a], providers: [{{aesgcm: {{}}}}]}}]"),
                "resources[0].providers[0].aesgcm.keys: Required value: at least one keys is required",
            ),
            (
                format!("{head} [{{resources: [a], providers: [{{secretbox: {{{key}}}}}]}}]"),
                "resources[0].providers[0].secretbox.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the \
                 expected length, got 16, expected one of [32]",
            ),
            (
                format!("{head} [{{resources: [a], providers: [{{aescbc: {{keys: [{{secret: '*'}}]}}}}]}}]"),
                "[resources[0].providers[0].aescbc.keys[0].name: Required value: name is a mandatory field for a key, \
                 resources[0].providers[0].aescbc.keys[0].secret: Invalid value: \"REDACTED\": secrets must be base64 encoded]",
            ),
            (
                format!("{head} [{{resources: [a], providers: [{{identity: {{}}, aesgcm: {{{key}}}}}]}}]"),
                "resources[0].providers[0]: Invalid value: more than one provider specified in a single element, should \
                 split into different list elements",
            ),
            (
                format!("{head} [{{resources: ['*.', secrets], providers: [{{identity: {{}}}}]}}]"),
                "resources[0].resources: Invalid value: [\"*.\",\"secrets\"]: using overlapping resources such as 'secrets' \
                 and '*.' in the same resource list is not allowed as they will be masked",
            ),
        ] {
            let wrong = read(text.as_bytes(), &KUBERNETES, NONE).unwrap_err();
            assert_eq!(wrong, Wrong::Content(want.to_owned()), "{text}");
        }
        for (text, want) in [
            (
                "apiVersion: v1\nkind: ConfigMap",
                "no kind \"ConfigMap\" is registered for version \"v1\" in scheme ",
            ),
            ("a: b", "Object 'Kind' is missing in 'a: b'"),
            (&format!("{head} []\na: b"), "strict decoding error: unknown field \"a\""),
            (
                &format!("{head} [{{providers: [{{other: {{}}}}]}}]"),
                "strict decoding error: unknown field \"resources[0].providers[0].other\"",
            ),
        ] {
            let wrong = read(text.as_bytes(), &KUBERNETES, NONE).unwrap_err();
            assert!(matches!(&wrong, Wrong::Form(why) if why.starts_with(want)), "{text}: {wrong:?}");
        }
    }
}
