//! Work that is not part of a request: the start-up and the controllers.

pub mod controllers;
pub mod startup;
