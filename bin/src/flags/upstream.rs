//! Flags of kube-apiserver that this server does not implement. A flag without an effect here is removed from the command
//! line after its value is checked. Each other flag is refused with a reason (docs/flags.md).

use std::ffi::OsString;

use super::forms::{boolean, integer, invalid, levels, quantity};

/// The form of a flag's value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    /// A Boolean whose value is optional.
    Bool,
    Integer,
    /// A duration, which may be negative.
    Duration,
    /// A duration that is not negative.
    Timeout,
    /// A duration that is not zero.
    Period,
    Text,
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
    flags: &'static [(&'static str, Form)],
}

/// Flags that are refused for the same reason.
struct Refusal {
    why: &'static str,
    flags: &'static [&'static str],
}

const WITHOUT_EFFECT: &[Treatment] = &[
    Treatment {
        why: "a redirect by an extension server is always refused with 502",
        flags: &[("aggregator-reject-forwarding-redirect", Form::Bool)],
    },
    Treatment {
        why: "certificates that the server creates are in --data-dir",
        flags: &[("cert-dir", Form::Text)],
    },
    Treatment { why: "it profiles locks of the Go runtime", flags: &[("contention-profiling", Form::Bool)] },
    Treatment {
        why: "the servers that share an etcd elect the one that runs the controllers with a lease of fixed duration",
        flags: &[
            ("coordinated-leadership-lease-duration", Form::Duration),
            ("coordinated-leadership-renew-deadline", Form::Duration),
            ("coordinated-leadership-retry-period", Form::Duration),
        ],
    },
    Treatment {
        why: "the deletions of a collection need no workers: they share disk syncs",
        flags: &[("delete-collection-workers", Form::Integer)],
    },
    Treatment {
        why: "the server's own store and its connection to etcd have no such setting",
        flags: &[
            ("etcd-count-metric-poll-period", Form::Duration),
            ("etcd-db-metric-poll-interval", Form::Duration),
            ("lease-reuse-duration-seconds", Form::Integer),
            ("storage-backend", Form::Backend),
            ("storage-initialization-timeout", Form::Timeout),
        ],
    },
    Treatment {
        why: "each log line is written to standard error at once",
        flags: &[
            ("log-flush-frequency", Form::Period),
            ("log-json-info-buffer-size", Form::Quantity),
            ("log-json-split-stream", Form::Bool),
            ("log-text-info-buffer-size", Form::Quantity),
            ("log-text-split-stream", Form::Bool),
        ],
    },
    Treatment {
        why: "a server can always listen on a port whose earlier connections are still ending",
        flags: &[("permit-address-sharing", Form::Bool)],
    },
    Treatment {
        why: "the environment variable RUST_LOG sets the level of each module",
        flags: &[("vmodule", Form::Levels)],
    },
    Treatment {
        why: "reads and watches are served from the store without a cache",
        flags: &[("watch-cache", Form::Bool), ("watch-cache-sizes", Form::CacheSizes)],
    },
];

/// The only refused flag. A value of 0 or less is accepted, because it means no limit.
const RATE: &str = "max-connection-bytes-per-sec";

const REFUSED: &[Refusal] = &[Refusal {
    why: "the server cannot limit the bytes per second of a connection; remove the flag or set it to 0",
    flags: &[RATE],
}];

impl Form {
    fn check(self, value: &str) -> Result<(), String> {
        match self {
            Form::Bool => boolean(value).map(drop),
            Form::Integer => integer::<i64>(value).map(drop),
            Form::Duration => go::duration::parse(value).map(drop).map_err(|error| error.to_string()),
            Form::Timeout => match go::duration::parse(value).map_err(|error| error.to_string())? {
                0.. => Ok(()),
                _ => Err("--storage-initialization-timeout can not be negative value".to_owned()),
            },
            Form::Period => match go::duration::parse(value).map_err(|error| error.to_string())? {
                nanos if nanos > 0 => Ok(()),
                nanos => {
                    let shown = if nanos == 0 { "0s" } else { value };
                    Err(format!("flushFrequency: Invalid value: {shown:?}: Must be greater than zero"))
                }
            },
            Form::Text => Ok(()),
            Form::Quantity => quantity(value),
            Form::Levels => levels(value),
            Form::Backend if matches!(value, "" | "etcd3") => Ok(()),
            Form::Backend => {
                Err("--storage-backend invalid, allowed values: etcd3. If not specified, it will default to \
                                  'etcd3'"
                    .to_owned())
            }
            Form::CacheSizes => value.split(',').filter(|size| !size.is_empty()).try_for_each(|item| {
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

/// Returns the form of the value of a flag without effect.
fn without_effect(name: &str) -> Option<Form> {
    let mut flags = WITHOUT_EFFECT.iter().flat_map(|treatment| treatment.flags);
    flags.find(|(flag, _)| *flag == name).map(|(_, form)| *form)
}

/// Returns the reason why a flag is refused, or `None` if it is not.
fn refusal(name: &str) -> Option<&'static str> {
    REFUSED.iter().find(|refusal| refusal.flags.contains(&name)).map(|refusal| refusal.why)
}

/// Returns whether the word after one of these flags is its value.
pub fn takes_value(name: &str) -> bool {
    refusal(name).is_some() || without_effect(name).is_some_and(|form| form != Form::Bool)
}

/// Removes the flags that have no effect. Expects each flag with its value in one word.
///
/// # Errors
/// A flag is refused, or its value is invalid; the error is one line.
pub fn settle(arguments: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let mut kept = Vec::with_capacity(arguments.len());
    let mut logging = Logging::default();
    for argument in arguments {
        let Some(flag) = argument.to_str().and_then(|text| text.strip_prefix("--")) else {
            kept.push(argument);
            continue;
        };
        let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
        logging.note(name, value.unwrap_or_default());
        if let (RATE, Some(value)) = (name, value) {
            match integer::<i64>(value) {
                Ok(..=0) => continue, // No limit, as without the flag.
                Ok(_) => {}
                Err(why) => return Err(invalid(&format!("--{RATE}"), value, &why)),
            }
        }
        if let Some(why) = refusal(name) {
            return Err(format!("--{name} is not supported: {why}"));
        }
        let Some(form) = without_effect(name) else {
            kept.push(argument);
            continue;
        };
        let value = match value {
            Some(value) => value,
            None if form == Form::Bool => "true",
            None => return Err(format!("flag needs an argument: --{name}")),
        };
        form.check(value).map_err(|why| match form {
            // kube-apiserver checks these values after it has parsed the command line.
            Form::Backend | Form::CacheSizes | Form::Timeout if !why.starts_with("time: ") => why,
            Form::Period if why.starts_with("flushFrequency") => why,
            _ => invalid(&format!("--{name}"), value, &why),
        })?;
        logging.note(name, value);
    }
    logging.check()?;
    Ok(kept)
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

    /// Returns the errors of kube-apiserver for combinations of logging flags that have no effect here.
    fn check(&self) -> Result<(), String> {
        let levels = (self.is_json && self.has_levels)
            .then(|| "vmodule: Forbidden: Only supported for text log format".to_owned());
        let used = self.options.iter().filter(|(is_used, _)| *is_used && !self.has_alpha_options);
        let options = used
            .map(|(_, path)| format!("options.{path}: Forbidden: Feature LoggingAlphaOptions is disabled"));
        go::join_errors(levels.into_iter().chain(options)).map_or(Ok(()), Err)
    }
}

/// Returns the section of `--help` about flags without effect.
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
    fn flags_without_effect_disappear_and_others_are_refused_by_name() {
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
