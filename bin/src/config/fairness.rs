//! Flags of priority and fairness.

use api::state::fairness::Settings;
use clap::Args;

use crate::flags::problems::{FlagError, Problems};
use crate::flags::value_parsers;

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Args)]
pub struct FairnessFlags {
    /// Limit concurrent requests by priority levels and flow schemas (API priority and fairness). If false,
    /// --max-requests-inflight and --max-mutating-requests-inflight are the only limits.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = value_parsers::boolean, action = clap::ArgAction::Set)]
    pub enable_priority_and_fairness: bool,

    /// Largest number of concurrent reading requests. 0 means no limit. Priority levels share the sum of this
    /// flag and --max-mutating-requests-inflight.
    #[arg(long, value_name = "NUMBER", default_value_t = 400, allow_negative_numbers = true, value_parser = value_parsers::integer::<i32>)]
    pub max_requests_inflight: i32,

    /// Largest number of concurrent writing requests. 0 means no limit. Priority levels share the sum of this
    /// flag and --max-requests-inflight.
    #[arg(long, value_name = "NUMBER", default_value_t = 200, allow_negative_numbers = true, value_parser = value_parsers::integer::<i32>)]
    pub max_mutating_requests_inflight: i32,
}

impl FairnessFlags {
    /// Returns the settings. Adds an error for each negative limit. Also adds an error if priority and
    /// fairness is enabled and both limits are 0, because no request could run in this case.
    pub fn settings(&self, problems: &mut Problems) -> Option<Settings> {
        let reading = problems.take(not_negative("max-requests-inflight", self.max_requests_inflight));
        let writing = problems
            .take(not_negative("max-mutating-requests-inflight", self.max_mutating_requests_inflight));
        let (reading, writing) = (reading?, writing?);
        let is_shared = self.enable_priority_and_fairness;
        if is_shared && reading + writing == 0 {
            let text = "invalid configuration: MaxRequestsInFlight=0 and MaxMutatingRequestsInFlight=0; they must add \
                        up to something positive";
            problems.add(FlagError::worded("max-requests-inflight", "0", text));
        }
        Some(Settings { is_shared, reading, writing })
    }
}

fn not_negative(flag: &str, value: i32) -> Result<u32, FlagError> {
    let negative = |_| FlagError::worded(flag, value, format_args!("--{flag} can not be negative value"));
    u32::try_from(value).map_err(negative)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrency_limits_are_not_negative_and_not_both_zero() {
        let settings = |is_shared, reading, writing| {
            let flags = FairnessFlags {
                enable_priority_and_fairness: is_shared,
                max_requests_inflight: reading,
                max_mutating_requests_inflight: writing,
            };
            let mut problems = Problems::default();
            let settings = flags.settings(&mut problems);
            problems.finish(settings).map_err(|errors| errors.to_string())
        };
        assert_eq!(settings(true, 400, 200), Ok(Settings::default()));
        assert_eq!(settings(false, 0, 0), Ok(Settings { is_shared: false, reading: 0, writing: 0 }));
        assert_eq!(settings(true, -1, 0).unwrap_err(), "--max-requests-inflight can not be negative value");
        assert_eq!(
            settings(true, 0, -1).unwrap_err(),
            "--max-mutating-requests-inflight can not be negative value"
        );
        assert!(settings(true, 0, 0).unwrap_err().contains("must add up to something positive"));
    }
}
