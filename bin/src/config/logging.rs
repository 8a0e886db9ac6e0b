//! Flags of the log.

use clap::Args;

use crate::flags::value_parsers;
use crate::host::logging::{LogFormat, Settings};

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Args)]
pub struct LoggingFlags {
    /// Level of detail of the log, 0 to 6. 0: events, refusals and slow requests; 1: also failed requests; 2:
    /// also writes; 3: also all other requests; 4: also details of the server; 5: also details of
    /// connections; 6: everything. The environment variable RUST_LOG takes precedence.
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 0, allow_negative_numbers = true,
          value_parser = value_parsers::level)]
    pub verbosity: u8,

    /// Format of the log on stderr. Possible values: text, json (one object per line).
    #[arg(long, alias = "logging-format", value_name = "FORMAT", default_value = "text", value_parser = log_format)]
    pub log_format: LogFormat,
}

impl LoggingFlags {
    /// Returns the settings of the log.
    pub fn settings(&self) -> Settings {
        Settings { format: self.log_format, verbosity: self.verbosity }
    }
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("must be text or json".to_owned()),
    }
}
