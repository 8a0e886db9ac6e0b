//! What each verb means: from a permitted request to a response, over the store.
//!
//! ```text
//! pipeline ──► Call ──► read · list · watch        (stored bytes out)
//!                  └──► write · patch · delete     (what a request means; then the write path, crate::writes::write)
//! ```
//!
//! A [`Call`] exists only for a request that was authenticated and allowed. The verbs know no connection and no
//! authentication; errors are `Status` values.

mod admit;
mod ahead;
pub mod apply;
mod connect;
pub mod continue_token;
pub mod delete;
mod eviction;
mod filling;
mod force_delete;
pub mod list;
mod log;
pub mod patch;
pub mod read;
mod review_selectors;
pub mod reviews;
pub mod scale;
mod schedule;
mod selected;
pub mod subresource;
pub mod token;
pub mod watch;
pub mod write;

use std::net::IpAddr;
use std::sync::Arc;

use auth::{Authorized, User};
use http::HeaderMap;
use http::request::Parts as Head;

use crate::state::audit::Trail;
use crate::writes::admission::Review;
use crate::writes::context::Context;
use crate::writes::write::Caller;
use objects::conversion::Conversions;
use objects::negotiate::Output;
use objects::representation::{Renderer, Wanted};
use objects::request::{RequestInfo, Verb};
use objects::store::{Reach, Store, Stored};
use objects::strategy::Endpoint;
use objects::validation;
use types::attributes::Selection;
use types::schema::defaults;
use types::schema::registry::Resource;
use types::schema::table::Message;
use types::served::Served;
use values::json::{self, Object, Value};
use values::memory::Account;
use values::query::{FieldValidation, Query};
use values::status::{Status, Subject};
use values::yaml;
use wire::server::Incoming;
use wire::server::upgrade::Switch;
use wire::server::websocket::Upgrade;

/// A request as it came, for what passes it on.
pub struct Wire<'r> {
    /// Method, URL and headers.
    pub head: &'r Head,
    /// The body, not yet read.
    pub incoming: Incoming,
    /// The connection, where the client asks to leave HTTP on it.
    pub switch: Option<Switch>,
    /// Address of the client.
    pub peer: IpAddr,
}

/// One permitted request about a resource.
pub struct Call<'r> {
    /// The server.
    pub api: &'r Context,
    /// The types that were served when the request began.
    pub types: &'r Arc<Served>,
    /// The proof of permission; opens the store.
    pub proof: &'r Authorized<'r>,
    /// What the permission is for, where that is another resource that stands for this one.
    pub derived_from: Option<Reach<'r>>,
    /// What is asked for.
    pub info: &'r RequestInfo,
    /// The resource asked for.
    pub resource: &'r Arc<Resource>,
    /// Query parameters.
    pub query: &'r Query,
    /// Request headers.
    pub headers: &'r HeaderMap,
    /// Who asks.
    pub user: &'r User,
    /// How to answer.
    pub output: Output,
    /// The connection, where the client asks to speak WebSocket on it.
    pub upgrade: Option<Upgrade>,
    /// The request itself, where it is for a connection through the server.
    pub wire: Option<Wire<'r>>,
    /// Texts for `Warning` headers, in order.
    pub warnings: Vec<String>,
    /// Conversions by webhooks that the managers of fields need.
    pub conversions: &'r Conversions,
    /// The audit trail of the request, if it has one.
    pub trail: Option<&'r Trail>,
    /// Where memory for the answer is charged.
    pub account: Account,
}

impl<'r> Call<'r> {
    /// The store, opened by this request's permission.
    pub fn store(&self) -> Store<'r> {
        match self.derived_from {
            None => self.api.open(self.proof, self.reach()),
            Some(asked) => self.api.open_derived(self.proof, (asked, self.reach())),
        }
    }

    /// Whether this is a write whose look at the store is its round on the write path alone: it begins with the store as it is,
    /// also where that may lack what other servers have acknowledged (docs/api/etcd.md#consistency).
    pub fn writes_from_copy(&self) -> bool {
        let of_parent = Endpoint::of_parent(&self.info.subresource);
        match self.info.verb {
            Verb::Create => of_parent == Some(Endpoint::Main),
            Verb::Update | Verb::Patch => of_parent.is_some(),
            // Of a namespace it is looked at first which one is meant.
            Verb::Delete => {
                of_parent == Some(Endpoint::Main) && !self.resource.table.behavior.spec_finalizers
            }
            _ => false,
        }
    }

    /// What this request may reach.
    pub fn reach(&self) -> Reach<'r> {
        let (info, resource) = (self.info, &**self.resource);
        // A new object is named by the body.
        let makes_new = info.verb == Verb::Create && info.subresource.is_empty();
        let name = if makes_new { "" } else { &info.name };
        Reach { verb: info.verb, resource, namespace: info.namespace_of(resource), name }
    }

    /// The newest state of one object, in the form of the resource that is asked for.
    ///
    /// # Errors
    /// 500 for one that cannot be read or converted.
    pub async fn stored(&self, key: &[u8]) -> Result<Option<Stored>, Status> {
        let Some(Stored { entry, record }) = self.store().get(key)? else { return Ok(None) };
        let record = self.api.converter().brought(self.resource, record).await?;
        Ok(Some(Stored { entry, record }))
    }

    /// The renderer of the answer.
    ///
    /// # Errors
    /// 400 for a parameter of tables that means nothing.
    pub fn renderer(&self) -> Result<Renderer, Status> {
        Renderer::new(Wanted {
            resource: self.resource,
            naming: self.api.naming(),
            output: self.output,
            query: self.query,
            metrics: self.api.metrics(),
            lengths: self.api.backends().of(self.resource).lengths(),
            account: &self.account,
        })
    }

    /// The object or collection asked for, as errors name it: by plural resource.
    pub fn subject<'s>(&'s self, name: &'s str) -> Subject<'s> {
        Subject { group: &self.resource.group, kind: &self.resource.table.plural, name }
    }

    /// The same by Kind, as 422 errors name it.
    pub fn subject_by_kind<'s>(&'s self, name: &'s str) -> Subject<'s> {
        Subject { group: &self.resource.group, kind: &self.resource.table.kind, name }
    }

    /// The selectors of the query (docs/api/selectors.md).
    pub fn selection(&self) -> Result<Selection, Status> {
        let text = |name| self.query.first(name).unwrap_or_default();
        let stored = self.resource.storage.as_ref().map_or(&self.resource.table, |storage| &storage.table);
        let parse =
            |fields: &str| Selection::parse(text("labelSelector"), fields, &self.resource.table, stored);
        let selection = parse(text("fieldSelector"))?;
        if !(self.info.legacy_watch && self.info.name_in_path) {
            return Ok(selection);
        }
        // The legacy form names one object in the path; a selector may only agree with it.
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

    /// Records the object that the request carries, in the served version, where that is wanted.
    pub fn record_request(&self, object: &Object, body: &[u8]) {
        let Some(trail) = self.trail else { return };
        trail.refer_to(object);
        if trail.wants_request() {
            let mut object = object.clone();
            defaults::apply(&self.resource.table.message, &mut object, self.api.naming());
            // As upstream sees it, so that nothing of a secret is recorded that the policy would not look for.
            validation::prepare(&self.resource.table, &mut object);
            let mut object = Value::from(object);
            if let Ok(given) = yaml::parse(body) {
                keep_empty(&mut object, &given.value);
            }
            trail.request(object);
        }
    }

    /// Records a patch as it was sent. An event is JSON, and has no place for another encoding.
    pub fn record_patch(&self, body: &[u8]) {
        let Some(trail) = self.trail.filter(|trail| trail.wants_request()) else { return };
        match json::parse(body) {
            Ok(patch) => trail.request(patch),
            Err(_) => trail.lacks_patch(),
        }
    }

    /// Records the object of a command, which is of a type of its own.
    pub fn record_command(&self, message: &Message, object: &Object) {
        let Some(trail) = self.trail else { return };
        trail.refer_to(object);
        if !trail.wants_request() {
            return;
        }
        let mut object = object.clone();
        defaults::apply(message, &mut object, self.api.naming());
        trail.request(object.into());
    }

    /// Records the options that are the body of a request. They have no version of a group.
    pub fn record_options(&self, kind: &str, options: Value) {
        let Some(trail) = self.trail.filter(|trail| trail.wants_request()) else { return };
        let Value::Object(mut members) = options else { return };
        members.retain(|name, _| !matches!(name, "kind" | "apiVersion"));
        let mut object = Object::with_capacity(members.len() + 2);
        object.push("kind", kind.into());
        object.push("apiVersion", format!("{}/__internal", self.api.naming().meta_group()).into());
        for (name, value) in members.into_members() {
            object.push(name, value);
        }
        trail.request(object.into());
    }

    /// Handles what strict decoding found: nothing, warnings, or the error that `refuse` words.
    pub fn judge_strict(
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

/// A request hears warnings, and creates by a permission of its own.
impl Caller for Call<'_> {
    fn warnings(&mut self) -> Option<&mut Vec<String>> {
        Some(&mut self.warnings)
    }

    async fn confirm_create(&self) -> Result<(), Status> {
        self.api.authorize_create(self.proof).await
    }

    fn take_review(&mut self, review: Review) {
        if let Some(trail) = self.trail {
            let of_request = review.request_annotations.into_iter().filter(|_| trail.wants_request());
            let annotations = review.annotations.into_iter().chain(of_request);
            annotations.for_each(|(key, value)| trail.annotate(key, value));
        }
        self.warnings.extend(review.warnings);
    }
}
/// Lists and maps that were given without elements, where decoding leaves nothing.
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
