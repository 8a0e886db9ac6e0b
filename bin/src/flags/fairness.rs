//! Flags of priority and fairness.

use api::state::fairness::Settings;
use clap::Args;

use crate::flaws::Flaws;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct FairnessFlags {
    /// Let the priority levels share the server, as flow schemas and priority levels say. Otherwise two plain bounds hold.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = super::forms::boolean, action = clap::ArgAction::Set)]
    pub enable_priority_and_fairness: bool,

    /// Most requests at once that read; 0: no bound. Priority levels share the sum of both bounds.
    #[arg(long, value_name = "NUMBER", default_value_t = 400, allow_negative_numbers = true, value_parser = super::forms::integer::<i32>)]
    pub max_requests_inflight: i32,

    /// Most requests at once that write; 0: no bound. Priority levels share the sum of both bounds.
    #[arg(long, value_name = "NUMBER", default_value_t = 200, allow_negative_numbers = true, value_parser = super::forms::integer::<i32>)]
    pub max_mutating_requests_inflight: i32,
}

impl FairnessFlags {
    /// Says what is wrong with each bound.
    pub fn check(&self, flaws: &mut Flaws) {
        flaws.take(bound("max-requests-inflight", self.max_requests_inflight));
        flaws.take(bound("max-mutating-requests-inflight", self.max_mutating_requests_inflight));
    }

    /// What they ask for.
    ///
    /// # Errors
    /// A bound is negative, or nothing would ever run.
    pub fn settings(&self) -> Result<Settings, String> {
        let reading = bound("max-requests-inflight", self.max_requests_inflight)?;
        let writing = bound("max-mutating-requests-inflight", self.max_mutating_requests_inflight)?;
        let is_shared = self.enable_priority_and_fairness;
        if is_shared && reading + writing == 0 {
            return Err("invalid configuration: MaxRequestsInFlight=0 and MaxMutatingRequestsInFlight=0; they must add \
                        up to something positive"
                .to_owned());
        }
        Ok(Settings { is_shared, reading, writing })
    }
}

fn bound(name: &str, value: i32) -> Result<u32, String> {
    u32::try_from(value).map_err(|_| format!("--{name} can not be negative value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_not_negative_and_leave_something_to_share() {
        let settings = |is_shared, reading, writing| {
            FairnessFlags {
                enable_priority_and_fairness: is_shared,
                max_requests_inflight: reading,
                max_mutating_requests_inflight: writing,
            }
            .settings()
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
