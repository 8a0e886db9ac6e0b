//! Conversions that a write asks for while it is worked out: those of its object to the versions in which managers of
//! fields wrote it.
//!
//! What owns what is worked out in one go, and a webhook takes time. So a conversion that is not known yet is noted, the
//! caller has it made ([`Converter::make`](super::Converter::make)), and begins anew.

use parking_lot::Mutex;

use super::renamed;
use crate::types::schema::versioned::{Version, Versions};
use crate::values::json::Object;

/// The conversions of one write.
#[derive(Debug, Default)]
pub struct Conversions(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: Vec<(Asked, Object)>,
    wanted: Vec<Asked>,
}

/// An object, and the `apiVersion` that it is wanted in.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) object: Object,
    pub(super) to: String,
}

impl Conversions {
    /// Returns an object in the version `to`; `None` where it cannot be had, or not yet.
    pub fn get(&self, versions: &Versions, object: Object, to: &str) -> Option<Object> {
        let version: &Version = versions.get(to)?;
        if !versions.has_webhook() {
            return renamed(object, version).ok();
        }
        let asked = Asked { object, to: to.to_owned() };
        let mut state = self.0.lock();
        if let Some((_, converted)) = state.known.iter().find(|(known, _)| *known == asked) {
            return Some(converted.clone());
        }
        if !state.wanted.contains(&asked) {
            state.wanted.push(asked);
        }
        None
    }

    /// Returns whether there are conversions to be made.
    pub fn is_wanting(&self) -> bool {
        !self.0.lock().wanted.is_empty()
    }

    /// Forgets everything, at the end of a write.
    pub fn clear(&self) {
        *self.0.lock() = State::default();
    }

    pub(super) fn take_wanted(&self) -> Vec<Asked> {
        std::mem::take(&mut self.0.lock().wanted)
    }

    pub(super) fn learn(&self, asked: Asked, converted: Object) {
        self.0.lock().known.push((asked, converted));
    }
}
