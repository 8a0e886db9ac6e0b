//! Reads the versions of an object page by page, the newest first.

use http::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::Value;

use crate::cli::report::printable;
use crate::remote::client::Client;

/// Reads the versions of the object at a path, the newest first, and passes them to `wants`. Stops when
/// `wants` returns false, or after the oldest version. An unknown object has no versions. `query` has the
/// parameters of the requests.
///
/// # Errors
/// The server cannot be reached, or refuses the history.
pub async fn read(
    client: &Client,
    path: &str,
    query: &str,
    mut wants: impl FnMut(Value) -> bool,
) -> anyhow::Result<()> {
    let mut token = String::new();
    loop {
        let page = format!("{path}?{query}&continue={token}");
        let response = client.exchange(Method::GET, &page, None).await?;
        match response.code {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Ok(()),
            _ => return Err(client.refused(&response)),
        }
        let mut page = response.json()?;
        if let Value::Array(items) = page["items"].take() {
            for item in items {
                if !wants(item) {
                    return Ok(());
                }
            }
        }
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            return Ok(());
        }
    }
}

/// Returns the revision of a version; 0 if the version has no revision.
pub fn revision(item: &Value) -> u64 {
    item["revision"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Returns the commit time of a version.
pub fn time(item: &Value) -> Option<Timestamp> {
    item["time"].as_str()?.parse().ok()
}

/// Formats the author of a version for people: the user, and the field manager if the user name does not contain it.
pub fn author(item: &Value) -> String {
    let author = &item["author"];
    let text = |name: &str| printable(author[name].as_str().unwrap_or_default().as_bytes());
    match (text("user"), text("manager")) {
        (user, _) if user.is_empty() => "-".to_owned(),
        (user, manager) if manager.is_empty() => user,
        (user, manager) => format!("{user} ({manager})"),
    }
}

/// Formats the time since a version: `12s`, `5m`, `3h10m`, `4d2h`.
pub fn age(time: Option<Timestamp>, now: Timestamp) -> String {
    let Some(time) = time else { return "-".to_owned() };
    let seconds = now.duration_since(time).as_secs().max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) if minutes < 10 => format!("{minutes}m{}s", seconds % 60),
        (0, 0, _) => format!("{minutes}m"),
        (0, ..) => format!("{hours}h{minutes}m"),
        _ => format!("{days}d{hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ages_and_authors_have_a_short_form() {
        let now: Timestamp = "2026-11-28T12:00:00Z".parse().unwrap();
        for (time, want) in [
            ("2026-11-28T12:00:01Z", "0s"),
            ("2026-11-28T11:59:48Z", "12s"),
            ("2026-11-28T11:55:48Z", "4m12s"),
            ("2026-11-28T11:30:00Z", "30m"),
            ("2026-11-28T08:50:00Z", "3h10m"),
            ("2026-11-24T10:00:00Z", "4d2h"),
        ] {
            assert_eq!(age(time.parse().ok(), now), want, "{time}");
        }
        for (author_, want) in [
            (json!(null), "-"),
            (json!({"user": "alice"}), "alice"),
            (json!({"user": "alice\u{1b}[2J", "manager": "kubectl"}), "alice\\u{1b}[2J (kubectl)"),
        ] {
            assert_eq!(author(&json!({"author": author_})), want);
        }
    }
}
