//! Patterns that select the requests to which a rule applies.

use serde::{Deserialize, Deserializer, de::Error};

/// Maximum length of a text in a pattern. Usual names and paths are shorter.
const PATTERN_BYTES_MAX: usize = 1024;

/// Maximum number of alternatives in one list.
const ALTERNATIVES_MAX: usize = 64;

/// A text in which each `*` matches any number of characters.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TextPattern(String);

impl TextPattern {
    /// Returns whether the pattern matches all of `text`. The time is at most proportional to the
    /// product of both lengths.
    pub fn matches(&self, text: &str) -> bool {
        let (pattern, text) = (self.0.as_bytes(), text.as_bytes());
        let (mut at, mut from) = (0, 0);
        // The position after the last star in the pattern, and the end of the text that this star has matched.
        let mut star: Option<(usize, usize)> = None;
        while from < text.len() {
            match pattern.get(at) {
                Some(b'*') => {
                    at += 1;
                    star = Some((at, from));
                }
                Some(byte) if *byte == text[from] => (at, from) = (at + 1, from + 1),
                _ => {
                    let Some((behind, taken)) = star else { return false };
                    star = Some((behind, taken + 1));
                    (at, from) = (behind, taken + 1);
                }
            }
        }
        pattern[at..].iter().all(|byte| *byte == b'*')
    }
}

impl<'de> Deserialize<'de> for TextPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TextPattern, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.len() > PATTERN_BYTES_MAX {
            return Err(D::Error::custom(format!("the pattern is longer than {PATTERN_BYTES_MAX} bytes")));
        }
        Ok(TextPattern(text))
    }
}

/// A list of patterns. The list matches a text if at least one pattern matches. An empty list matches every
/// text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AnyOf(Vec<TextPattern>);

impl AnyOf {
    fn matches(&self, text: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|pattern| pattern.matches(text))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for AnyOf {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AnyOf, D::Error> {
        let patterns = Vec::<TextPattern>::deserialize(deserializer)?;
        if patterns.len() > ALTERNATIVES_MAX {
            return Err(D::Error::custom(format!("the list has more than {ALTERNATIVES_MAX} patterns")));
        }
        Ok(AnyOf(patterns))
    }
}

/// The properties of a request that rules compare. Fields that a request does not have are empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestSubject<'r> {
    /// Whether the request is for a resource.
    pub is_resource: bool,
    /// The verb, with the name that roles use.
    pub verb: &'r str,
    /// API group; empty for the core group.
    pub group: &'r str,
    /// Plural name of the resource.
    pub resource: &'r str,
    /// Name of the subresource.
    pub subresource: &'r str,
    /// Namespace of the object.
    pub namespace: &'r str,
    /// Name of the object. The name of an object that a request creates is not known.
    pub name: &'r str,
    /// Decoded path of the URL.
    pub path: &'r str,
    /// Name of the user, after impersonation.
    pub user: &'r str,
    /// The header `User-Agent`.
    pub user_agent: &'r str,
}

/// Pattern of requests: every given field must match.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct RequestPattern {
    verbs: AnyOf,
    groups: AnyOf,
    /// Resources or subresources: `pods`, `pods/status`, `pods/*`.
    resources: AnyOf,
    namespaces: AnyOf,
    names: AnyOf,
    /// Paths. Requests outside of the resource API match only a pattern with paths.
    paths: AnyOf,
    users: AnyOf,
    user_agents: AnyOf,
}

impl RequestPattern {
    /// Returns whether the pattern matches a request.
    pub fn matches(&self, subject: &RequestSubject<'_>) -> bool {
        let resource = match subject.subresource {
            "" => subject.resource.to_owned(),
            subresource => format!("{}/{subresource}", subject.resource),
        };
        (subject.is_resource || !self.paths.is_empty())
            && self.verbs.matches(subject.verb)
            && self.groups.matches(subject.group)
            && self.resources.matches(&resource)
            && self.namespaces.matches(subject.namespace)
            && self.names.matches(subject.name)
            && self.paths.matches(subject.path)
            && self.users.matches(subject.user)
            && self.user_agents.matches(subject.user_agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_in_a_text_pattern_matches_any_characters() {
        for (pattern, text, want) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "a/b", true),
            ("a", "a", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*c", "ab", false),
            ("a*b*c", "a-b-b-c", true),
            ("**", "x", true),
            ("web-*-0", "web-1-0-0", true),
            ("web-*-0", "web-1-1", false),
            ("ä*", "äé", true),
        ] {
            assert_eq!(TextPattern(pattern.to_owned()).matches(text), want, "{pattern} {text}");
        }
        let text = "a".repeat(PATTERN_BYTES_MAX);
        let hard = TextPattern("*a".repeat(PATTERN_BYTES_MAX / 2) + "b");
        assert!(!hard.matches(&text), "a pattern with many stars takes quadratic time at most");
    }

    #[test]
    fn a_request_pattern_matches_if_every_given_field_matches() {
        let subject = RequestSubject {
            is_resource: true,
            verb: "update",
            group: "apps",
            resource: "deployments",
            subresource: "status",
            namespace: "n",
            name: "web-0",
            path: "/apis/apps/v1/namespaces/n/deployments/web-0/status",
            user: "admin",
            user_agent: "manager/v1",
        };
        for (pattern, want) in [
            ("{}", true),
            (r#"{"verbs":[]}"#, true),
            (r#"{"verbs":["get","update"]}"#, true),
            (r#"{"verbs":["get"]}"#, false),
            (r#"{"groups":[""]}"#, false),
            (r#"{"resources":["deployments"]}"#, false),
            (r#"{"resources":["deployments/status"]}"#, true),
            (r#"{"resources":["deployments*"]}"#, true),
            (r#"{"names":["web-*"],"namespaces":["n"],"users":["a*"],"userAgents":["manager/*"]}"#, true),
            (r#"{"names":["web-*"],"namespaces":["m"]}"#, false),
            (r#"{"paths":["/apis/*"]}"#, true),
        ] {
            let read: RequestPattern = serde_json::from_str(pattern).unwrap();
            assert_eq!(read.matches(&subject), want, "{pattern}");
        }
        let health = RequestSubject { path: "/healthz", verb: "get", ..RequestSubject::default() };
        for (pattern, want) in
            [("{}", false), (r#"{"paths":["/health*"]}"#, true), (r#"{"verbs":["get"]}"#, false)]
        {
            let read: RequestPattern = serde_json::from_str(pattern).unwrap();
            assert_eq!(read.matches(&health), want, "{pattern}");
        }
    }

    #[test]
    fn malformed_request_patterns_are_refused() {
        let many = format!("{{\"verbs\":[{}\"x\"]}}", "\"x\",".repeat(ALTERNATIVES_MAX));
        let long = format!("{{\"names\":[\"{}\"]}}", "x".repeat(PATTERN_BYTES_MAX + 1));
        for text in [r#"{"verb":["get"]}"#, r#"{"verbs":"get"}"#, r#"{"verbs":[1]}"#, "1", &many, &long] {
            assert!(serde_json::from_str::<RequestPattern>(text).is_err(), "{text:.60}");
        }
    }
}
