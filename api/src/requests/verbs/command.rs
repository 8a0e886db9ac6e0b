//! Commands on an object: subresources with a type of their own, such as a binding or an eviction, and the
//! response to a command or a deletion that returns no object.

use http::StatusCode;

use super::Call;
use objects::body::Expected;
use types::schema::decoded::Decoded;
use types::schema::table::SubresourceTable;
use values::json::{Object, Value};
use values::query::WriteOptions;
use values::status::{Details, Status};

/// Decodes the body of a subresource that has its own type.
pub fn decode_own(
    call: &mut Call<'_>,
    table: &SubresourceTable,
    body: &[u8],
    options: &WriteOptions,
    older: &[&str],
) -> Result<Object, Status> {
    let input = call.server().types.formats.input(call.request.headers())?;
    // The first naming profile is the server's own, so errors contain the names of this profile.
    let mut decoded: Option<Result<Decoded, Status>> = None;
    for words in call.server().types.naming.understood() {
        let api_version = words.api_version(&table.group, table.group_suffixed, &table.version);
        let expected = Expected {
            kind: &table.kind,
            api_version: &api_version,
            message: &table.message,
            older,
            known: None,
            is_strict: true,
        };
        let here = expected.decode(input, call.request.types().registry(), body);
        if here.is_ok() || decoded.is_none() {
            decoded = Some(here);
        }
        if matches!(decoded, Some(Ok(_))) {
            break;
        }
    }
    let decoded = decoded.unwrap_or_else(|| Err(Status::internal("a server has names of its own")))?;
    let (kind, version) = (&*table.kind, &*table.version);
    call.handle_strict_findings(decoded.strict, options.field_validation, |errors| {
        Status::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: {errors}"
        ))
    })?;
    call.record_command(&table.message, &decoded.object);
    Ok(decoded.object)
}

/// Returns a Status object that reports success. The Status has a code for bindings and evictions, but no code
/// for deletions.
pub fn success(details: &Details, code: Option<StatusCode>) -> Object {
    let mut status = Object::new();
    status.push("kind", "Status".into());
    status.push("apiVersion", "v1".into());
    status.push("metadata", Object::new().into());
    status.push("status", "Success".into());
    if *details != Details::default() {
        status.push("details", details.to_value());
    }
    if let Some(code) = code {
        status.push("code", Value::Int(code.as_u16().into()));
    }
    status
}

/// Sets a condition in the status of an object. If the object has a condition of this type, the new condition
/// replaces it at the same position, and keeps the transition time if the status of the condition is unchanged.
pub fn put_condition(status: &mut Object, mut condition: Object) {
    let list = status.entry("conditions");
    if !matches!(list, Value::Array(_)) {
        *list = Value::Array(Vec::new());
    }
    let Some(conditions) = list.as_array_mut() else { return };
    let same = |name: &str, other: &Value| condition.get(name) == other.get(name);
    match conditions.iter_mut().find(|other| same("type", other)) {
        Some(slot) => {
            if same("status", slot)
                && let Some(since) = slot.get("lastTransitionTime").cloned()
            {
                condition.insert("lastTransitionTime", since);
            }
            *slot = condition.into();
        }
        None => conditions.push(condition.into()),
    }
}
