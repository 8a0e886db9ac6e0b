//! Flags of the time limits of requests and of the shutdown.

use std::time::Duration;

use api::writes::server::operations::Limits;
use clap::Args;

use crate::flags::problems::{FlagError, Problems};
use crate::flags::value_parsers::boolean;
use crate::flags::{duration, value_parsers};
use crate::host::process_end;

/// Time for the steps of a shutdown that do not drain requests, if the operator does not set the deadline.
const CLOSING: Duration = Duration::from_secs(10);

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Args)]
pub struct RequestFlags {
    /// Longest duration of a request. Watches and other streams have no such limit.
    #[arg(long, value_name = "DURATION", default_value = "1m0s", value_parser = duration::parse)]
    pub request_timeout: Duration,

    /// Shortest duration of a watch, in seconds. The server ends each watch after a random time between this
    /// value and twice this value.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = value_parsers::integer::<u32>)]
    pub min_request_timeout: u32,

    /// How long after its start the server reports success at /livez although start-up checks are not
    /// finished.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub livez_grace_period: Duration,

    /// How long an event is kept after its last write. 0 keeps events until they are deleted.
    #[arg(long, value_name = "DURATION", default_value = "1h0m0s", value_parser = duration::parse_clamped)]
    pub event_ttl: Duration,

    /// Whether each write stores its author: user, user agent, field manager, audit ID and address. An author
    /// takes about 100 bytes. A store on etcd has no authors.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub history_authors: bool,

    /// How long the continue token of a list stays valid after a newer write. After this time, a request for
    /// the next chunk is answered with 410, even if the history still has the revision of the list. Clients
    /// expect that tokens expire within 10 minutes. 0 means that a token is valid as long as the history has
    /// its revision.
    #[arg(long, value_name = "DURATION", default_value = "5m0s", value_parser = duration::parse)]
    pub continue_ttl: Duration,

    /// How long the server still serves requests after SIGTERM, while /readyz fails. Load balancers need this
    /// time to stop sending requests.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub shutdown_delay_duration: Duration,

    /// Period after --shutdown-delay-duration in which the server ends watches one after the other, so that
    /// their clients do not all connect to another server at once.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub shutdown_watch_termination_grace_period: Duration,

    /// Longest time from the end of --shutdown-delay-duration to the end of the process. Requests, audit
    /// events and trace spans that are unfinished by then are lost. 0 means 10s more than --request-timeout
    /// or --shutdown-watch-termination-grace-period, whichever is longer.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub shutdown_deadline: Duration,
}

/// Time limits of requests and of the shutdown.
#[derive(Clone, Debug)]
pub struct RequestSettings {
    /// Limits of requests, watches and events.
    pub limits: Limits,
    /// Limits of the shutdown.
    pub shutdown: process_end::Settings,
}

impl RequestSettings {
    /// Returns how long the drain waits for requests and watches.
    pub fn drain_timeout(&self) -> Duration {
        self.limits.request_timeout.max(self.limits.watch_grace)
    }
}

impl RequestFlags {
    /// Returns the settings. Adds an error if the time limit of requests is zero.
    pub fn settings(&self, problems: &mut Problems) -> RequestSettings {
        if self.request_timeout.is_zero() {
            let text = "--request-timeout must be positive";
            problems.add(FlagError::worded("request-timeout", "0", text));
        }
        let limits = Limits {
            request_timeout: self.request_timeout,
            min_request_timeout: Duration::from_secs(self.min_request_timeout.into()),
            livez_grace_period: self.livez_grace_period,
            event_ttl: self.event_ttl,
            watch_grace: self.shutdown_watch_termination_grace_period,
            records_authors: self.history_authors,
            continue_ttl: self.continue_ttl,
        };
        let delay = self.shutdown_delay_duration;
        let mut settings = RequestSettings {
            limits,
            shutdown: process_end::Settings { delay, deadline: self.shutdown_deadline },
        };
        if self.shutdown_deadline.is_zero() {
            settings.shutdown.deadline = settings.drain_timeout().saturating_add(CLOSING);
        }
        settings
    }
}
