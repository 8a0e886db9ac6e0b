//! Config maps and secrets (semantics §5.7).

use hashbrown::HashSet;

use super::super::is_same;
use super::super::metadata::{is_enough, refuse};
use super::super::names;
use super::super::path::Path;
use super::{Check, members, top};
use crate::field::FieldError;
use crate::json::{self, Key, Object, Value};
use crate::schema::scalars::bytes;

/// Most bytes of all values of a config map or secret.
const BYTES_MAX: usize = 1024 * 1024;

pub(super) fn config_map(check: &mut Check) {
    let (data, binary) = (top(check.object, "data"), top(check.object, "binaryData"));
    let data_path = Path::ROOT.child("data");
    let binary_path = Path::ROOT.child("binaryData");
    let faults = &mut *check.errors;
    let binary_keys: HashSet<&str> = members(binary).map(|(key, _)| key).collect();
    let mut total = 0;
    for (key, value) in members(data) {
        if is_enough(faults) {
            break;
        }
        refuse(faults, &data_path.key(key), key, names::config_key(key));
        if binary_keys.contains(key) {
            let detail = "duplicate of key present in binaryData";
            faults.push(FieldError::invalid(data_path.key(key), &key.into(), detail));
        }
        total += value.as_str().map_or(0, str::len);
    }
    for (key, value) in members(binary) {
        if is_enough(faults) {
            break;
        }
        refuse(faults, &binary_path.key(key), key, names::config_key(key));
        total += value.as_str().map_or(0, bytes::decoded_len);
    }
    if total > BYTES_MAX {
        faults.push(FieldError::too_long("", BYTES_MAX));
    }
}

pub(super) fn config_map_update(check: &mut Check, old: &Object) {
    frozen(check, old, &["data", "binaryData"]);
}

/// What `immutable: true` freezes, itself included.
fn frozen(check: &mut Check, old: &Object, fields: &[&str]) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    let is_set = |object: &Object| object.get("immutable").and_then(Value::as_bool) == Some(true);
    if !is_set(old) {
        return;
    }
    if !is_set(check.object) {
        check.errors.push(FieldError::forbidden("immutable", DETAIL));
    }
    for field in fields {
        if !is_same(check.object.get(field), old.get(field)) {
            check.errors.push(FieldError::forbidden(*field, DETAIL));
        }
    }
}

/// `stringData` is only for writing: its values go over those of `data`.
pub(super) fn merge_string_data(secret: &mut Object, _: Option<&Object>) {
    let Some(Value::Object(plain)) = secret.remove("stringData") else { return };
    if plain.is_empty() {
        return;
    }
    let mut data = match secret.remove("data") {
        Some(Value::Object(data)) => data,
        _ => Object::new(),
    };
    let mut merged = data.into_members();
    merged.extend(plain.into_members().into_iter().map(|(key, value)| {
        let encoded = bytes::encode(value.as_str().unwrap_or_default().as_bytes());
        (key, Value::String(encoded))
    }));
    // Of equal keys the later one, which is the plain one, stays.
    merged.reverse();
    merged.sort_by(|(a, _), (b, _)| a.cmp(b));
    merged.dedup_by(|(later, _), (kept, _)| later == kept);
    data = merged.into_iter().collect();
    let members = secret.members_mut();
    let at = members.iter().position(|(name, _)| name == "type").unwrap_or(members.len());
    members.insert(at, (Key::Borrowed("data"), Value::Object(data)));
}

pub(super) fn secret(check: &mut Check) {
    let path = Path::ROOT.child("data");
    let data = top(check.object, "data");
    let faults = &mut *check.errors;
    let mut total = 0;
    for (key, value) in members(data) {
        if is_enough(faults) {
            break;
        }
        refuse(faults, &path.key(key), key, names::config_key(key));
        total += value.as_str().map_or(0, bytes::decoded_len);
    }
    if total > BYTES_MAX {
        faults.push(FieldError::too_long(path, BYTES_MAX));
    }
    let has = |key: &str| data.is_some_and(|data| data.get(key).is_some());
    let require = |keys: &[&str], faults: &mut Vec<FieldError>| {
        let missing = keys.iter().filter(|key| !has(key));
        faults.extend(missing.map(|key| FieldError::required(path.key(key), "")));
    };
    let domain = check.naming.domain;
    let kind = top(check.object, "type").and_then(Value::as_str).unwrap_or_default();
    match kind.strip_prefix(domain).and_then(|kind| kind.strip_prefix('/')) {
        Some("service-account-token") => {
            let name = check.naming.label("service-account.name");
            let annotations = top(check.object, "metadata").and_then(|metadata| metadata.get("annotations"));
            if annotations.is_none_or(|annotations| annotations.str_at(&[&name]).is_empty()) {
                faults.push(FieldError::required(format!("metadata.annotations[{name}]"), ""));
            }
        }
        Some("dockercfg") => docker_config(&path, data, ".dockercfg", faults),
        Some("dockerconfigjson") => docker_config(&path, data, ".dockerconfigjson", faults),
        Some("basic-auth") if !has("username") && !has("password") => {
            require(&["username", "password"], faults);
        }
        Some("ssh-auth") => require(&["ssh-privatekey"], faults),
        Some("tls") => require(&["tls.crt", "tls.key"], faults),
        _ => {}
    }
}

/// The configuration must be there and be a JSON object; its text is never shown.
fn docker_config(path: &Path, data: Option<&Value>, key: &str, faults: &mut Vec<FieldError>) {
    let place = path.key(key);
    let Some(text) = data.and_then(|data| data.get(key)) else {
        faults.push(FieldError::required(place, ""));
        return;
    };
    let content = bytes::decode(text.as_str().unwrap_or_default()).unwrap_or_default();
    let detail = match json::parse(&content) {
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(_) => "json: cannot unmarshal into a map".to_owned(),
        Err(_) if content.is_empty() => "unexpected end of JSON input".to_owned(),
        Err(_) => "invalid character in JSON".to_owned(), // says nothing of what is inside
    };
    faults.push(FieldError::invalid(place, &"<secret contents redacted>".into(), detail));
}

pub(super) fn secret_update(check: &mut Check, old: &Object) {
    frozen(check, old, &["data"]);
}
