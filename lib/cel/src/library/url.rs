//! URLs: `url('https://example.com/')` and their components.

use crate::cost::rules;
use crate::error::EvalError;
use crate::library::opaque::{self, opaque_type};
use crate::library::{Call, Function, Implementation, Library, Overload, Version};
use crate::types::Type;
use crate::value::{OwnedMap, Value};

pub use go::url::Url;

/// Returns the type `kubernetes.URL`.
pub fn url_type() -> Type {
    Type::object("kubernetes.URL")
}

opaque_type!(Url, url_type);

/// Returns the declarations of the library.
pub fn library() -> Library {
    let member = |name, id, result, implementation: Implementation| {
        let overload = Overload::member(id, [url_type()], result).computed_by(implementation);
        Function::new(name, [overload.costing(rules::nominal, rules::nominal_actual)])
    };
    let url = Overload::function("string_to_url", [Type::String], url_type()).computed_by(read);
    let is_url = Overload::function("is_url", [Type::String], Type::Bool).computed_by(is_url);
    let query = Type::map(Type::String, Type::list(Type::String));
    Library {
        functions: vec![
            Function::new("url", [url.costing(rules::reads_text_into_as_much, rules::reads_text_actual)]),
            Function::new("isURL", [is_url]),
            member("getScheme", "url_get_scheme", Type::String, scheme),
            member("getHost", "url_get_host", Type::String, host),
            member("getHostname", "url_get_hostname", Type::String, hostname),
            member("getPort", "url_get_port", Type::String, port),
            member("getEscapedPath", "url_get_escaped_path", Type::String, escaped_path),
            member("getQuery", "url_get_query", query, get_query),
        ],
        types: vec![(url_type(), Version::FIRST)],
    }
}

fn read<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let [Value::String(text)] = call.args else { return Err(EvalError::no_such_overload()) };
    // The text must also be a valid request URI.
    let url = Url::parse_request(text).and_then(|_| Url::parse(text));
    url.map(opaque::value)
        .map_err(|error| EvalError::new(format!("URL parse error during conversion from string: {error}")))
}

fn is_url<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let [Value::String(text)] = call.args else { return Err(EvalError::no_such_overload()) };
    Ok(Value::Bool(Url::parse_request(text).is_ok()))
}

fn receiver<'c>(call: &'c Call<'_, '_>) -> Result<&'c Url, EvalError> {
    opaque::expect(call.args.first().unwrap_or(&Value::Null))
}

fn scheme<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(Value::string(receiver(call)?.scheme()))
}

fn host<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(Value::string(receiver(call)?.host()))
}

fn hostname<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(Value::string(receiver(call)?.hostname()))
}

fn port<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(Value::string(receiver(call)?.port()))
}

fn escaped_path<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(Value::string(receiver(call)?.escaped_path()))
}

fn get_query<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let mut map = OwnedMap::default();
    for (key, values) in receiver(call)?.query() {
        let values: Vec<_> = values.into_iter().map(Value::string).collect();
        map.insert(Value::string(key), Value::list(values));
    }
    Ok(Value::map(map))
}
