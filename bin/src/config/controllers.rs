//! Flags that select the controllers that the server runs.

use api::system::controllers::Selection;
use clap::Args;

use crate::flags::value_parsers;

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Args)]
pub struct ControllerFlags {
    /// Controllers to run, separated by commas: * runs all controllers, NAME runs the controller with this
    /// name, and -NAME excludes it.
    #[arg(long, value_name = "NAMES", default_value_t, value_parser = Selection::parse)]
    pub controllers: Selection,

    /// Run the garbage collector, which deletes dependents of deleted owners, and support foreground deletion
    /// and orphaning.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = value_parsers::boolean, action = clap::ArgAction::Set)]
    pub enable_garbage_collector: bool,
}

/// Settings of the controllers.
#[derive(Clone, Debug)]
pub struct ControllerSettings {
    /// The controllers that the server runs.
    pub selection: Selection,
    /// Whether the garbage collector runs.
    pub collects_garbage: bool,
}

impl ControllerFlags {
    /// Returns the settings of the controllers.
    pub fn settings(&self) -> ControllerSettings {
        ControllerSettings {
            selection: self.controllers.clone(),
            collects_garbage: self.enable_garbage_collector,
        }
    }
}
