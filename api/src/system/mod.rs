//! What runs beside requests: the start and the controllers.

pub mod controllers;
pub mod startup;
