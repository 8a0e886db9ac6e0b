//! Flags of servers that tests start.

use clap::Args;

use crate::flags::value_parsers;

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Args)]
pub struct TestingFlags {
    /// Serve test features below /testing. Requests to these paths can move the clock of the server, make chosen
    /// requests fail, record requests, and save and restore all objects. Use this flag only for servers that tests
    /// start.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = value_parsers::boolean, action = clap::ArgAction::Set)]
    pub testing: bool,

    /// End the server when the process that started it ends, so that no server stays behind when a test is
    /// killed.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = value_parsers::boolean, action = clap::ArgAction::Set)]
    pub exit_with_parent: bool,
}
