//! Admission of requests that do not store the object in their body: reviews, commands on another object (a
//! binding, an eviction, a token request), and connects.

use super::Call;
use super::write::intent;
use crate::writes::plugin::{AdmissionRecord, Options, Review, Target};
use crate::writes::write::Caller;
use objects::strategy::Endpoint;
use types::schema::table::Kind;
use values::field::go_quote;
use values::json::{Object, Value};
use values::object::{meta, set_meta};
use values::status::Status;

/// Runs both admission phases for an object that is a review or a command.
///
/// # Errors
/// A plugin refused the request.
pub async fn command(call: &mut Call<'_>, options: Options<'_>, object: &mut Object) -> Result<(), Status> {
    mutate(call, options, object).await?;
    validate(call, options, object).await
}

/// Runs both admission phases for a connection. Returns the options of the connection, which plugins may have
/// changed.
///
/// # Errors
/// A plugin refused the request, or parameters are invalid (400).
pub async fn connect(call: &mut Call<'_>) -> Result<Object, Status> {
    let mut options = connection(call)?;
    mutate(call, Options::None, &mut options).await?;
    validate(call, Options::None, &options).await?;
    Ok(options)
}

/// Runs the mutating phase for the deletion of an object that cannot be read.
///
/// # Errors
/// A plugin refused the request.
pub async fn deletion(call: &mut Call<'_>, options: Options<'_>) -> Result<(), Status> {
    let intent = intent(call, Endpoint::Main, options, "");
    let plugins = intent.server().admission.about(&intent.target());
    let (review, outcome) = plugins.mutate(intent.record(None, None)).await;
    call.take_review(review);
    outcome
}

/// Runs the mutating phase for a command, which is in the namespace of the request.
///
/// # Errors
/// A plugin refused the request.
pub async fn mutate(call: &mut Call<'_>, options: Options<'_>, object: &mut Object) -> Result<(), Status> {
    let is_command = !matches!(options, Options::None);
    if is_command && call.resource.namespaced() && meta(object, "namespace").is_empty() {
        set_meta(object, "namespace", Some(call.info.namespace.as_str().into()));
    }
    let subresource = &*call.info.subresource;
    let intent = intent(call, Endpoint::Main, options, "");
    let plugins = intent.server().admission.about(&Target { subresource, ..intent.target() });
    let record = AdmissionRecord { subresource, ..intent.record(None, Some(object)) };
    let (review, outcome) = plugins.mutate(record).await;
    keep(call, review, outcome)
}

/// Runs the validating phase for a command.
///
/// # Errors
/// A plugin refused the request.
pub async fn validate(call: &mut Call<'_>, options: Options<'_>, object: &Object) -> Result<(), Status> {
    let subresource = &*call.info.subresource;
    let intent = intent(call, Endpoint::Main, options, "");
    let plugins = intent.server().admission.about(&Target { subresource, ..intent.target() });
    let record = AdmissionRecord { subresource, ..intent.record(None, Some(object)) };
    let (review, outcome) = plugins.validate(record).await;
    keep(call, review, outcome)
}

/// Adds the warnings and annotations of the plugins to the call. If no plugin refused the request, the amounts
/// that plugins charged (such as quota) stay charged, because the operation can no longer fail.
fn keep(call: &mut Call<'_>, mut review: Review, outcome: Result<(), Status>) -> Result<(), Status> {
    let charges = std::mem::take(&mut review.charges);
    if outcome.is_ok() {
        charges.into_iter().for_each(|charge| charge.keep(None));
    }
    call.take_review(review);
    outcome
}

/// Returns the parameters of a connection as an object of the kind that describes them, such as PodExecOptions.
fn connection(call: &Call<'_>) -> Result<Object, Status> {
    let mut object = Object::new();
    let Some(subresource) = call.resource.subresource(&call.info.subresource) else { return Ok(object) };
    let table = &subresource.table;
    object.push("kind", table.kind.clone().into());
    object.push("apiVersion", call.resource.api_version.as_str().into());
    for field in table.message.fields.iter() {
        let given = |name: &str| call.request.query.first(name).filter(|text| !text.is_empty());
        let value = match (&field.kind, &*field.name) {
            (Kind::String, "path") => {
                let path = path(&call.info.subpath, &call.info.path);
                (!path.is_empty()).then(|| path.into())
            }
            (Kind::Bool, name) => call.request.query.flag(name).then_some(true.into()),
            (Kind::String, name) => given(name).map(Value::from),
            (Kind::List(list), name) => {
                let is_number = matches!(list.item.kind, Kind::Int32);
                let item = |text: &str| if is_number { number(text) } else { Ok(text.into()) };
                let items: Vec<Value> =
                    call.request.query.all(name).map(item).collect::<Result<_, Status>>()?;
                (!items.is_empty()).then_some(Value::Array(items))
            }
            _ => None,
        };
        if let Some(value) = value {
            object.push(field.name.clone(), value);
        }
    }
    Ok(object)
}

/// Returns the path after the subresource. A slash at the end of the request path is kept.
fn path(subpath: &[String], path: &str) -> String {
    let mut own: String = subpath.iter().flat_map(|part| ["/", part]).collect();
    if path.ends_with('/') && !own.ends_with('/') {
        own.push('/');
    }
    own
}

/// Parses a number. The message of the 400 for an invalid number is that of Go's `strconv` package.
fn number(text: &str) -> Result<Value, Status> {
    let number = text.parse::<i64>();
    let refused = || format!("strconv.Atoi: parsing {}: invalid syntax", go_quote(text));
    number.map(Value::Int).map_err(|_| Status::bad_request(refused()))
}
