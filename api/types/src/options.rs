//! The typed options of list, watch and delete (docs/api/paths-and-verbs.md#options, docs/api/lists.md#list-options).

use crate::attributes::Selection;
use engine::Revision;
use values::field::FieldError;
use values::json::Value;
use values::query::{Query, check_dry_run, invalid_options};
use values::status::{Reason, Status};

/// How a list treats its resourceVersion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum VersionMatch {
    /// At that version precisely.
    Exact,
    /// At that version or a newer one.
    NotOlderThan,
}

/// Options of list, watch and deletecollection.
#[derive(Debug)]
pub struct ListOptions {
    /// Label and field selectors.
    pub selection: Selection,
    /// Raw resourceVersion; empty when absent.
    pub resource_version: String,
    /// resourceVersionMatch.
    pub version_match: Option<VersionMatch>,
    /// Most items in a chunk; 0 = all.
    pub limit: u64,
    /// Token of the previous chunk; empty when absent.
    pub continue_token: String,
    /// Bookmarks are wanted.
    pub allow_bookmarks: bool,
    /// Synthetic initial events are wanted, or expressly not.
    pub send_initial_events: Option<bool>,
    /// Seconds after which a watch ends; 0 = the server's choice, negative = at once.
    pub timeout_seconds: i64,
}

impl ListOptions {
    /// Reads and checks the options (docs/api/lists.md#list-options); `watch` selects the rules of watches.
    pub fn from_query(
        query: &Query,
        selection: Selection,
        watch: bool,
        meta_group: &str,
    ) -> Result<Self, Status> {
        let limit = query.integer("limit")?.unwrap_or(0);
        let timeout_seconds = query.integer("timeoutSeconds")?.unwrap_or(0);
        let mut options = ListOptions {
            selection,
            resource_version: query.first("resourceVersion").unwrap_or_default().to_owned(),
            version_match: None,
            limit: u64::try_from(limit).unwrap_or(0),
            continue_token: query.first("continue").unwrap_or_default().to_owned(),
            allow_bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: query.optional_flag("sendInitialEvents"),
            timeout_seconds,
        };
        let wanted = query.first("resourceVersionMatch").unwrap_or_default();
        let errors = if watch { options.check_watch(wanted) } else { options.check_list(wanted) };
        if !errors.is_empty() {
            return Err(invalid_options("ListOptions", meta_group, &errors));
        }
        options.version_match = match wanted {
            "Exact" => Some(VersionMatch::Exact),
            "NotOlderThan" => Some(VersionMatch::NotOlderThan),
            _ => None,
        };
        if watch && options.send_initial_events.is_none() && wanted.is_empty() {
            // A legacy watch from the beginning is the streaming form without its marker.
            options.send_initial_events = Some(matches!(options.resource_version.as_str(), "" | "0"));
        }
        Ok(options)
    }

    fn check_list(&self, wanted: &str) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if !wanted.is_empty() {
            const PATH: &str = "resourceVersionMatch";
            if self.resource_version.is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                errors.push(FieldError::forbidden(PATH, why));
            }
            if !self.continue_token.is_empty() {
                let why = "resourceVersionMatch is forbidden when continue is provided";
                errors.push(FieldError::forbidden(PATH, why));
            }
            if wanted != "Exact" && wanted != "NotOlderThan" {
                errors.push(FieldError {
                    detail: "supported values: \"Exact\", \"NotOlderThan\", \"\"".to_owned(),
                    ..FieldError::not_supported::<&str>(PATH, &wanted.into(), &[])
                });
            }
            if wanted == "Exact" && self.resource_version == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(FieldError::forbidden(PATH, why));
            }
        }
        if self.send_initial_events.is_some() {
            let why = "sendInitialEvents is forbidden for list";
            errors.push(FieldError::forbidden("sendInitialEvents", why));
        }
        errors
    }

    fn check_watch(&self, wanted: &str) -> Vec<FieldError> {
        const PATH: &str = "resourceVersionMatch";
        let mut errors = Vec::new();
        if self.send_initial_events.is_some() && wanted != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(PATH, why));
        }
        if !wanted.is_empty() {
            if self.send_initial_events.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.push(FieldError::forbidden(PATH, why));
            }
            if wanted != "NotOlderThan" {
                errors.push(FieldError::not_supported(PATH, &wanted.into(), &["NotOlderThan"]));
            }
        }
        // The reference server says so whether or not there is a `resourceVersionMatch`.
        if !self.continue_token.is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(PATH, why));
        }
        errors
    }
}

/// A resourceVersion of a get or watch as a number; empty and `0` are 0. Anything else is a 500 without a reason, as in
/// the reference server.
pub fn version_number(text: &str) -> Result<Revision, Status> {
    parse_version(text).map_err(|why| Status::new(Reason::Unknown, why))
}

/// The same for a list, which refuses with 400.
pub fn list_version_number(text: &str) -> Result<Revision, Status> {
    parse_version(text).map_err(|why| Status::bad_request(format!("invalid resource version: {why}")))
}

fn parse_version(text: &str) -> Result<Revision, String> {
    if text.is_empty() {
        return Ok(Revision::ZERO);
    }
    decimal(text).map(Revision::new).ok_or_else(|| {
        let quoted = values::field::go_quote(text);
        let why = match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => "value out of range",
            false => "invalid syntax",
        };
        format!("resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: {why}")
    })
}

/// Digits and nothing else, not even a sign, as a number.
pub fn decimal(text: &str) -> Option<u64> {
    if text.starts_with('+') { None } else { text.parse().ok() }
}

/// What becomes of the dependents of a deleted object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Propagation {
    /// They lose their owner.
    Orphan,
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
}

/// Options of delete and deletecollection (docs/api/paths-and-verbs.md#options, docs/api/delete.md).
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Run every stage but storage.
    pub dry_run: bool,
    /// Seconds an object that supports it may take; negative counts as 1.
    pub grace_period_seconds: Option<i64>,
    /// Deprecated form of `propagation`; kept because `false` changes the response code.
    pub orphan_dependents: Option<bool>,
    /// What becomes of dependents.
    pub propagation: Option<Propagation>,
    /// Delete only the object of this identity.
    pub uid: Option<String>,
    /// Delete only at this version.
    pub resource_version: Option<String>,
    /// Delete an object that cannot be read.
    pub ignore_store_read_error: bool,
}

impl DeleteOptions {
    /// Whether they leave the dependents to the default of the kind.
    pub fn choose_no_propagation(&self) -> bool {
        self.propagation.is_none() && self.orphan_dependents.is_none()
    }

    /// The options of the query, which count when there is no body.
    pub fn from_query(query: &Query, meta_group: &str) -> Result<Self, Status> {
        let mut errors = Vec::new();
        let text = |name: &str| query.first(name).filter(|text| !text.is_empty()).map(str::to_owned);
        let options = DeleteOptions {
            dry_run: check_dry_run(query.all("dryRun"), &mut errors),
            grace_period_seconds: query.integer("gracePeriodSeconds")?,
            orphan_dependents: query.optional_flag("orphanDependents"),
            propagation: None,
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ignore_store_read_error: query.flag("ignoreStoreReadErrorWithClusterBreakingPotential"),
        };
        options.finish(query.first("propagationPolicy"), errors, meta_group)
    }

    /// The options that a value holds which is of their type.
    pub fn from_value(value: &Value, meta_group: &str) -> Result<Self, Status> {
        let given = |name: &str| value.get(name).filter(|value| !value.is_null());
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let dry_run = given("dryRun").and_then(Value::as_array).unwrap_or_default();
        let preconditions = given("preconditions");
        let mut errors = Vec::new();
        let options = DeleteOptions {
            dry_run: check_dry_run(dry_run.iter().filter_map(Value::as_str), &mut errors),
            grace_period_seconds: given("gracePeriodSeconds").and_then(Value::as_i64),
            orphan_dependents: given("orphanDependents").and_then(Value::as_bool),
            propagation: None,
            uid: preconditions.and_then(|conditions| conditions.get("uid")).and_then(text),
            resource_version: preconditions
                .and_then(|conditions| conditions.get("resourceVersion"))
                .and_then(text),
            ignore_store_read_error: given("ignoreStoreReadErrorWithClusterBreakingPotential")
                .and_then(Value::as_bool)
                .unwrap_or(false),
        };
        options.finish(given("propagationPolicy").and_then(Value::as_str), errors, meta_group)
    }

    fn finish(
        mut self,
        policy: Option<&str>,
        mut errors: Vec<FieldError>,
        meta_group: &str,
    ) -> Result<Self, Status> {
        if let Some(policy) = policy {
            self.propagation = match policy {
                "Orphan" => Some(Propagation::Orphan),
                "Background" => Some(Propagation::Background),
                "Foreground" => Some(Propagation::Foreground),
                other => {
                    errors.push(FieldError {
                        detail: "supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
                            .to_owned(),
                        ..FieldError::not_supported::<&str>("propagationPolicy", &other.into(), &[])
                    });
                    None
                }
            };
            if self.orphan_dependents.is_some() {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid("propagationPolicy", &policy.into(), why));
            }
        }
        if self.grace_period_seconds.is_some_and(|seconds| seconds < 0) {
            self.grace_period_seconds = Some(1);
        }
        if errors.is_empty() { Ok(self) } else { Err(invalid_options("DeleteOptions", meta_group, &errors)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_are_no_numbers_are_refused_as_each_verb_refuses_them() {
        const WHY: &str =
            r#"resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax"#;
        for (text, number) in [("", 0), ("0", 0), ("17", 17)] {
            assert_eq!(version_number(text).unwrap(), Revision::new(number));
            assert_eq!(list_version_number(text).unwrap(), Revision::new(number));
        }
        let status = version_number("abc").unwrap_err();
        assert_eq!(
            (status.code.as_u16(), status.reason, status.message.as_str()),
            (500, Reason::Unknown, WHY)
        );
        let status = list_version_number("abc").unwrap_err();
        assert_eq!((status.code.as_u16(), status.message), (400, format!("invalid resource version: {WHY}")));
        let status = version_number("99999999999999999999").unwrap_err();
        assert!(status.message.ends_with("value out of range"), "{}", status.message);
    }
}
