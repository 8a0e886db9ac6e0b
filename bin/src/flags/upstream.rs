//! Flags of kube-apiserver that this server does not implement. Most of them have no effect: the value is checked, and
//! the flag is removed from the command line. The others are refused with a reason (docs/flags.md).

use std::ffi::OsString;

use super::value_parsers::{boolean, integer, invalid, levels, quantity};

/// The type of a flag's value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ValueType {
    /// A Boolean whose value is optional.
    Bool,
    Integer,
    /// A duration, which may be negative.
    Duration,
    /// A duration that is not negative.
    Timeout,
    /// A duration that is greater than zero.
    Period,
    /// A size, such as 64Ki.
    Quantity,
    /// Levels of detail of the log for modules, as `pattern=N`.
    Levels,
    /// The name of a storage backend.
    Backend,
    /// `resource#size`, separated by commas.
    CacheSizes,
}

/// Flags that have no effect for the same reason.
struct Treatment {
    why: &'static str,
    flags: &'static [(&'static str, ValueType)],
}

/// Flags that are refused for the same reason.
struct Refusal {
    why: &'static str,
    flags: &'static [&'static str],
}

const WITHOUT_EFFECT: &[Treatment] = &[
    Treatment {
        why: "a redirect by an extension server is always refused with 502",
        flags: &[("aggregator-reject-forwarding-redirect", ValueType::Bool)],
    },
    Treatment {
        why: "this server has no Go runtime whose locks could be profiled",
        flags: &[("contention-profiling", ValueType::Bool)],
    },
    Treatment {
        why: "the servers that share an etcd elect the server that runs the controllers by a lease of fixed duration",
        flags: &[
            ("coordinated-leadership-lease-duration", ValueType::Duration),
            ("coordinated-leadership-renew-deadline", ValueType::Duration),
            ("coordinated-leadership-retry-period", ValueType::Duration),
        ],
    },
    Treatment {
        why: "the deletions of a collection need no workers, because the deletions share disk syncs",
        flags: &[("delete-collection-workers", ValueType::Integer)],
    },
    Treatment {
        why: "neither the server's own store nor the connection to etcd has such a setting",
        flags: &[
            ("etcd-count-metric-poll-period", ValueType::Duration),
            ("etcd-db-metric-poll-interval", ValueType::Duration),
            ("lease-reuse-duration-seconds", ValueType::Integer),
            ("storage-backend", ValueType::Backend),
            ("storage-initialization-timeout", ValueType::Timeout),
        ],
    },
    Treatment {
        why: "each log line is written to standard error at once",
        flags: &[
            ("log-flush-frequency", ValueType::Period),
            ("log-json-info-buffer-size", ValueType::Quantity),
            ("log-json-split-stream", ValueType::Bool),
            ("log-text-info-buffer-size", ValueType::Quantity),
            ("log-text-split-stream", ValueType::Bool),
        ],
    },
    Treatment {
        why: "the server can always listen on a port on which earlier connections are still closing",
        flags: &[("permit-address-sharing", ValueType::Bool)],
    },
    Treatment {
        why: "the environment variable RUST_LOG sets the level of each module",
        flags: &[("vmodule", ValueType::Levels)],
    },
    Treatment {
        why: "reads and watches are served from the store without a cache",
        flags: &[("watch-cache", ValueType::Bool), ("watch-cache-sizes", ValueType::CacheSizes)],
    },
];

/// The only refused flag. A value of 0 or less is accepted, because it means no limit.
const RATE: &str = "max-connection-bytes-per-sec";

const REFUSED: &[Refusal] = &[Refusal {
    why: "the server cannot limit the bytes per second of a connection; remove the flag or set it to 0",
    flags: &[RATE],
}];

impl ValueType {
    fn check(self, value: &str) -> Result<(), String> {
        match self {
            ValueType::Bool => boolean(value).map(drop),
            ValueType::Integer => integer::<i64>(value).map(drop),
            ValueType::Duration => go::duration::parse(value).map(drop).map_err(|error| error.to_string()),
            ValueType::Timeout => match go::duration::parse(value).map_err(|error| error.to_string())? {
                0.. => Ok(()),
                _ => Err("--storage-initialization-timeout can not be negative value".to_owned()),
            },
            ValueType::Period => match go::duration::parse(value).map_err(|error| error.to_string())? {
                nanos if nanos > 0 => Ok(()),
                nanos => {
                    let printed = if nanos == 0 { "0s" } else { value };
                    Err(format!("flushFrequency: Invalid value: {printed:?}: Must be greater than zero"))
                }
            },
            ValueType::Quantity => quantity(value),
            ValueType::Levels => levels(value),
            ValueType::Backend if matches!(value, "" | "etcd3") => Ok(()),
            ValueType::Backend => {
                Err("--storage-backend invalid, allowed values: etcd3. If not specified, it will default to \
                                  'etcd3'"
                    .to_owned())
            }
            ValueType::CacheSizes => value.split(',').filter(|size| !size.is_empty()).try_for_each(|item| {
                let [_, size] = item.split('#').collect::<Vec<_>>()[..] else {
                    return Err(format!("invalid value of watch cache size: {item}"));
                };
                match size.parse::<i64>() {
                    Err(_) => Err(format!("invalid size of watch cache size: {item}")),
                    Ok(size) if size < 0 => Err(format!("watch cache size cannot be negative: {item}")),
                    Ok(_) => Ok(()),
                }
            }),
        }
    }
}

/// Returns the flags of kube-apiserver that are accepted without effect, each with the reason.
pub fn all_without_effect() -> impl Iterator<Item = (&'static str, &'static str)> {
    WITHOUT_EFFECT.iter().flat_map(|treatment| treatment.flags.iter().map(|(flag, _)| (*flag, treatment.why)))
}

/// Returns the flags of kube-apiserver that are refused, each with the reason.
#[cfg(test)]
pub fn all_refused() -> impl Iterator<Item = (&'static str, &'static str)> {
    REFUSED.iter().flat_map(|refusal| refusal.flags.iter().map(|flag| (*flag, refusal.why)))
}

/// Returns the type of the value of a flag without effect.
fn without_effect(name: &str) -> Option<ValueType> {
    let mut flags = WITHOUT_EFFECT.iter().flat_map(|treatment| treatment.flags);
    flags.find(|(flag, _)| *flag == name).map(|(_, value_type)| *value_type)
}

/// Returns the reason why a flag is refused, or `None` if the flag is not refused.
fn refusal(name: &str) -> Option<&'static str> {
    REFUSED.iter().find(|refusal| refusal.flags.contains(&name)).map(|refusal| refusal.why)
}

/// Returns whether a flag of this module takes the next word as its value.
pub fn takes_value(name: &str) -> bool {
    refusal(name).is_some() || without_effect(name).is_some_and(|value_type| value_type != ValueType::Bool)
}

/// Removes the flags that have no effect. Each flag and its value must be one word.
///
/// # Errors
/// A flag is refused, or its value is invalid. The error has one line.
pub fn settle(arguments: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let mut remaining = Vec::with_capacity(arguments.len());
    let mut logging = Logging::default();
    for argument in arguments {
        let Some(flag) = argument.to_str().and_then(|text| text.strip_prefix("--")) else {
            remaining.push(argument);
            continue;
        };
        let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
        logging.note(name, value.unwrap_or_default());
        if let (RATE, Some(value)) = (name, value) {
            match integer::<i64>(value) {
                Ok(..=0) => continue, // 0 or less means no limit, which is also the default.
                Ok(_) => {}
                Err(why) => return Err(invalid(&format!("--{RATE}"), value, &why)),
            }
        }
        if let Some(why) = refusal(name) {
            return Err(format!("--{name} is not supported: {why}"));
        }
        let Some(value_type) = without_effect(name) else {
            remaining.push(argument);
            continue;
        };
        let value = match value {
            Some(value) => value,
            None if value_type == ValueType::Bool => "true",
            None => return Err(format!("flag needs an argument: --{name}")),
        };
        value_type.check(value).map_err(|why| match value_type {
            // kube-apiserver checks these values after it has parsed the command line.
            ValueType::Backend | ValueType::CacheSizes | ValueType::Timeout if !why.starts_with("time: ") => {
                why
            }
            ValueType::Period if why.starts_with("flushFrequency") => why,
            _ => invalid(&format!("--{name}"), value, &why),
        })?;
        logging.note(name, value);
    }
    logging.check()?;
    Ok(remaining)
}

/// The logging flags that are checked together.
#[derive(Default)]
struct Logging {
    is_json: bool,
    has_levels: bool,
    has_alpha_options: bool,
    /// Streams and sizes that need a feature gate, in the order of their errors.
    options: [(bool, &'static str); 4],
}

impl Logging {
    fn note(&mut self, name: &str, value: &str) {
        let is_on = boolean(value).unwrap_or(false);
        let is_size = !matches!(value, "" | "0");
        let (at, is_used, path) = match name {
            "logging-format" | "log-format" => return self.is_json = value == "json",
            "vmodule" => return self.has_levels = !value.is_empty(),
            "feature-gates" => {
                let opens = |pair: &str| matches!(pair, "LoggingAlphaOptions=true" | "AllAlpha=true");
                self.has_alpha_options |= value.split(',').map(str::trim).any(opens);
                return;
            }
            "log-text-split-stream" => (0, is_on, "text.splitStream"),
            "log-text-info-buffer-size" => (1, is_size, "text.infoBufferSize"),
            "log-json-split-stream" => (2, is_on, "json.splitStream"),
            "log-json-info-buffer-size" => (3, is_size, "json.infoBufferSize"),
            _ => return,
        };
        self.options[at] = (is_used, path);
    }

    /// Returns the errors that kube-apiserver reports for combinations of logging flags without effect.
    fn check(&self) -> Result<(), String> {
        let levels = (self.is_json && self.has_levels)
            .then(|| "vmodule: Forbidden: Only supported for text log format".to_owned());
        let used = self.options.iter().filter(|(is_used, _)| *is_used && !self.has_alpha_options);
        let options = used
            .map(|(_, path)| format!("options.{path}: Forbidden: Feature LoggingAlphaOptions is disabled"));
        go::join_errors(levels.into_iter().chain(options)).map_or(Ok(()), Err)
    }
}

/// Returns the section of `--help-all` about flags without effect.
pub fn help() -> String {
    let mut text = "Flags of kube-apiserver that are accepted without effect:\n".to_owned();
    for Treatment { why, flags } in WITHOUT_EFFECT {
        let names: Vec<String> = flags.iter().map(|(name, _)| format!("--{name}")).collect();
        text.push_str(&format!("  {}:\n      {why}\n", names.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(line: &str) -> Result<String, String> {
        let arguments = settle(line.split_whitespace().map(OsString::from).collect())?;
        let texts: Vec<_> = arguments.into_iter().map(|text| text.into_string().unwrap()).collect();
        Ok(texts.join(" "))
    }

    #[test]
    fn flags_without_an_effect_are_dropped_and_unsupported_ones_refused_by_name() {
        for (line, want) in [
            ("--storage-backend=etcd3 --secure-port=1", Ok("--secure-port=1")),
            ("--etcd-count-metric-poll-period=-1s --storage-initialization-timeout=0s", Ok("")),
            (
                "--storage-initialization-timeout=-1s",
                Err("--storage-initialization-timeout can not be negative value"),
            ),
            (
                "--storage-initialization-timeout=x",
                Err(
                    "invalid argument \"x\" for \"--storage-initialization-timeout\" flag: time: invalid duration \"x\"",
                ),
            ),
            ("--watch-cache --v=1 --watch-cache=false", Ok("--v=1")),
            (
                "--watch-cache=x",
                Err(
                    "invalid argument \"x\" for \"--watch-cache\" flag: strconv.ParseBool: parsing \"x\": invalid syntax",
                ),
            ),
            (
                "--delete-collection-workers=x",
                Err(
                    "invalid argument \"x\" for \"--delete-collection-workers\" flag: strconv.ParseInt: parsing \"x\": invalid syntax",
                ),
            ),
            ("--watch-cache-sizes=pods#5,services#6", Ok("")),
            ("--watch-cache-sizes=pods#x", Err("invalid size of watch cache size: pods#x")),
            ("--watch-cache-sizes=pods", Err("invalid value of watch cache size: pods")),
            ("--watch-cache-sizes=pods#1#2", Err("invalid value of watch cache size: pods#1#2")),
            ("--watch-cache-sizes=a#1,pods#-1", Err("watch cache size cannot be negative: pods#-1")),
            ("--vmodule=a*=2,b=3", Ok("")),
            (
                "--vmodule=a",
                Err(
                    "invalid argument \"a\" for \"--vmodule\" flag: \"a\" does not have the pattern=N format",
                ),
            ),
            ("--log-text-info-buffer-size=0 --log-text-split-stream=false", Ok("")),
            (
                "--feature-gates=LoggingAlphaOptions=true --log-text-info-buffer-size=64Ki",
                Ok("--feature-gates=LoggingAlphaOptions=true"),
            ),
            (
                "--log-json-split-stream --log-text-info-buffer-size=64Ki",
                Err("[options.text.infoBufferSize: Forbidden: Feature LoggingAlphaOptions is disabled, \
                     options.json.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled]"),
            ),
            (
                "--vmodule=a=1 --logging-format=json",
                Err("vmodule: Forbidden: Only supported for text log format"),
            ),
            (
                "--log-text-info-buffer-size=x",
                Err(
                    "invalid argument \"x\" for \"--log-text-info-buffer-size\" flag: quantities must match the regular \
                     expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
                ),
            ),
            (
                "--max-connection-bytes-per-sec=x",
                Err(
                    "invalid argument \"x\" for \"--max-connection-bytes-per-sec\" flag: strconv.ParseInt: parsing \"x\": \
                     invalid syntax",
                ),
            ),
            ("--log-flush-frequency=5s", Ok("")),
            (
                "--log-flush-frequency=0",
                Err("flushFrequency: Invalid value: \"0s\": Must be greater than zero"),
            ),
            ("--storage-backend", Err("flag needs an argument: --storage-backend")),
            (
                "--storage-backend=etcd2",
                Err(
                    "--storage-backend invalid, allowed values: etcd3. If not specified, it will default to 'etcd3'",
                ),
            ),
            ("--max-connection-bytes-per-sec=0 --max-connection-bytes-per-sec=-1", Ok("")),
            (
                "--max-connection-bytes-per-sec=5",
                Err(
                    "--max-connection-bytes-per-sec is not supported: the server cannot limit the bytes per second of a connection; \
                     remove the flag or set it to 0",
                ),
            ),
            (
                "--log-flush-frequency=-1s",
                Err("flushFrequency: Invalid value: \"-1s\": Must be greater than zero"),
            ),
        ] {
            let want = want.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(settled(line), want, "{line}");
        }
    }
}
