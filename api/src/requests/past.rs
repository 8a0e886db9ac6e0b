//! Reading at an earlier point: the prefix `/as-of/<point>` of a path (docs/api/history.md#reading-the-past).
//!
//! ```text
//! /as-of/-10m/api/v1/pods ─► PastPoint ─► Past: revision and time ─┬─► types, from the definitions at that revision
//!                                                                  └─► verbs: the view of that revision
//! ```
//!
//! A point is resolved after authorization, so that only permitted requests learn which revisions exist. The
//! current permissions apply. A point is resolved once for each request, so a response never mixes two
//! revisions.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use engine::{Entry, OldestPoint, Revision, SnapshotError};
use go::duration;
use http::Method;
use jiff::Timestamp;

use crate::state::audit::Trail;
use crate::writes::server::Server;
use objects::custom::stored_definition;
use objects::request::{RequestInfo, Verb};
use objects::store::{self, Component, Store};
use types::schema::registry::Resource;
use types::schema::scalars::time::unix;
use types::served::Served;
use values::clock;
use values::status::{Cause, Details, Status, StatusReason};

/// An earlier point as a client writes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PastPoint {
    /// A revision, in decimal.
    Revision(Revision),
    /// A time in RFC 3339.
    Time(SystemTime),
    /// A duration before now, as a negative duration of Go.
    Ago(Duration),
}

impl PastPoint {
    /// Parses a point.
    ///
    /// # Errors
    /// 400 if the text is neither a revision, nor a time, nor a negative duration.
    pub fn parse(text: &str) -> Result<PastPoint, Status> {
        let point = match text.as_bytes() {
            [first, ..] if first.is_ascii_digit() && text.bytes().all(|byte| byte.is_ascii_digit()) => text
                .parse()
                .ok()
                .filter(|revision| *revision > 0)
                .map(|it| PastPoint::Revision(Revision::new(it))),
            [b'-', ..] => duration::parse(text)
                .ok()
                .map(|nanos| PastPoint::Ago(Duration::from_nanos(nanos.unsigned_abs()))),
            _ => time(text).map(PastPoint::Time),
        };
        point.ok_or_else(|| {
            Status::bad_request(format!(
                "invalid point {text:?}: a point is a revision (184467), a time (2006-01-02T15:04:05Z), or a \
                 duration before now (-10m)"
            ))
        })
    }
}

/// Parses a time in RFC 3339. Times before 1970 are treated as 1970, which is before any history.
fn time(text: &str) -> Option<SystemTime> {
    let (seconds, nanos) = unix(text)?;
    let since = u64::try_from(seconds).map_or(Duration::ZERO, |seconds| Duration::new(seconds, nanos));
    SystemTime::UNIX_EPOCH.checked_add(since)
}

/// The point at which a request reads.
#[derive(Clone, Copy, Debug)]
pub struct Past {
    /// Revision whose state is served, in the backend of the requested resource.
    pub revision: Revision,
    /// Time to which ages in tables are relative.
    pub time: Timestamp,
}

/// Resolves the point `text` of an authorized request, and returns the point with the types that were served at
/// that time. The audit event gets the revision.
///
/// # Errors
/// 405 if the request is not a read, 400 for an invalid or future point, 410 for a point that is no longer
/// retained.
pub async fn resolve(
    server: &Server,
    method: &Method,
    info: &RequestInfo,
    text: &str,
    trail: Option<&Trail>,
) -> Result<(Past, Arc<Served>), Status> {
    check_reads(method, info, text)?;
    let point = PastPoint::parse(text)?;
    let main = server.store.open_for(Component::Definitions);
    let apart = server.types.builtin.resource(&info.group, &info.version, &info.resource);
    let apart = apart.filter(|resource| {
        let backends = &server.store.backends;
        resource.storage.is_some() && !std::ptr::eq(backends.backend_for(resource), backends.main())
    });
    if let Some(ledger) = server.store.ledger() {
        // The client may have got the revision from another server, and this server may not have that revision
        // yet.
        ledger.current().await?;
    }
    let (past, types) = match apart {
        // The resource is in another backend than definitions. The revisions of the two backends are unrelated,
        // and all types in the other backend are built in.
        Some(resource) => (resolved(&main.about(resource), point, text)?, server.types.now()),
        None => {
            let past = resolved(&main, point, text)?;
            let types = types_at(server, &main, past.revision)?;
            (past, types)
        }
    };
    if let Some(trail) = trail {
        trail.annotate(server.types.naming.own("as-of-revision"), past.revision.to_string());
    }
    Ok((past, types))
}

/// Checks that the request is a read that the stored history can answer.
fn check_reads(method: &Method, info: &RequestInfo, text: &str) -> Result<(), Status> {
    let reads = match info.verb {
        Verb::Get | Verb::List => !info.is_long_running(),
        Verb::Watch => true,
        _ => !info.is_resource && matches!(*method, Method::GET | Method::HEAD),
    };
    if reads {
        return Ok(());
    }
    let verb = match info.subresource.as_str() {
        "" => info.verb_name().to_owned(),
        subresource => format!("{} of {subresource}", info.verb_name()),
    };
    Err(Status::new(
        StatusReason::MethodNotAllowed,
        format!("the past is read-only: {verb} is not possible as of {text}, only get, list and watch are"),
    ))
}

/// Returns whether a path outside the resource API can be read at an earlier point: discovery, OpenAPI and
/// the version.
pub fn is_document(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    matches!(first, "" | "api" | "apis" | "openapi" | "version")
}

/// Returns the error for a resource that is computed and not stored.
pub fn not_stored(resource: &Resource) -> Status {
    let message = format!("{} are not stored, so they have no past", resource.qualified());
    Status::new(StatusReason::MethodNotAllowed, message)
}

fn resolved(store: &Store<'_>, point: PastPoint, text: &str) -> Result<Past, Status> {
    let newest = store.revision();
    let now = clock::system_time();
    let in_future = || {
        let now = clock::format_millis(now);
        Status::bad_request(format!(
            "point {text} is in the future: it is {now}, and the newest revision is {newest}"
        ))
    };
    let at = |time| match store.readable_revision_at(time) {
        Ok(revision) => Ok((revision, Some(time))),
        Err(_) => Err(expired(text, store.oldest())),
    };
    let (revision, time) = match point {
        PastPoint::Revision(revision) if revision > newest => return Err(in_future()),
        PastPoint::Revision(revision) if revision < store.oldest().revision => {
            return Err(expired(text, store.oldest()));
        }
        PastPoint::Revision(revision) => (revision, store.time_of(revision)),
        PastPoint::Time(time) if time > now => return Err(in_future()),
        PastPoint::Time(time) => at(time)?,
        PastPoint::Ago(ago) => at(now.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH))?,
    };
    let time = time.and_then(|time| Timestamp::try_from(time).ok()).unwrap_or_else(clock::timestamp);
    Ok(Past { revision, time })
}

impl Past {
    /// Returns the error for a point whose snapshot cannot be opened. The point was readable when the request
    /// began, so it has been compacted since.
    pub fn refused(&self, store: &Store<'_>, error: &SnapshotError) -> Status {
        match error {
            SnapshotError::Compacted { .. } => expired(&self.revision.to_string(), store.oldest()),
            SnapshotError::Future { current } => {
                Status::too_large_resource_version(self.revision.get(), current.get(), 1)
            }
        }
    }

    /// Checks that a `resourceVersion` of the request is not after the point.
    ///
    /// # Errors
    /// 504, as for a revision that does not exist yet.
    pub fn check_revision(&self, requested: Revision) -> Result<(), Status> {
        if requested <= self.revision {
            return Ok(());
        }
        Err(Status::too_large_resource_version(requested.get(), self.revision.get(), 1))
    }
}

/// Returns the 410 for a point before the retained history.
fn expired(text: &str, oldest: OldestPoint) -> Status {
    let revision = oldest.revision.to_string();
    let time = oldest.time.map(clock::format_millis);
    let since = time.as_ref().map_or_else(String::new, |time| format!(" of {time}"));
    let mut status = Status::expired(format!(
        "the history of {text} is no longer retained: the oldest point that can be read is revision {revision}{since}"
    ));
    let cause = |reason: &str, message| Cause { reason: reason.to_owned(), message, field: String::new() };
    let mut causes = vec![cause("OldestRevision", revision)];
    causes.extend(time.map(|time| cause("OldestTime", time)));
    status.details = Some(Box::new(Details { causes, ..Details::default() }));
    status
}

/// Returns the types that the definitions at a revision describe.
fn types_at(server: &Server, main: &Store<'_>, revision: Revision) -> Result<Arc<Served>, Status> {
    let view = main.view_at(revision).map_err(|_| expired(&revision.to_string(), main.oldest()))?;
    let entries: Vec<Entry> = view.prefix(&store::collection(&server.types.definitions, "")).collect();
    let revisions = entries.iter().map(Entry::revision).collect();
    server.types.served.past().get(revisions, || {
        let mut texts = Vec::with_capacity(entries.len());
        for entry in entries {
            match store::read(entry) {
                Ok(stored) => texts.push(stored.record.value),
                Err(error) => {
                    tracing::error!(%error, %revision, "definition of an earlier point cannot be read");
                }
            }
        }
        let now = server.types.now();
        Ok(now.of_past(stored_definition::registry_of(now.registry(), &texts)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_a_revision_a_time_or_a_negative_duration() {
        let time = |ms: u64| PastPoint::Time(SystemTime::UNIX_EPOCH + Duration::from_millis(ms));
        for (text, want) in [
            ("1", Some(PastPoint::Revision(Revision::new(1)))),
            ("184467", Some(PastPoint::Revision(Revision::new(184_467)))),
            ("007", Some(PastPoint::Revision(Revision::new(7)))),
            ("0", None),
            ("18446744073709551616", None),
            ("1970-01-01T00:00:01Z", Some(time(1_000))),
            ("1970-01-01T02:00:01.25+02:00", Some(time(1_250))),
            ("1960-01-01T00:00:00Z", Some(time(0))),
            ("-10m", Some(PastPoint::Ago(Duration::from_secs(600)))),
            ("-1h30m", Some(PastPoint::Ago(Duration::from_secs(5_400)))),
            ("-0", Some(PastPoint::Ago(Duration::ZERO))),
            ("10m", None),
            ("-10", None),
            ("-", None),
            ("", None),
            ("now", None),
            ("2026-11-28", None),
            ("2026-11-28T12:00:00", None),
            ("2026-11-28 12:00:00Z", None),
            ("1e3", None),
        ] {
            let got = PastPoint::parse(text);
            assert_eq!(got.as_ref().ok(), want.as_ref(), "{text}");
            assert!(got.is_ok() || got.is_err_and(|status| status.code == 400), "{text}");
        }
    }

    #[test]
    fn only_reads_can_be_made_at_an_earlier_point() {
        let allowed = |method: &Method, url: &str| {
            let (path, query) = url.split_once('?').unwrap_or((url, ""));
            let info = RequestInfo::parse(method, path, &values::query::Query::parse(query)).unwrap();
            let checked = check_reads(method, &info, "5");
            assert!(checked.as_ref().err().is_none_or(|status| status.code == 405), "{url}");
            checked.is_ok()
        };
        for url in [
            "/api/v1/pods",
            "/api/v1/pods?watch=1",
            "/api/v1/watch/pods",
            "/api/v1/namespaces/n/pods/p",
            "/apis/apps/v1/namespaces/n/deployments/d/scale",
            "/apis",
            "/openapi/v3",
        ] {
            assert!(allowed(&Method::GET, url), "{url}");
            assert!(!allowed(&Method::POST, url) || url.contains("watch/"), "{url}");
            assert!(!allowed(&Method::DELETE, url) || url.contains("watch/"), "{url}");
        }
        for name in ["log", "exec", "attach", "portforward", "proxy"] {
            assert!(!allowed(&Method::GET, &format!("/api/v1/namespaces/n/pods/p/{name}")), "{name}");
        }
    }

    #[test]
    fn the_error_of_an_expired_point_names_the_oldest_point() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
        let status = expired("-1h", OldestPoint { revision: Revision::new(7), time: Some(time) });
        assert_eq!(
            (status.code.as_u16(), &*status.message),
            (
                410,
                "the history of -1h is no longer retained: the oldest point that can be read is revision 7 of \
                 1970-01-01T00:00:01.500Z"
            )
        );
        let causes = status.details.clone().unwrap().causes;
        let causes: Vec<_> = causes.iter().map(|cause| (&*cause.reason, &*cause.message)).collect();
        assert_eq!(causes, [("OldestRevision", "7"), ("OldestTime", "1970-01-01T00:00:01.500Z")]);
    }
}
