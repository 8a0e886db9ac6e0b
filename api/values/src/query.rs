//! Query parameters: decoding, and the typed options of each verb
//! (docs/api/paths-and-verbs.md#query-parameters, #options).
//!
//! Unknown parameters are ignored. If a scalar parameter is repeated, the first value counts. Boolean
//! parameters accept any value.

use percent_encoding::percent_decode_str;

use crate::field::{FieldError, go_quote};
use crate::json::Value;
use crate::status::{Status, Subject};

/// Maximum length of a field manager, in bytes (docs/api/paths-and-verbs.md#options).
pub const FIELD_MANAGER_MAX: usize = 128;

/// Decoded query parameters in their order.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes a raw query string. A pair with a malformed escape is dropped, as in the reference server.
    pub fn parse(raw: &str) -> Self {
        let pairs = raw.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
        Query(
            pairs
                .filter_map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    Some((unescape(name)?, unescape(value)?))
                })
                .collect(),
        )
    }

    /// Returns the first value of the parameter `name`.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns all values of the parameter `name`.
    pub fn all<'q>(&'q self, name: &str) -> impl Iterator<Item = &'q str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns a boolean parameter. An absent parameter, `0` and `false` are false; any other value,
    /// including an empty value, is true.
    pub fn flag(&self, name: &str) -> bool {
        self.optional_flag(name).unwrap_or(false)
    }

    /// Returns a boolean parameter like [`Query::flag`], but `None` if it is absent.
    pub fn optional_flag(&self, name: &str) -> Option<bool> {
        self.first(name).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// Parses a decimal 64-bit integer parameter; `None` if it is absent.
    pub fn integer(&self, name: &str) -> Result<Option<i64>, Status> {
        let Some(text) = self.first(name) else { return Ok(None) };
        let why = match text.parse::<i64>() {
            Ok(value) => return Ok(Some(value)),
            Err(error) => match error.kind() {
                std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => {
                    "value out of range"
                }
                _ => "invalid syntax",
            },
        };
        Err(Status::bad_request(format!("strconv.ParseInt: parsing {}: {why}", go_quote(text))))
    }

    /// Returns `pretty`, which has stricter rules than the other booleans; `None` if it is absent or empty.
    pub fn pretty(&self) -> Option<bool> {
        let value = self.first("pretty").filter(|value| !value.is_empty())?;
        Some(matches!(value, "1" | "t" | "T" | "TRUE" | "true" | "True"))
    }
}

fn unescape(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    if !escapes_are_whole(&spaced) {
        return None;
    }
    Some(percent_decode_str(&spaced).decode_utf8_lossy().into_owned())
}

/// Returns whether two hexadecimal digits follow every `%`.
pub fn escapes_are_whole(text: &str) -> bool {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    text.match_indices('%').all(|(at, _)| is_hex(bytes.get(at + 1)) && is_hex(bytes.get(at + 2)))
}

/// Unknown-field policy: how unknown and duplicate fields of a request body are treated
/// (docs/api/encodings.md#strict-decoding).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FieldValidation {
    /// The server drops the fields silently.
    Ignore,
    /// The server drops the fields, with a warning for each.
    #[default]
    Warn,
    /// The server rejects the request.
    Strict,
}

/// Options that create, update and patch have in common.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Whether the request passes every stage except storage.
    pub dry_run: bool,
    /// Field manager of the request. If the field manager is empty, the manager is derived from the user
    /// agent.
    pub field_manager: String,
    /// Treatment of unknown and duplicate fields.
    pub field_validation: FieldValidation,
    /// Whether the request sets `field_validation` explicitly.
    pub names_validation: bool,
    /// Whether an apply takes over conflicting fields. Other kinds of patches must not set this option; the
    /// patch verb checks this rule.
    pub force: Option<bool>,
}

impl WriteOptions {
    /// Parses and checks the options of `kind` (`CreateOptions`, `UpdateOptions`, `PatchOptions`).
    /// `meta_group` is the group of that kind in error messages.
    pub fn from_query(query: &Query, kind: &str, meta_group: &str) -> Result<Self, Status> {
        Self::checked(query, kind, meta_group, Vec::new())
    }

    /// Parses and checks the options of a patch. `errors` are errors of the patch's media type; they are
    /// reported first.
    pub fn of_patch(
        query: &Query,
        meta_group: &str,
        errors: impl IntoIterator<Item = FieldError>,
    ) -> Result<Self, Status> {
        Self::checked(query, "PatchOptions", meta_group, errors.into_iter().collect())
    }

    fn checked(
        query: &Query,
        kind: &str,
        meta_group: &str,
        mut errors: Vec<FieldError>,
    ) -> Result<Self, Status> {
        let field_manager = query.first("fieldManager").unwrap_or_default().to_owned();
        check_field_manager("fieldManager", &field_manager, &mut errors);
        let dry_run = check_dry_run(query.all("dryRun"), &mut errors);
        let field_validation = match query.first("fieldValidation").unwrap_or_default() {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported("fieldValidation", &other.into(), &supported));
                FieldValidation::Warn
            }
        };
        if !errors.is_empty() {
            return Err(invalid_options(kind, meta_group, &errors));
        }
        let names_validation = query.first("fieldValidation").is_some_and(|text| !text.is_empty());
        let force = query.optional_flag("force");
        Ok(WriteOptions { dry_run, field_manager, field_validation, names_validation, force })
    }
}

/// Returns the 422 error for invalid options (docs/api/paths-and-verbs.md#options).
pub fn invalid_options(kind: &str, meta_group: &str, errors: &[FieldError]) -> Status {
    Status::invalid(Subject { group: meta_group, kind, name: "" }, errors)
}

/// Returns whether the request is a dry run. Reports an error if a value is not `All`.
pub fn check_dry_run<'v>(values: impl Iterator<Item = &'v str>, errors: &mut Vec<FieldError>) -> bool {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|value| *value != "All") {
        let list = Value::Array(values.iter().map(|value| (*value).into()).collect());
        errors.push(FieldError::not_supported("dryRun", &list, &["All"]));
    }
    !values.is_empty()
}

/// Checks the field manager at `path`: its length, and that all its characters are printable.
pub fn check_field_manager(path: &str, manager: &str, errors: &mut Vec<FieldError>) {
    if manager.len() > FIELD_MANAGER_MAX {
        errors.push(FieldError::too_long(path, FIELD_MANAGER_MAX));
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !go::is_printable(*c)) {
        let detail = format!("invalid character U+{:04X} (at position {at})", c as u32);
        errors.push(FieldError::invalid(path, &manager.into(), detail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_parsed_as_documented() {
        for (raw, want) in [
            ("", false),
            ("watch", true),
            ("watch=", true),
            ("watch=0", false),
            ("watch=FALSE", false),
            ("watch=no", true),
            ("watch=false&watch=true", false),
        ] {
            assert_eq!(Query::parse(raw).flag("watch"), want, "{raw}");
        }
        for (raw, want) in
            [("pretty=yes", Some(false)), ("pretty=T", Some(true)), ("", None), ("pretty", None)]
        {
            assert_eq!(Query::parse(raw).pretty(), want, "{raw}");
        }
    }

    #[test]
    fn malformed_integers_are_errors() {
        assert_eq!(Query::parse("limit=500").integer("limit").unwrap(), Some(500));
        assert_eq!(Query::parse("").integer("limit").unwrap(), None);
        for (raw, message) in [
            ("limit=abc", "strconv.ParseInt: parsing \"abc\": invalid syntax"),
            ("limit=", "strconv.ParseInt: parsing \"\": invalid syntax"),
            (
                "limit=99999999999999999999",
                "strconv.ParseInt: parsing \"99999999999999999999\": value out of range",
            ),
        ] {
            let status = Query::parse(raw).integer("limit").unwrap_err();
            assert_eq!((status.code.as_u16(), status.message.as_str()), (400, message));
        }
    }

    #[test]
    fn write_options_are_checked_as_documented() {
        let long = format!("fieldManager={}", "x".repeat(129));
        for (raw, message) in [
            (
                "dryRun=x",
                "CreateOptions.meta.g \"\" is invalid: dryRun: Unsupported value: [\"x\"]: supported values: \"All\"",
            ),
            (
                "dryRun=",
                "CreateOptions.meta.g \"\" is invalid: dryRun: Unsupported value: [\"\"]: supported values: \"All\"",
            ),
            (
                "fieldValidation=x",
                "CreateOptions.meta.g \"\" is invalid: fieldValidation: Unsupported value: \"x\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            ),
            (
                long.as_str(),
                "CreateOptions.meta.g \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes",
            ),
            (
                "fieldManager=a%09b",
                "CreateOptions.meta.g \"\" is invalid: fieldManager: Invalid value: \"a\\tb\": invalid character U+0009 (at position 1)",
            ),
            (
                "fieldManager=%C2%A0",
                "CreateOptions.meta.g \"\" is invalid: fieldManager: Invalid value: \"\\u00a0\": invalid character U+00A0 (at position 0)",
            ),
            (
                "fieldManager=%C3%A9%00%00",
                "CreateOptions.meta.g \"\" is invalid: [fieldManager: Invalid value: \"é\\x00\\x00\": invalid character U+0000 (at position 2), fieldManager: Invalid value: \"é\\x00\\x00\": invalid character U+0000 (at position 3)]",
            ),
        ] {
            let status = WriteOptions::from_query(&Query::parse(raw), "CreateOptions", "meta.g").unwrap_err();
            assert_eq!((status.code.as_u16(), status.message.as_str()), (422, message));
        }
        let first = FieldError::required("fieldManager", "is required for apply patch");
        let status = WriteOptions::of_patch(&Query::parse("dryRun=Foo"), "meta.g", [first]).unwrap_err();
        assert_eq!(
            status.message,
            "PatchOptions.meta.g \"\" is invalid: [fieldManager: Required value: is required for apply patch, \
             dryRun: Unsupported value: [\"Foo\"]: supported values: \"All\"]"
        );
        let options = WriteOptions::from_query(
            &Query::parse("dryRun=All&fieldValidation=Strict&fieldManager=me"),
            "CreateOptions",
            "meta.g",
        )
        .unwrap();
        assert!(options.dry_run && options.field_validation == FieldValidation::Strict);
        assert_eq!(options.field_manager, "me");
    }

    #[test]
    fn a_malformed_escape_drops_only_its_own_query_parameter() {
        let query = Query::parse("a=%zz&b=1+2%2B&%=x&c=%ff");
        assert_eq!((query.first("a"), query.first("b")), (None, Some("1 2+")));
        assert_eq!(query.first("c"), Some("\u{fffd}"));
    }
}
