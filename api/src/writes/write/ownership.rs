//! Ownership of fields: the manager of a request, and what it owns of what it writes.
//!
//! Ownership is computed on the object as the request means it, before the system completes it: what a strategy, an
//! allocator or a default of storage adds belongs to no manager. How field sets are kept is in [`objects::apply`].

use std::borrow::Cow;

use http::HeaderMap;
use http::header::USER_AGENT;

use objects::apply::{
    Reset, Versions, Writer, created, is_same_but_for_times, put_managed_fields, take_managed_fields, updated,
};
use objects::conversion::Conversions;
use objects::strategy::Endpoint;
use types::convert;
use types::schema::registry::{Registry, Resource};
use values::clock;
use values::json::Object;
use values::naming::Naming;
use values::object::{at, same_but_for_managed_fields};
use values::query::{FIELD_MANAGER_MAX, Query};
use values::status::Status;

/// The manager of a request: its `fieldManager`, else the first word of its user agent.
pub fn manager<'q>(query: &'q Query, headers: &HeaderMap) -> Cow<'q, str> {
    match query.first("fieldManager") {
        Some(manager) if !manager.is_empty() => manager.into(),
        _ => {
            let agent = headers.get(USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()));
            first_word(&agent.unwrap_or_default()).into()
        }
    }
}

/// What stands before the first `/` of a user agent, without what cannot be printed, and no longer than a manager's
/// name may be.
fn first_word(agent: &str) -> String {
    let word = agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for c in word.chars().filter(|c| !c.is_control()) {
        if name.len() + c.len_utf8() > FIELD_MANAGER_MAX {
            break;
        }
        name.push(c);
    }
    name
}

/// What ownership has to know of a write, whether a request or the server itself makes it.
pub struct Tracking<'a> {
    /// All that is served.
    pub registry: &'a Registry,
    /// The resource written to, in the version of the request.
    pub resource: &'a Resource,
    /// The way it is written.
    pub endpoint: Endpoint,
    /// Who writes.
    pub manager: &'a str,
    /// What is known of conversions by webhooks.
    pub conversions: &'a Conversions,
}

impl Tracking<'_> {
    /// Gives the fields of a new object, in the version of the request, to the writer.
    pub fn create(&self, object: &mut Object) {
        let now = clock::now();
        created(&self.versions(), &self.writer(&now), &self.reset(), object);
    }

    /// Gives what `new` changes of `old` to the writer; both are in the stored version.
    ///
    /// # Errors
    /// One of them cannot be converted.
    pub fn update(&self, old: &Object, new: &mut Object) -> Result<(), Status> {
        let now = clock::now();
        let (versions, reset) = (self.versions(), self.reset());
        if self.resource.is_stored_form() {
            updated(&versions, &self.writer(&now), &reset, old, new);
            return Ok(());
        }
        let naming: &Naming = self.registry.naming();
        let live = convert::to_served(self.resource, old.clone(), naming)?;
        let mut wanted = convert::to_served(self.resource, new.clone(), naming)?;
        updated(&versions, &self.writer(&now), &reset, &live, &mut wanted);
        let value = take_managed_fields(&mut wanted);
        take_managed_fields(new);
        put_managed_fields(new, Some(value).filter(|value| !value.is_null()));
        Ok(())
    }

    fn versions(&self) -> Versions<'_> {
        Versions::of(self.registry, self.resource).with(self.conversions)
    }

    fn writer<'w>(&'w self, now: &'w str) -> Writer<'w> {
        Writer { manager: self.manager, subresource: self.endpoint.subresource(), now }
    }

    fn reset(&self) -> Reset {
        Reset::of(self.resource, self.endpoint)
    }
}

/// Puts the old times back when nothing but times changed, so that the write is none.
pub fn keep_times_of_no_change(old: &Object, new: &mut Object) {
    let (before, after) = (at(old, "metadata.managedFields"), at(new, "metadata.managedFields"));
    if before != after && is_same_but_for_times(before, after) && same_but_for_managed_fields(old, new) {
        let before = before.cloned();
        take_managed_fields(new);
        put_managed_fields(new, before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_the_first_word_of_the_user_agent() {
        for (agent, want) in [
            ("kubectl/v1.36.0 (linux/amd64) x/y", "kubectl"),
            ("curl", "curl"),
            ("", ""),
            ("/x", ""),
            ("a\u{7}b/1", "ab"),
            ("Mozilla/5.0", "Mozilla"),
        ] {
            assert_eq!(first_word(agent), want, "{agent}");
        }
        assert_eq!(first_word(&"é".repeat(100)).len(), 128);
    }
}
