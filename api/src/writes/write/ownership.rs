//! Ownership of fields: the field manager of a request, and the fields that the manager owns in the written
//! object.
//!
//! Ownership is computed on the object that the client sent, before the server completes the object. Fields
//! that a strategy, an allocator or a storage default adds have no owner. [`objects::apply`] describes how
//! field sets are stored.

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

/// Returns the field manager of a request: the query parameter `fieldManager` or, if it is missing, the first
/// word of the user agent.
pub fn manager<'q>(query: &'q Query, headers: &HeaderMap) -> Cow<'q, str> {
    match query.first("fieldManager") {
        Some(manager) if !manager.is_empty() => manager.into(),
        _ => {
            let agent = headers.get(USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()));
            first_word(&agent.unwrap_or_default()).into()
        }
    }
}

/// Returns the text of a user agent before the first `/`, without unprintable characters, and cut to the
/// maximum length of a manager's name.
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

/// The properties of a write that are needed to compute ownership.
pub struct Tracking<'a> {
    /// All types that are served.
    pub registry: &'a Registry,
    /// The written resource, in the version of the request.
    pub resource: &'a Resource,
    /// The endpoint that is written.
    pub endpoint: Endpoint,
    /// The field manager of the writer.
    pub manager: &'a str,
    /// Known conversions by webhooks.
    pub conversions: &'a Conversions,
}

impl Tracking<'_> {
    /// Makes the writer the owner of all fields of a new object. The object is in the version of the request.
    pub fn create(&self, object: &mut Object) {
        let now = clock::now();
        created(&self.versions(), &self.writer(&now), &self.reset(), object);
    }

    /// Makes the writer the owner of the fields that differ between `old` and `new`. Both objects are in the
    /// stored version.
    ///
    /// # Errors
    /// Fails if one of the objects cannot be converted.
    pub fn update(&self, old: &Object, new: &mut Object) -> Result<(), Status> {
        let now = clock::now();
        let (versions, reset) = (self.versions(), self.reset());
        if self.resource.is_stored_form() {
            updated(&versions, &self.writer(&now), &reset, old, new);
            return Ok(());
        }
        let naming: &Naming = self.registry.naming();
        let live = convert::to_served(self.resource, old.clone(), naming)?;
        let mut new_served = convert::to_served(self.resource, new.clone(), naming)?;
        updated(&versions, &self.writer(&now), &reset, &live, &mut new_served);
        let value = take_managed_fields(&mut new_served);
        take_managed_fields(new);
        put_managed_fields(new, Some(value).filter(|value| !value.is_null()));
        Ok(())
    }

    fn versions(&self) -> Versions<'_> {
        Versions::for_resource(self.registry, self.resource).with(self.conversions)
    }

    fn writer<'w>(&'w self, now: &'w str) -> Writer<'w> {
        Writer { manager: self.manager, subresource: self.endpoint.subresource(), now }
    }

    fn reset(&self) -> Reset {
        Reset::for_endpoint(self.resource, self.endpoint)
    }
}

/// Restores the old managed fields if only times in managed fields differ, so that the write is a no-op.
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
    fn the_default_field_manager_is_the_first_word_of_the_user_agent() {
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
