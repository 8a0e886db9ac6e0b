//! The plugin EventRateLimit limits the rate of event writes for the whole server, per namespace, per user,
//! or per source and object.
//!
//! A limit has a token bucket for each key. The plugin keeps the buckets of the most recently used keys. If a
//! key is used again after its bucket was dropped, the key begins with a full bucket.

use std::sync::Arc;
use std::time::Instant;

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::server::MakePlugin;
use objects::validation::StructView;
use values::field::FieldError;
use values::json::{Object, Value};
use values::status::{Status, StatusReason};

/// Number of keys for which a limit without `cacheSize` keeps buckets.
const KEYS_DEFAULT: usize = 4096;

/// The admission plugin EventRateLimit.
pub struct EventRateLimit {
    limits: Vec<Limit>,
}

struct Limit {
    kind: Kind,
    per_second: f64,
    burst: f64,
    keys_max: usize,
    buckets: Mutex<Buckets>,
}

/// The grouping by which a limit counts events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Server,
    Namespace,
    User,
    SourceAndObject,
}

/// The buckets of a limit by key, with the times of their last use.
#[derive(Default)]
struct Buckets {
    of_key: HashMap<String, Bucket>,
}

#[derive(Clone, Copy)]
struct Bucket {
    tokens: f64,
    used_at: Instant,
}

/// Reads the configuration, which is required.
///
/// # Errors
/// Fails if the configuration is invalid; the text describes the error.
pub fn configure(config: Option<&Value>) -> Result<MakePlugin, String> {
    let limits = StructView::from(config).structs("limits");
    let mut faults = Vec::new();
    if limits.len() == 0 {
        let given = config.and_then(|config| config.get("limits")).cloned().unwrap_or_default();
        faults.push(FieldError::invalid("limits", &given, "must not be empty").to_string());
    }
    let limits: Vec<Parsed> =
        limits.enumerate().filter_map(|(at, limit)| Parsed::read(at, limit, &mut faults)).collect();
    if let Some(faults) = go::join_errors(&faults) {
        return Err(faults);
    }
    Ok(Arc::new(move |_| {
        Arc::new(EventRateLimit { limits: limits.iter().map(|limit| limit.make()).collect() })
    }))
}

/// The settings of one limit in the configuration.
#[derive(Clone, Copy)]
struct Parsed {
    kind: Kind,
    per_second: f64,
    burst: f64,
    keys_max: usize,
}

impl Parsed {
    /// Reads a limit. If the limit is invalid, adds the errors to `faults` and returns `None`.
    fn read(at: usize, limit: StructView<'_>, faults: &mut Vec<String>) -> Option<Parsed> {
        let path = |name: &str| format!("limits[{at}].{name}");
        let before = faults.len();
        let kind = Kind::from_name(limit.text("type"));
        if kind.is_none() {
            let given = limit.text("type").into();
            faults.push(FieldError::not_supported(path("type"), &given, &Kind::NAMES).to_string());
        }
        let mut positive = |name: &str| {
            let number = limit.int(name).unwrap_or(0);
            let fits = i32::try_from(number).ok().filter(|number| *number > 0);
            if fits.is_none() {
                faults.push(FieldError::invalid(path(name), &number.into(), "must be positive").to_string());
            }
            f64::from(fits.unwrap_or(1))
        };
        let (burst, per_second) = (positive("burst"), positive("qps"));
        let keys_max = match limit.int("cacheSize").unwrap_or(0) {
            0 => KEYS_DEFAULT,
            // For this kind, the number of keys is ignored, because the whole server has only one bucket.
            size if size < 0 && kind == Some(Kind::Server) => KEYS_DEFAULT,
            size => usize::try_from(size).unwrap_or_else(|_| {
                faults.push(
                    FieldError::invalid(path("cacheSize"), &size.into(), "must not be negative").to_string(),
                );
                KEYS_DEFAULT
            }),
        };
        let kind = kind.filter(|_| faults.len() == before)?;
        Some(Parsed { kind, per_second, burst, keys_max })
    }

    fn make(&self) -> Limit {
        let Parsed { kind, per_second, burst, keys_max } = *self;
        Limit { kind, per_second, burst, keys_max, buckets: Mutex::default() }
    }
}

impl Limit {
    /// Takes a token for an event; returns whether a token was available.
    fn accepts(&self, key: &str, now: Instant) -> bool {
        let mut buckets = self.buckets.lock();
        if !buckets.of_key.contains_key(key) {
            if buckets.of_key.len() >= self.keys_max {
                buckets.forget_oldest_half();
            }
            buckets.of_key.insert(key.to_owned(), Bucket { tokens: self.burst, used_at: now });
        }
        let Some(bucket) = buckets.of_key.get_mut(key) else { return false };
        let passed = now.saturating_duration_since(bucket.used_at).as_secs_f64();
        bucket.tokens = (bucket.tokens + passed * self.per_second).min(self.burst);
        bucket.used_at = now;
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }
}

impl Buckets {
    /// Drops the older half of the buckets at once, so that the average cost of the search per event is low.
    fn forget_oldest_half(&mut self) {
        let mut times: Vec<Instant> = self.of_key.values().map(|bucket| bucket.used_at).collect();
        let middle = times.len() / 2;
        let (_, median, _) = times.select_nth_unstable(middle);
        let median = *median;
        self.of_key.retain(|_, bucket| bucket.used_at > median);
    }
}

impl Kind {
    /// The names of all kinds, in the order in which error messages list them.
    const NAMES: [&str; 4] = ["Namespace", "Server", "SourceAndObject", "User"];

    fn from_name(name: &str) -> Option<Kind> {
        [Kind::Namespace, Kind::Server, Kind::SourceAndObject, Kind::User]
            .into_iter()
            .find(|kind| kind.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Server => "Server",
            Kind::Namespace => "Namespace",
            Kind::User => "User",
            Kind::SourceAndObject => "SourceAndObject",
        }
    }

    fn key(self, record: &AdmissionRecord<'_, &Object>) -> String {
        match self {
            Kind::Server => String::new(),
            Kind::Namespace => record.write.namespace.to_owned(),
            Kind::User => record.write.user.name.clone(),
            Kind::SourceAndObject => {
                let event = record.new.map_or(StructView::from(None), StructView::from_object);
                let (source, about) = (event.child("source"), event.child("involvedObject"));
                let of_object =
                    ["kind", "namespace", "name", "uid", "apiVersion"].map(|name| about.text(name));
                [source.text("component"), source.text("host")].into_iter().chain(of_object).collect()
            }
        }
    }
}

impl Plugin for EventRateLimit {
    fn handles(&self, target: &Target<'_>) -> bool {
        matches!(target.operation, Operation::Create | Operation::Update)
            && target.resource.group.is_empty()
            && target.is("", "events")
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        if record.write.dry_run() {
            return Ok(()).into();
        }
        let now = Instant::now();
        let refused = self.limits.iter().filter_map(|limit| {
            let key = limit.kind.key(record);
            let refused = !limit.accepts(&key, now);
            // The text of each refusal begins with this prefix. The response repeats the prefix before the
            // joined texts.
            let why =
                || format!("Too many requests: limit reached on type {} for key {key}", limit.kind.name());
            refused.then(why)
        });
        // Collect eagerly: every limit counts the event, even if another limit refuses it.
        let refused: Vec<String> = refused.collect();
        go::join_errors(&refused).map_or(Ok(()), |why| Err(too_many(&why))).into()
    }
}

fn too_many(why: &str) -> Status {
    Status::new(StatusReason::TooManyRequests, format!("Too many requests: {why}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use values::yaml;

    fn limit(per_second: f64, burst: f64, keys_max: usize) -> Limit {
        Parsed { kind: Kind::User, per_second, burst, keys_max }.make()
    }

    #[test]
    fn an_event_rate_bucket_allows_its_burst_and_then_its_rate() {
        let limit = limit(2.0, 3.0, 10);
        let start = Instant::now();
        let taken = |after_ms| {
            let now = start + Duration::from_millis(after_ms);
            (0..10).filter(|_| limit.accepts("a", now)).count()
        };
        assert_eq!([0, 400, 500, 1500, 60_000].map(taken), [3, 0, 1, 2, 3]);
        assert!(limit.accepts("b", start), "keys have buckets of their own");
    }

    #[test]
    fn the_number_of_buckets_of_a_limit_is_bounded() {
        let limit = limit(1.0, 1.0, 8);
        let start = Instant::now();
        for at in 0..100 {
            limit.accepts(&at.to_string(), start + Duration::from_millis(at));
            assert!(limit.buckets.lock().of_key.len() <= 8, "{at}");
        }
        assert!(!limit.accepts("99", start + Duration::from_millis(100)), "the last key is remembered");
    }

    #[test]
    fn event_rate_limit_configurations_are_validated() {
        for (text, want) in [
            ("limits: [{type: Server, qps: 1, burst: 1}]", ""),
            ("limits: []", "limits: Invalid value: []: must not be empty"),
            ("limits: [{type: Server, qps: 1}]", "limits[0].burst: Invalid value: 0: must be positive"),
            (
                "limits: [{type: X, qps: 1, burst: 1}, {type: User}]",
                "[limits[0].type: Unsupported value: \"X\": supported values: \"Namespace\", \"Server\", \
                 \"SourceAndObject\", \"User\", limits[1].burst: Invalid value: 0: must be positive, limits[1].qps: Invalid \
                 value: 0: must be positive]",
            ),
            (
                "limits: [{type: User, qps: 1, burst: 1, cacheSize: -1}]",
                "limits[0].cacheSize: Invalid value: -1: must not be negative",
            ),
        ] {
            let got = configure(Some(&yaml::parse(text.as_bytes()).unwrap().value)).err().unwrap_or_default();
            assert_eq!(got, want, "{text}");
        }
        assert_eq!(
            configure(None).err().unwrap_or_default(),
            "limits: Invalid value: null: must not be empty"
        );
    }
}
