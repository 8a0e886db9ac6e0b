//! `/token` of service accounts: a signed token for the account, optionally bound to a pod, a secret or a
//! node (docs/api/authentication.md#token-requests).
//!
//! The server signs the claims of a token and stores nothing. When a client uses the token, the server looks up
//! the objects on which the token depends.

use std::time::{Duration, SystemTime};

use auth::authn::service_account::{Reference, TokenSpec};
use http::StatusCode;

use super::command::decode_own;
use super::write::scope_to_request;
use super::{Call, admit};
use crate::writes::plugin::Options;
use objects::representation::Renderer;
use objects::store::{self, Component};
use types::schema::table::SubresourceTable;
use values::clock;
use values::field::FieldError;
use values::json::{Object, Value};
use values::object::{at, meta, set_meta};
use values::query::WriteOptions;
use values::status::{Status, Subject};
use wire::response::Response;

/// Lifetime of a token in seconds, if the request does not state one.
const LIFETIME_DEFAULT: i64 = 60 * 60;

/// Minimum and maximum lifetime in seconds that can be requested.
const LIFETIME: (i64, i64) = (10 * 60, 1 << 32);

/// Lifetime in seconds that requests for the token volumes of pods contain. Older programs in pods do not renew
/// these tokens. Therefore the server makes such tokens valid for a year, or as long as the signer allows, and
/// reports uses after the requested lifetime.
const EXTENDED: i64 = 60 * 60 + 7;

/// Issues a token for a service account.
pub async fn request(call: &mut Call<'_>, table: &SubresourceTable, body: &[u8]) -> Result<Response, Status> {
    let naming = call.server().types.naming;
    let options = WriteOptions::from_query(&call.request.query, "CreateOptions", &naming.meta_group())?;
    let mut request = decode_own(call, table, body, &options, &[])?;
    types::schema::defaults::apply(&table.message, &mut request, naming);
    admit::mutate(call, Options::Create(&options), &mut request).await?;
    let tokens = &call.server().access.tokens;
    let (name, namespace) = (call.info.name.clone(), call.info.namespace.clone());
    let group = naming.group(&table.group, table.group_suffixed);
    let invalid = |name: &str, errors: &[FieldError]| {
        Err(Status::invalid(Subject { group: &group, kind: &table.kind, name }, errors))
    };
    scope_to_request(call, &mut request)?;
    let given = meta(&request, "name");
    if !given.is_empty() && given != name {
        let why = "must match the service account name if specified";
        return invalid(&name, &[FieldError::invalid("metadata.name", &given.into(), why)]);
    }
    let Some(account) = call.store().get(&store::key(call.resource, &namespace, &name))? else {
        return Err(Status::not_found(call.subject(&name)));
    };
    let account = account.object(call.resource)?;
    let account = Reference { name: name.clone(), uid: meta(&account, "uid").to_owned() };

    let now = clock::now_seconds();
    set_meta(&mut request, "name", Some(name.as_str().into()));
    set_meta(&mut request, "namespace", Some(namespace.as_str().into()));
    set_meta(&mut request, "creationTimestamp", Some(clock::format_seconds(now).into()));
    set_meta(&mut request, "uid", Some(account.uid.as_str().into()));
    let mut audiences = texts(at(&request, "spec.audiences"));
    if audiences.is_empty() {
        audiences.clone_from(&tokens.audiences);
        request.object_entry("spec").insert("audiences", audiences.as_slice().into());
    }
    let requested = at(&request, "spec.expirationSeconds").and_then(Value::as_i64);
    let mut seconds = requested.unwrap_or(LIFETIME_DEFAULT);
    let refused = match seconds {
        short if short < LIFETIME.0 => Some("may not specify a duration less than 10 minutes"),
        long if long > LIFETIME.1 => Some("may not specify a duration larger than 2^32 seconds"),
        _ => None,
    };
    if let Some(why) = refused {
        return invalid("", &[FieldError::invalid("spec.expirationSeconds", &Value::Int(seconds), why)]);
    }
    request.insert("status", no_token());
    admit::validate(call, Options::Create(&options), &request).await?;
    let bound = Bound::find(call, &request, &namespace, &name)?;
    let max = tokens.lifetime_max.and_then(|max| i64::try_from(max.as_secs()).ok());
    if let Some(max) = max.filter(|max| seconds > *max) {
        call.warnings.push(format!("requested expiration of {seconds} seconds shortened to {max} seconds"));
        seconds = max;
    }
    let for_this_server = audiences.iter().all(|audience| tokens.audiences.contains(audience));
    let extended = tokens.extends && bound.pod.is_some() && seconds == EXTENDED && for_this_server;
    let lifetime = Duration::from_secs(seconds.unsigned_abs());
    let spec = TokenSpec {
        namespace,
        account,
        audiences: audiences.clone(),
        issued: SystemTime::UNIX_EPOCH + Duration::from_secs(now.unsigned_abs()),
        lifetime: if extended { tokens.extended_lifetime } else { lifetime },
        warn_after: extended.then_some(lifetime),
        pod: bound.pod,
        secret: bound.secret,
        node: bound.node,
    };
    let issued = tokens.issue(&spec).await?;
    if let Some(trail) = call.request.trail() {
        let key = format!("authentication.{}/issued-credential-id", naming.domain);
        trail.annotate(key, format!("JTI={}", issued.id));
    }

    request.object_entry("spec").insert("expirationSeconds", Value::Int(seconds));
    let mut status = Object::new();
    status.push("token", issued.token.into());
    status.push("expirationTimestamp", clock::format_seconds(now + seconds).into());
    request.insert("status", status.into());
    Renderer::respond_foreign(&call.output, StatusCode::CREATED, &table.message, &request)
}

/// Returns the status of a request for which no token was issued yet.
fn no_token() -> Value {
    let mut status = Object::new();
    status.push("token", "".into());
    status.push("expirationTimestamp", Value::Null);
    status.into()
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The objects that a token is bound to.
#[derive(Default)]
struct Bound {
    pod: Option<Reference>,
    secret: Option<Reference>,
    node: Option<Reference>,
}

impl Bound {
    /// Looks up the object to which the request binds the token.
    fn find(call: &Call<'_>, request: &Object, namespace: &str, account: &str) -> Result<Bound, Status> {
        let Some(reference) = at(request, "spec.boundObjectRef").filter(|reference| !reference.is_null())
        else {
            return Ok(Bound::default());
        };
        let text = |name: &str| reference.str_at(&[name]);
        let (api_version, kind, name, uid) = (text("apiVersion"), text("kind"), text("name"), text("uid"));
        let (group, version) = match api_version.split_once('/') {
            None => ("", api_version),
            // A malformed apiVersion counts as an empty apiVersion.
            Some((_, version)) if version.contains('/') => ("", ""),
            Some(both) => both,
        };
        let resource = match (group, kind) {
            ("", "Pod") => "pods",
            ("", "Secret") => "secrets",
            ("", "Node") => "nodes",
            _ => {
                let what = format!("{group}/{version}, Kind={kind}");
                return Err(Status::bad_request(format!("cannot bind token to object of type {what}")));
            }
        };
        store::check_key_name(name)?;
        let get = |plural: &str, name: &str| {
            let resource = call
                .request
                .types()
                .registry()
                .resource("", "v1", plural)
                .ok_or_else(Status::no_such_route)?;
            let namespace = if resource.namespaced() { namespace } else { "" };
            let bound = call.server().store.open_for(Component::TokenBinding);
            let stored = bound.get(&store::key(resource, namespace, name))?;
            stored.map(|stored| stored.object(resource)).transpose()
        };
        let Some(object) = get(resource, name)? else {
            return Err(Status::not_found(Subject { group: "", kind: resource, name }));
        };
        let mut bound = Bound::default();
        let found = Reference { name: name.to_owned(), uid: meta(&object, "uid").to_owned() };
        let of_other_life = !uid.is_empty() && uid != found.uid;
        match resource {
            "pods" => {
                let runs_as =
                    at(&object, "spec.serviceAccountName").and_then(Value::as_str).unwrap_or_default();
                if runs_as != account {
                    return Err(Status::bad_request(format!(
                        "cannot bind token for serviceaccount \"{account}\" to pod running with different serviceaccount \
                         name."
                    )));
                }
                let node = at(&object, "spec.nodeName").and_then(Value::as_str).unwrap_or_default();
                if !node.is_empty() {
                    let uid = get("nodes", node)?.map(|node| meta(&node, "uid").to_owned());
                    bound.node = Some(Reference { name: node.to_owned(), uid: uid.unwrap_or_default() });
                }
                bound.pod = Some(found);
            }
            "secrets" => bound.secret = Some(found),
            _ => bound.node = Some(found),
        }
        if of_other_life {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
                 been deleted and then recreated"
            );
            return Err(Status::conflict(Subject { group, kind, name }, &why));
        }
        Ok(bound)
    }
}
