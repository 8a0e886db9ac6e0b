//! The typed options of list, watch and delete (docs/api/paths-and-verbs.md#options,
//! docs/api/lists.md#list-options).

use crate::attributes::Selection;
use engine::Revision;
use values::field::FieldError;
use values::json::Value;
use values::query::{Query, check_dry_run, invalid_options};
use values::status::{Status, StatusReason};

/// The meaning of the resourceVersion of a list request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum VersionMatch {
    /// The list must have exactly this version.
    Exact,
    /// The list must have this version or a newer version.
    NotOlderThan,
}

/// Options of list, watch and deletecollection.
#[derive(Debug)]
pub struct ListOptions {
    /// Label and field selectors combined.
    pub selection: Selection,
    /// Unparsed resourceVersion; empty if absent.
    pub resource_version: String,
    /// Value of the parameter `resourceVersionMatch`.
    pub version_match: Option<VersionMatch>,
    /// Maximum number of items in a chunk; 0 means unlimited.
    pub limit: u64,
    /// Continue token of the previous chunk; empty if absent.
    pub continue_token: String,
    /// Whether the client requests bookmarks.
    pub allow_bookmarks: bool,
    /// Whether the client requests initial events; `None` if the client leaves the choice to the server.
    pub send_initial_events: Option<bool>,
    /// Seconds after which a watch ends; 0 means that the server chooses, and a negative value ends the watch
    /// at once.
    pub timeout_seconds: i64,
}

impl ListOptions {
    /// Parses and checks the options (docs/api/lists.md#list-options); `watch` selects the rules of watches.
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
        let match_text = query.first("resourceVersionMatch").unwrap_or_default();
        let errors = if watch { options.check_watch(match_text) } else { options.check_list(match_text) };
        if !errors.is_empty() {
            return Err(invalid_options("ListOptions", meta_group, &errors));
        }
        options.version_match = match match_text {
            "Exact" => Some(VersionMatch::Exact),
            "NotOlderThan" => Some(VersionMatch::NotOlderThan),
            _ => None,
        };
        if watch && options.send_initial_events.is_none() && match_text.is_empty() {
            // A legacy watch from the beginning is a watch with initial events, but without the bookmark at
            // the end of the initial events.
            options.send_initial_events = Some(matches!(options.resource_version.as_str(), "" | "0"));
        }
        Ok(options)
    }

    fn check_list(&self, match_text: &str) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if !match_text.is_empty() {
            const PATH: &str = "resourceVersionMatch";
            if self.resource_version.is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                errors.push(FieldError::forbidden(PATH, why));
            }
            if !self.continue_token.is_empty() {
                let why = "resourceVersionMatch is forbidden when continue is provided";
                errors.push(FieldError::forbidden(PATH, why));
            }
            if match_text != "Exact" && match_text != "NotOlderThan" {
                errors.push(FieldError {
                    detail: "supported values: \"Exact\", \"NotOlderThan\", \"\"".to_owned(),
                    ..FieldError::not_supported::<&str>(PATH, &match_text.into(), &[])
                });
            }
            if match_text == "Exact" && self.resource_version == "0" {
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

    fn check_watch(&self, match_text: &str) -> Vec<FieldError> {
        const PATH: &str = "resourceVersionMatch";
        let mut errors = Vec::new();
        if self.send_initial_events.is_some() && match_text != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(PATH, why));
        }
        if !match_text.is_empty() {
            if self.send_initial_events.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.push(FieldError::forbidden(PATH, why));
            }
            if match_text != "NotOlderThan" {
                errors.push(FieldError::not_supported(PATH, &match_text.into(), &["NotOlderThan"]));
            }
        }
        // The reference server reports this error with or without `resourceVersionMatch`.
        if !self.continue_token.is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(PATH, why));
        }
        errors
    }
}

/// Parses the resourceVersion of a get or watch. An empty text and `0` mean 0. A malformed text is a 500
/// without a reason, as in the reference server.
pub fn version_number(text: &str) -> Result<Revision, Status> {
    parse_version(text).map_err(|why| Status::new(StatusReason::Unknown, why))
}

/// Parses the resourceVersion of a list, with 400 for malformed text.
pub fn list_version_number(text: &str) -> Result<Revision, Status> {
    parse_version(text).map_err(|why| Status::bad_request(format!("invalid resource version: {why}")))
}

fn parse_version(text: &str) -> Result<Revision, String> {
    if text.is_empty() {
        return Ok(Revision::ZERO);
    }
    decimal(text).map(Revision::new).ok_or_else(|| {
        let quoted = values::field::go_quote(text);
        let why = if text.bytes().all(|byte| byte.is_ascii_digit()) {
            "value out of range"
        } else {
            "invalid syntax"
        };
        format!("resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: {why}")
    })
}

/// Parses decimal digits; any other character, including a sign, is an error.
pub fn decimal(text: &str) -> Option<u64> {
    if text.starts_with('+') { None } else { text.parse().ok() }
}

/// Propagation policy: the treatment of the dependents of a deleted object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Propagation {
    /// Dependents lose their owner reference.
    Orphan,
    /// Dependents are deleted after their owner.
    Background,
    /// Dependents are deleted before their owner.
    Foreground,
}

/// Options of delete and deletecollection (docs/api/paths-and-verbs.md#options, docs/api/delete.md).
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Whether the request passes every stage except storage.
    pub dry_run: bool,
    /// Grace period in seconds, for objects that support it; a negative value counts as 1.
    pub grace_period_seconds: Option<i64>,
    /// Deprecated form of `propagation`. The field is stored separately because `false` changes the response
    /// code.
    pub orphan_dependents: Option<bool>,
    /// Propagation policy for the dependents; `None` if the client sets none.
    pub propagation: Option<Propagation>,
    /// Precondition: the UID of the object.
    pub uid: Option<String>,
    /// Precondition: the resourceVersion of the object.
    pub resource_version: Option<String>,
    /// Whether to delete an object that cannot be read.
    pub ignore_store_read_error: bool,
}

impl DeleteOptions {
    /// Returns whether the options leave the propagation policy to the default of the kind.
    pub fn choose_no_propagation(&self) -> bool {
        self.propagation.is_none() && self.orphan_dependents.is_none()
    }

    /// Parses the options of the query. These options apply if there is no request body.
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

    /// Parses the options of a request body that is already decoded as `DeleteOptions`.
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
    fn a_resource_version_that_is_not_a_number_is_refused_with_the_error_of_each_verb() {
        const WHY: &str =
            r#"resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax"#;
        for (text, number) in [("", 0), ("0", 0), ("17", 17)] {
            assert_eq!(version_number(text).unwrap(), Revision::new(number));
            assert_eq!(list_version_number(text).unwrap(), Revision::new(number));
        }
        let status = version_number("abc").unwrap_err();
        assert_eq!(
            (status.code.as_u16(), status.reason, status.message.as_str()),
            (500, StatusReason::Unknown, WHY)
        );
        let status = list_version_number("abc").unwrap_err();
        assert_eq!(
            (status.code.as_u16(), status.message.clone()),
            (400, format!("invalid resource version: {WHY}"))
        );
        let status = version_number("99999999999999999999").unwrap_err();
        assert!(status.message.ends_with("value out of range"), "{}", status.message);
    }
}
