//! The ConfigMap from which extension servers learn how to authenticate users: it contains the authorities
//! and headers of this server (docs/api/extension-servers.md#identity).
//!
//! All servers of the cluster write the same object. The object contains the values of all servers, and also the
//! earlier values of this server if its settings have changed. Therefore extension servers accept requests from all of
//! these servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use auth::authn::certificate_authority::{certificate_pem, end_of};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::{EVENTS_MAX, Ending};
use crate::writes::bootstrap::{ObjectStore, ObjectTarget};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store;
use values::clock;
use values::json::{self, Object, Value};

const NAME: &str = "extension-apiserver-authentication";

/// Key of the authorities of client certificates.
const CLIENT_BUNDLE: &str = "client-ca-file";

/// Key of the authorities of authenticating proxies. Without this key, the lists have no effect.
const PROXY_BUNDLE: &str = "requestheader-client-ca-file";

/// Key of a list that older releases do not write. Therefore the list is present only if the list has an entry.
const UID_HEADERS: &str = "requestheader-uid-headers";

/// Keys of the settings for authenticating proxies. The value of each key is a JSON array of strings.
const PROXY_LISTS: [&str; 5] = [
    "requestheader-allowed-names",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    UID_HEADERS,
    "requestheader-username-headers",
];

/// Data of the ConfigMap.
type Data = BTreeMap<String, String>;

/// Runs the controller, which adds the values of this server. Existing data that cannot be parsed stays
/// unchanged.
pub(super) async fn follow(server: Arc<Server>) -> Ending {
    let loopback = Loopback::new(&server);
    let target = ObjectTarget {
        group: "",
        version: "v1",
        resource: "configmaps",
        namespace: server.types.naming.system("system"),
        name: NAME.to_owned(),
    };
    let resource = loopback.resource(&target)?;
    let key = store::key(resource, &target.namespace, NAME);
    let mut tail = server.store.engine().tail(server.store.engine().revision(), key)?;
    let mut changes = server.outgoing.extensions.setting_changes();
    loop {
        changes.borrow_and_update();
        let own = &server.outgoing.extensions.settings().authentication;
        let found = loopback.get(&target)?;
        let there = found.as_ref().map(data).unwrap_or_default();
        match (merged(&there, own, clock::now_seconds()), found) {
            (Some(desired), _) if desired == there => {}
            (None, _) => tracing::warn!(name = NAME, "ConfigMap cannot be read and is not updated"),
            // After a conflict, the write of the other writer causes an event, which triggers the next
            // attempt.
            (Some(desired), None) => drop(loopback.create(&target, object(&target, &desired)).await?),
            (Some(desired), Some(mut found)) => {
                if let Value::Object(object) = &mut found {
                    object.insert("data", members(&desired));
                }
                loopback.update(&target, found).await?;
            }
        }
        tokio::select! {
            events = tail.next(EVENTS_MAX) => drop(events?),
            // The sender lives as long as the server.
            _ = changes.changed() => {}
        }
    }
}

fn data(object: &Value) -> Data {
    let members = object.get("data").and_then(Value::as_object).into_iter().flat_map(Object::iter);
    members.filter_map(|(name, value)| Some((name.to_owned(), value.as_str()?.to_owned()))).collect()
}

fn members(data: &Data) -> Value {
    Object::from_iter(data.iter().map(|(name, value)| (name.clone().into(), value.as_str().into()))).into()
}

fn object(target: &ObjectTarget, data: &Data) -> Value {
    let mut metadata = Object::new();
    metadata.push("name", NAME.into());
    metadata.push("namespace", target.namespace.as_str().into());
    let mut object = Object::new();
    object.push("kind", "ConfigMap".into());
    object.push("apiVersion", "v1".into());
    object.push("metadata", metadata.into());
    object.push("data", members(data));
    object.into()
}

/// Returns the union of the existing data and the values of this server, in this order and without
/// duplicates. Certificates that have expired at `now` (seconds) are removed; keys that are neither a bundle
/// nor a list stay unchanged. Returns `None` if an existing bundle or list cannot be parsed.
fn merged(there: &Data, own: &Data, now: i64) -> Option<Data> {
    let is_foreign =
        |name: &str| ![CLIENT_BUNDLE, PROXY_BUNDLE].contains(&name) && !PROXY_LISTS.contains(&name);
    let foreign = there.iter().filter(|(name, _)| is_foreign(name));
    let mut all: Data = foreign.map(|(name, text)| (name.clone(), text.clone())).collect();
    for name in [CLIENT_BUNDLE, PROXY_BUNDLE] {
        let mut certificates = self::certificates(there.get(name))?;
        certificates.extend(self::certificates(own.get(name))?);
        certificates.retain(|der| end_of(der).is_some_and(|end| now <= end));
        let bundle: String =
            without_repetitions(certificates).iter().map(|der| certificate_pem(der)).collect();
        if !bundle.is_empty() {
            all.insert(name.to_owned(), bundle);
        }
    }
    let mut lists = Data::new();
    for name in PROXY_LISTS {
        let mut list = strings(there.get(name))?;
        list.extend(strings(own.get(name))?);
        if list.is_empty() && name == UID_HEADERS {
            continue;
        }
        let list = without_repetitions(list).into_iter().map(Value::from).collect();
        let mut text = Vec::new();
        json::write(&Value::Array(list), &mut text);
        lists.insert(name.to_owned(), String::from_utf8_lossy(&text).into_owned());
    }
    if all.contains_key(PROXY_BUNDLE) {
        all.extend(lists);
    }
    Some(all)
}

fn without_repetitions<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut once: Vec<T> = Vec::with_capacity(all.len());
    for item in all {
        if !once.contains(&item) {
            once.push(item);
        }
    }
    once
}

/// Returns the certificates of a bundle; `None` if there is text without any certificate.
fn certificates(bundle: Option<&String>) -> Option<Vec<CertificateDer<'static>>> {
    let text = bundle.map_or("", String::as_str);
    let found: Vec<_> = CertificateDer::pem_slice_iter(text.as_bytes()).filter_map(Result::ok).collect();
    (text.is_empty() || !found.is_empty()).then_some(found)
}

/// Returns the strings of a JSON array; `None` if the text is not such an array.
fn strings(list: Option<&String>) -> Option<Vec<String>> {
    let Some(text) = list.filter(|text| !text.is_empty()) else { return Some(Vec::new()) };
    let list = json::parse(text.as_bytes()).ok()?;
    list.as_array()?.iter().map(|item| Some(item.as_str()?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(year: i32) -> String {
        let mut params = rcgen::CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn data(members: &[(&str, &str)]) -> Data {
        members.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn authentication_info_merges_the_data_of_all_servers() {
        let (a, b, over) = (certificate(2040), certificate(2050), certificate(2020));
        let bundle =
            |parts: &[&str]| merged(&data(&[(CLIENT_BUNDLE, &parts.concat())]), &data(&[]), 0).unwrap();
        let now = 1_800_000_000;
        for (there, own, want) in [
            (data(&[]), data(&[]), data(&[])),
            (data(&[]), data(&[(CLIENT_BUNDLE, &a)]), bundle(&[&a])),
            (
                data(&[(CLIENT_BUNDLE, &b), ("more", "1")]),
                data(&[(CLIENT_BUNDLE, &a)]),
                bundle(&[&b, &a]).into_iter().chain(data(&[("more", "1")])).collect(),
            ),
            (bundle(&[&over, &a]), data(&[(CLIENT_BUNDLE, &a)]), bundle(&[&a])),
            (data(&[("requestheader-allowed-names", r#"["x"]"#)]), data(&[]), data(&[])),
        ] {
            assert_eq!(merged(&there, &own, now), Some(want), "{there:?} and {own:?}");
        }
        let own = data(&[(PROXY_BUNDLE, &a), ("requestheader-allowed-names", r#"["p","q"]"#)]);
        for (there, want) in
            [("", Some(r#"["p","q"]"#)), (r#"["x","q"]"#, Some(r#"["x","q","p"]"#)), ("x", None)]
        {
            let all = merged(&data(&[("requestheader-allowed-names", there)]), &own, now);
            let list = all.as_ref().map(|all| all["requestheader-allowed-names"].as_str());
            assert_eq!(list, want, "{there}");
            assert!(all.is_none_or(|all| !all.contains_key(UID_HEADERS)));
            let with_uid = [(UID_HEADERS.to_owned(), r#"["u"]"#.to_owned())];
            let own = own.clone().into_iter().chain(with_uid).collect();
            let all = merged(&data(&[("requestheader-allowed-names", there)]), &own, now);
            assert!(all.is_none_or(|all| all[UID_HEADERS] == r#"["u"]"#));
        }
        assert_eq!(merged(&data(&[(PROXY_BUNDLE, "no certificate")]), &own, now), None);
    }
}
