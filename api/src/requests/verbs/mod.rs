//! The implementation of each verb: from a permitted request to a response, using the store.
//!
//! ```text
//! pipeline ──► Call ──► read · list · watch        (stored bytes out)
//!                  └──► write · patch · delete     (interpret the request; then the write path, crate::writes::write)
//! ```
//!
//! A [`Call`] exists only for a request that was authenticated and allowed. The verbs depend on neither
//! connections nor authentication; errors are `Status` values.

mod admit;
pub mod apply;
mod chunks;
mod command;
mod connect;
pub mod continue_token;
pub mod delete;
mod eviction;
mod force_delete;
pub mod list;
mod log;
mod parallel_render;
pub mod patch;
pub mod read;
mod read_point;
mod review_selectors;
pub mod reviews;
pub mod scale;
mod schedule;
mod selected;
pub mod subresource;
pub mod token;
pub mod watch;
pub mod write;

use std::sync::Arc;

use auth::Authorized;

use crate::requests::request::Request;
use crate::writes::plugin::Review;
use crate::writes::server::Server;
use crate::writes::write::Caller;
use objects::negotiate::Output;
use objects::representation::{Renderer, RendererParameters};
use objects::request::{RequestInfo, Verb};
use objects::store::{Store, StoreScope, Stored};
use objects::strategy::Endpoint;
use objects::validation;
use types::attributes::Selection;
use types::schema::defaults;
use types::schema::registry::Resource;
use types::schema::table::Message;
use values::json::{self, Object, Value};
use values::query::FieldValidation;
use values::status::{Status, Subject};
use values::yaml;
use wire::server::Incoming;
use wire::server::upgrade::Switch;
use wire::server::websocket::Upgrade;

/// The body and the connection of a request, for handlers that forward requests.
pub struct Wire {
    /// The request body, which has not been read yet.
    pub incoming: Incoming,
    /// The connection, if the client asks for an upgrade to another protocol.
    pub switch: Option<Switch>,
}

/// A permitted request for a resource.
pub struct Call<'r> {
    /// The request after the steps of the pipeline.
    pub request: &'r Request<'r>,
    /// Proof of permission, which contains the user and gives access to the store.
    pub proof: &'r Authorized<'r>,
    /// The resource for which the permission was checked, if it differs from `resource`.
    pub derived_from: Option<StoreScope<'r>>,
    /// Verb and target of the request, or of the request that is derived from it.
    pub info: &'r RequestInfo,
    /// The requested resource type.
    pub resource: &'r Arc<Resource>,
    /// Representation of the response.
    pub output: Output,
    /// The connection, if the client asks for an upgrade to WebSocket.
    pub upgrade: Option<Upgrade>,
    /// Body and connection, if the request is for a connection through the server.
    pub wire: Option<Wire>,
    /// Texts for `Warning` headers, in order.
    pub warnings: Vec<String>,
}

impl<'r> Call<'r> {
    /// Returns the context of the server.
    pub fn server(&self) -> &'r Server {
        self.request.server()
    }

    /// Returns the store, opened by the permission of this request.
    pub fn store(&self) -> Store<'r> {
        match self.derived_from {
            None => self.server().store.open(self.proof, self.reach()),
            Some(scope) => self.server().store.open_derived(self.proof, scope, self.reach()),
        }
    }

    /// Returns whether the request is a write that reads the store only on the write path. Such a write starts
    /// from the local state, even if the local state may lack writes that other servers have acknowledged
    /// (docs/api/etcd.md#consistency).
    pub fn writes_from_copy(&self) -> bool {
        let of_parent = Endpoint::of_parent(&self.info.subresource);
        match self.info.verb {
            Verb::Create => of_parent == Some(Endpoint::Main),
            Verb::Update | Verb::Patch => of_parent.is_some(),
            // A deletion of a namespace reads the namespace first.
            Verb::Delete => {
                of_parent == Some(Endpoint::Main) && !self.resource.table.behavior.spec_finalizers
            }
            _ => false,
        }
    }

    /// Returns the keys that this request may access.
    pub fn reach(&self) -> StoreScope<'r> {
        let (info, resource) = (self.info, &**self.resource);
        // The name of a new object is in the body, not in the path.
        let makes_new = info.verb == Verb::Create && info.subresource.is_empty();
        let name = if makes_new { "" } else { &info.name };
        StoreScope { verb: info.verb, resource, namespace: info.namespace_of(resource), name }
    }

    /// Returns the state of one object that the request reads, in the version of the requested resource.
    ///
    /// # Errors
    /// 500 for an object that cannot be read or converted.
    pub async fn stored(&self, key: &[u8]) -> Result<Option<Stored>, Status> {
        let Some(Stored { entry, record }) = self.read(key)? else { return Ok(None) };
        let record = self.server().outgoing.converter.convert_record(self.resource, record).await?;
        Ok(Some(Stored { entry, record }))
    }

    /// Returns the renderer of the response.
    ///
    /// # Errors
    /// 400 for an invalid table parameter.
    pub fn renderer(&self) -> Result<Renderer, Status> {
        Renderer::new(RendererParameters {
            resource: self.resource,
            naming: self.server().types.naming,
            output: self.output,
            query: &self.request.query,
            metrics: &self.server().operations.metrics,
            lengths: self.server().store.backends.backend_for(self.resource).lengths(),
            account: &self.request.account,
            time: self.request.past.map(|past| past.time),
        })
    }

    /// Returns the subject of an error message about an object or a collection. Most error messages contain the plural
    /// name of the resource.
    pub fn subject<'s>(&'s self, name: &'s str) -> Subject<'s> {
        Subject { group: &self.resource.group, kind: &self.resource.table.plural, name }
    }

    /// Returns the subject of a 422 error message about an object. These messages contain the kind.
    pub fn subject_by_kind<'s>(&'s self, name: &'s str) -> Subject<'s> {
        Subject { group: &self.resource.group, kind: &self.resource.table.kind, name }
    }

    /// Returns the selectors of the query (docs/api/selectors.md).
    pub fn selection(&self) -> Result<Selection, Status> {
        let text = |name| self.request.query.first(name).unwrap_or_default();
        let stored = self.resource.storage.as_ref().map_or(&self.resource.table, |storage| &storage.table);
        let parse =
            |fields: &str| Selection::parse(text("labelSelector"), fields, &self.resource.table, stored);
        let selection = parse(text("fieldSelector"))?;
        if !(self.info.legacy_watch && self.info.name_in_path) {
            return Ok(selection);
        }
        // The legacy watch path contains the name of one object; a field selector must select the same name.
        let name = self.info.name.as_str();
        match selection.field().exact_name() {
            Some(given) if given != name => {
                Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"))
            }
            Some(_) => Ok(selection),
            None => {
                let escaped = name.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
                parse(&format!("{},metadata.name={escaped}", text("fieldSelector")))
            }
        }
    }

    /// Records the object in the request body, in the served version, if the audit policy requires it.
    pub fn record_request(&self, object: &Object, body: &[u8]) {
        let Some(trail) = self.request.trail() else { return };
        trail.refer_to(object);
        if trail.wants_request() {
            let mut object = object.clone();
            defaults::apply(&self.resource.table.message, &mut object, self.server().types.naming);
            // The object is prepared as in Kubernetes, so that the event contains no part of a secret that the policy
            // excludes.
            validation::prepare(&self.resource.table, &mut object);
            let mut object = Value::from(object);
            if let Ok(given) = yaml::parse(body) {
                keep_empty(&mut object, &given.value);
            }
            trail.request(object);
        }
    }

    /// Records a patch as the client sent it, if the patch is JSON. An audit event is JSON and cannot contain
    /// other encodings.
    pub fn record_patch(&self, body: &[u8]) {
        let Some(trail) = self.request.trail().filter(|trail| trail.wants_request()) else { return };
        match json::parse(body) {
            Ok(patch) => trail.request(patch),
            Err(_) => trail.lacks_patch(),
        }
    }

    /// Records the object of a command, which has its own type.
    pub fn record_command(&self, message: &Message, object: &Object) {
        let Some(trail) = self.request.trail() else { return };
        trail.refer_to(object);
        if !trail.wants_request() {
            return;
        }
        let mut object = object.clone();
        defaults::apply(message, &mut object, self.server().types.naming);
        trail.request(object.into());
    }

    /// Records the options in a request body. The audit event gets the internal version of the options.
    pub fn record_options(&self, kind: &str, options: Value) {
        let Some(trail) = self.request.trail().filter(|trail| trail.wants_request()) else { return };
        let Value::Object(mut members) = options else { return };
        members.retain(|name, _| !matches!(name, "kind" | "apiVersion"));
        let mut object = Object::with_capacity(members.len() + 2);
        object.push("kind", kind.into());
        object.push("apiVersion", format!("{}/__internal", self.server().types.naming.meta_group()).into());
        for (name, value) in members.into_members() {
            object.push(name, value);
        }
        trail.request(object.into());
    }

    /// Handles the findings of strict decoding: ignores them, adds warnings, or returns the error of
    /// `refuse`.
    pub fn handle_strict_findings(
        &mut self,
        found: Vec<String>,
        validation: FieldValidation,
        refuse: impl FnOnce(String) -> Status,
    ) -> Result<(), Status> {
        match validation {
            _ if found.is_empty() => Ok(()),
            FieldValidation::Ignore => Ok(()),
            FieldValidation::Warn => {
                self.warnings.extend(found.iter().flat_map(|found| yaml::warnings(found)).map(str::to_owned));
                Ok(())
            }
            FieldValidation::Strict => Err(refuse(format!("strict decoding error: {}", found.join(", ")))),
        }
    }
}

/// Warnings go to the client, and creation needs a separate permission.
impl Caller for Call<'_> {
    fn warnings(&mut self) -> Option<&mut Vec<String>> {
        Some(&mut self.warnings)
    }

    async fn confirm_create(&self) -> Result<(), Status> {
        self.server().access.authorize_create(self.proof).await
    }

    fn take_review(&mut self, review: Review) {
        if let Some(trail) = self.request.trail() {
            let of_request = review.request_annotations.into_iter().filter(|_| trail.wants_request());
            let annotations = review.annotations.into_iter().chain(of_request);
            annotations.for_each(|(key, value)| trail.annotate(key, value));
        }
        self.warnings.extend(review.warnings);
    }
}
/// Restores the empty lists and maps of the request body, which decoding drops.
fn keep_empty(object: &mut Value, given: &Value) {
    match (object, given) {
        (object @ Value::Null, Value::Array(items)) if items.is_empty() => *object = Value::Array(Vec::new()),
        (object @ Value::Null, Value::Object(members)) if members.is_empty() => {
            *object = Value::Object(Object::new());
        }
        (Value::Object(members), Value::Object(given)) => {
            for (name, given) in given.iter() {
                if let Some(member) = members.get_mut(name) {
                    keep_empty(member, given);
                }
            }
        }
        (Value::Array(items), Value::Array(given)) if items.len() == given.len() => {
            items.iter_mut().zip(given).for_each(|(item, given)| keep_empty(item, given));
        }
        _ => {}
    }
}
