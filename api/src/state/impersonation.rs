//! The impersonation headers `Impersonate-User`, `-Group`, `-Uid` and `-Extra-<key>`
//! (docs/api/authentication.md#impersonation). The crate auth decides whether the caller may use these headers.

use std::fmt::Write;

use auth::User;
use go::Quoted;
use http::HeaderMap;
use http::header::HeaderName;

use values::status::{Status, Subject};

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// Returns the user that the headers request; `None` if the headers request no user. An empty value of a
/// single-valued header counts as absent. Bytes that are not UTF-8 become U+FFFD, and the caller needs
/// permission for the resulting text.
///
/// # Errors
/// 400 if there are groups, a uid or extra values without a user.
pub(crate) fn requested_user(headers: &HeaderMap) -> Result<Option<User>, Status> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut user = User::new("", headers.get_all(GROUP).iter().map(text));
    user.name = headers.get(USER).map(text).unwrap_or_default();
    user.uid = headers.get(UID).map(text).unwrap_or_default();
    for (name, value) in headers {
        // Header names are in lower case already.
        if let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) {
            user.extra
                .entry(auth::authn::request_header::percent_decoded(key))
                .or_default()
                .push(text(value));
        }
    }
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    if user == User::default() {
        return Ok(None);
    }
    let description = described(&user);
    Err(Status::bad_request(format!("requested {description} without impersonating a user name")))
}

/// Returns the refusal of a request to act as the user of the headers. Bytes of the name that are not UTF-8
/// are escaped in the message as in Go.
pub(crate) fn refusal(headers: &HeaderMap, subject: Subject, why: &str) -> Status {
    let mut status = Status::forbidden(subject, why);
    let sent = headers.get(USER).map_or(&b""[..], http::HeaderValue::as_bytes);
    if subject.kind == "users" && std::str::from_utf8(sent).is_err() {
        let mut escaped = String::new();
        for chunk in sent.utf8_chunks() {
            escaped.push_str(chunk.valid());
            for byte in chunk.invalid() {
                let _ = write!(escaped, "\\x{byte:02x}");
            }
        }
        status.message = status.message.replacen(subject.name, &escaped, 1);
    }
    status
}

/// Removes the impersonation headers, so that no later part of the server reads them.
pub(crate) fn remove(headers: &mut HeaderMap) {
    let ours =
        |name: &HeaderName| [USER, GROUP, UID].contains(name) || name.as_str().starts_with(EXTRA_PREFIX);
    let names: Vec<HeaderName> = headers.keys().filter(|name| ours(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Formats the wanted user in Go syntax, for the message of the 400.
fn described(user: &User) -> String {
    let strings = |values: &[String]| {
        let quoted: Vec<String> = values.iter().map(|value| Quoted(value).to_string()).collect();
        if quoted.is_empty() {
            "[]string(nil)".to_owned()
        } else {
            format!("[]string{{{}}}", quoted.join(", "))
        }
    };
    let mut extra = String::from("map[string][]string");
    if user.extra.is_empty() {
        extra.push_str("(nil)");
    } else {
        let entries = user.extra.iter().map(|(key, values)| format!("{}:{}", Quoted(key), strings(values)));
        let _ = write!(extra, "{{{}}}", entries.collect::<Vec<_>>().join(", "));
    }
    format!(
        "&user.DefaultInfo{{Name:\"\", UID:{}, Groups:{}, Extra:{extra}}}",
        Quoted(&user.uid),
        strings(&user.groups)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn impersonation_headers_are_read_as_a_user() {
        // Each row: headers, then the resulting name, uid, groups and extra values
        // (docs/api/authentication.md#impersonation).
        for (lines, name, uid, groups, extra) in [
            (&[("Impersonate-User", "dave")][..], "dave", "", &[][..], &[][..]),
            (&[("Impersonate-User", "dave"), ("Impersonate-User", "erin")], "dave", "", &[], &[]),
            (
                &[("Impersonate-Group", "a,b"), ("Impersonate-User", "dave"), ("impersonate-group", "c")],
                "dave",
                "",
                &["a,b", "c"],
                &[],
            ),
            (&[("Impersonate-User", "d%C3%A4ve"), ("Impersonate-Uid", "1")], "d%C3%A4ve", "1", &[], &[]),
            (
                &[("Impersonate-User", "d"), ("Impersonate-Extra-%41B%2fc", "v")],
                "d",
                "",
                &[],
                &[("Ab/c", "v")],
            ),
            (
                &[("Impersonate-User", "d"), ("Impersonate-Extra-acme%2", "v")],
                "d",
                "",
                &[],
                &[("acme%2", "v")],
            ),
            (
                &[("Impersonate-User", "d"), ("Impersonate-Extra-a%ff", "v")],
                "d",
                "",
                &[],
                &[("a\u{fffd}", "v")],
            ),
        ] {
            let mut headers = headers(lines);
            let user = requested_user(&headers).unwrap().unwrap();
            assert_eq!((user.name.as_str(), user.uid.as_str()), (name, uid), "{lines:?}");
            assert_eq!(user.groups, groups, "{lines:?}");
            let got: Vec<_> =
                user.extra.iter().map(|(key, values)| (key.as_str(), values[0].as_str())).collect();
            assert_eq!(got, extra, "{lines:?}");
            remove(&mut headers);
            assert!(headers.is_empty(), "{lines:?}");
        }
    }

    #[test]
    fn an_impersonation_refusal_shows_invalid_utf8_as_the_reference_server() {
        for (sent, name, want) in [
            (&b"dave"[..], "dave", r#"users "dave" is forbidden: why"#),
            (b"jo\xeb", "jo\u{fffd}", r#"users "jo\xeb" is forbidden: why"#),
            (b"a\xe2\x28b", "a\u{fffd}(b", r#"users "a\xe2(b" is forbidden: why"#),
            ("zo\u{eb}".as_bytes(), "zo\u{eb}", "users \"zo\u{eb}\" is forbidden: why"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(USER, http::HeaderValue::from_bytes(sent).unwrap());
            assert_eq!(requested_user(&headers).unwrap().unwrap().name, name);
            let status = refusal(&headers, Subject { group: "", kind: "users", name }, "why");
            assert_eq!(status.message, want);
        }
    }

    #[test]
    fn impersonation_headers_without_a_user_are_refused() {
        for (lines, want) in [
            (&[][..], None),
            (&[("Impersonate-User", "")], None),
            (&[("Impersonate-Foo", "x")], None),
            (
                &[("Impersonate-Group", "a"), ("Impersonate-Uid", "7"), ("Impersonate-Extra-K", "v")],
                Some(r#"UID:"7", Groups:[]string{"a"}, Extra:map[string][]string{"k":[]string{"v"}}"#),
            ),
            (
                &[("Impersonate-Group", "a")],
                Some(r#"UID:"", Groups:[]string{"a"}, Extra:map[string][]string(nil)"#),
            ),
        ] {
            let got = requested_user(&headers(lines)).map_err(|status| status.message.clone());
            let want = want.map(|parts| {
                format!("requested &user.DefaultInfo{{Name:\"\", {parts}}} without impersonating a user name")
            });
            assert_eq!(got, want.map_or(Ok(None), Err), "{lines:?}");
        }
    }
}
