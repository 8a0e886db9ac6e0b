//! Rules for config maps and secrets (docs/api/validation.md#configuration).

use hashbrown::HashSet;

use super::super::path::FieldPath;
use super::super::{Validator, is_same, names};
use super::StructView;
use values::base64_text;
use values::field::FieldError;
use values::json::{self, Key, Object, Value};

/// Maximum total size in bytes of the values of a config map or secret.
const BYTES_MAX: usize = 1024 * 1024;

pub(super) fn config_map(validator: &mut Validator, path: &FieldPath, map: StructView) {
    let (data_path, binary_path) = (path.child("data"), path.child("binaryData"));
    let binary_keys: HashSet<&str> = map.map("binaryData").map(|(key, _)| key).collect();
    let mut total = 0;
    for (key, value) in map.map("data") {
        if validator.has_enough() {
            break;
        }
        validator.refuse(&data_path.key(key), key, names::config_key(key));
        if binary_keys.contains(key) {
            validator.invalid(data_path.key(key), key, "duplicate of key present in binaryData");
        }
        total += value.as_str().map_or(0, str::len);
    }
    for (key, value) in map.map("binaryData") {
        if validator.has_enough() {
            break;
        }
        validator.refuse(&binary_path.key(key), key, names::config_key(key));
        total += value.as_str().map_or(0, base64_text::decoded_len);
    }
    if total > BYTES_MAX {
        validator.errors.push(FieldError::too_long("[]", BYTES_MAX));
    }
}

pub(super) fn config_map_update(validator: &mut Validator, new: StructView, old: StructView) {
    frozen(validator, new, old, &["data", "binaryData"]);
}

/// Checks the fields that `immutable: true` protects. `immutable` itself is one of these fields.
fn frozen(validator: &mut Validator, new: StructView, old: StructView, fields: &[&str]) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if !old.is_true("immutable") {
        return;
    }
    if !new.is_true("immutable") {
        validator.forbidden("immutable", DETAIL);
    }
    for field in fields {
        if !is_same(new.get(field), old.get(field)) {
            validator.forbidden(*field, DETAIL);
        }
    }
}

/// Moves the values of the write-only `stringData` to `data`. A moved value replaces the value of an equal key.
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
        let encoded = base64_text::encode(value.as_str().unwrap_or_default().as_bytes());
        (key, Value::String(encoded))
    }));
    // If keys are equal, the last member wins, which comes from `stringData`.
    merged.reverse();
    merged.sort_by(|(a, _), (b, _)| a.cmp(b));
    merged.dedup_by(|(later, _), (kept, _)| later == kept);
    data = merged.into_iter().collect();
    let members = secret.members_mut();
    let at = members.iter().position(|(name, _)| name == "type").unwrap_or(members.len());
    members.insert(at, (Key::Borrowed("data"), Value::Object(data)));
}

pub(super) fn secret(validator: &mut Validator, path: &FieldPath, secret: StructView) {
    let place = path.child("data");
    let data = secret.child("data");
    let mut total = 0;
    for (key, value) in data.members() {
        if validator.has_enough() {
            break;
        }
        validator.refuse(&place.key(key), key, names::config_key(key));
        total += value.as_str().map_or(0, base64_text::decoded_len);
    }
    if total > BYTES_MAX {
        validator.errors.push(FieldError::too_long(place, BYTES_MAX));
    }
    let require = |validator: &mut Validator, keys: &[&str]| {
        for key in keys.iter().filter(|key| !data.has(key)) {
            validator.required(place.key(key), "");
        }
    };
    let kind = secret.text("type").strip_prefix(validator.naming.domain);
    match kind.and_then(|kind| kind.strip_prefix('/')) {
        Some("service-account-token") => {
            let name = validator.naming.label("service-account.name");
            if secret.child("metadata").child("annotations").text(&name).is_empty() {
                validator.required(format!("metadata.annotations[{name}]"), "");
            }
        }
        Some("dockercfg") => docker_config(validator, &place, data, ".dockercfg"),
        Some("dockerconfigjson") => docker_config(validator, &place, data, ".dockerconfigjson"),
        Some("basic-auth") if !data.has("username") && !data.has("password") => {
            require(validator, &["username", "password"]);
        }
        Some("ssh-auth") if data.text("ssh-privatekey").is_empty() => {
            validator.required(place.key("ssh-privatekey"), "");
        }
        Some("tls") => require(validator, &["tls.crt", "tls.key"]),
        _ => {}
    }
}

/// Checks that the Docker configuration is a JSON object. The errors do not contain the text of the
/// configuration.
fn docker_config(validator: &mut Validator, path: &FieldPath, data: StructView, key: &str) {
    let place = path.key(key);
    let Some(text) = data.get(key) else { return validator.required(place, "") };
    let content = base64_text::decode(text.as_str().unwrap_or_default()).unwrap_or_default();
    let detail = json::syntax_error(&content).or_else(|| match go::json::kind(&content)? {
        "object" | "null" => None,
        found => Some(go::json::unfit(found, go::json::MAP)),
    });
    if let Some(detail) = detail {
        validator.invalid(place, "<secret contents redacted>", detail);
    }
}

pub(super) fn secret_update(validator: &mut Validator, new: StructView, old: StructView) {
    frozen(validator, new, old, &["data"]);
}
