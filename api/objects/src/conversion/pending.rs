//! Conversions that a write needs while it is computed: of its object to the versions in which field managers
//! wrote it.
//!
//! Ownership is computed synchronously, and a webhook takes time. So a missing conversion is recorded, the
//! caller has it made ([`Converter::make`](super::Converter::make)), and the computation starts again.

use parking_lot::Mutex;

use super::renamed;
use types::schema::versioned::{VersionedTable, Versions};
use values::json::Object;

/// The known and requested conversions of one write.
#[derive(Debug, Default)]
pub struct Conversions(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: Vec<(ConversionRequest, Object)>,
    wanted: Vec<ConversionRequest>,
}

/// An object and the `apiVersion` to convert it to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConversionRequest {
    pub(super) object: Object,
    pub(super) to: String,
}

impl Conversions {
    /// Returns an object in the version `to`. Returns `None` if it cannot be converted, or not yet; the
    /// conversion is then requested.
    pub fn get(&self, versions: &Versions, object: Object, to: &str) -> Option<Object> {
        let version: &VersionedTable = versions.get(to)?;
        if !versions.has_webhook() {
            return renamed(object, version).ok();
        }
        let asked = ConversionRequest { object, to: to.to_owned() };
        let mut state = self.0.lock();
        if let Some((_, converted)) = state.known.iter().find(|(known, _)| *known == asked) {
            return Some(converted.clone());
        }
        if !state.wanted.contains(&asked) {
            state.wanted.push(asked);
        }
        None
    }

    /// Returns whether conversions are requested.
    pub fn is_wanting(&self) -> bool {
        !self.0.lock().wanted.is_empty()
    }

    /// Discards all conversions, at the end of a write.
    pub fn clear(&self) {
        *self.0.lock() = State::default();
    }

    pub(super) fn take_wanted(&self) -> Vec<ConversionRequest> {
        std::mem::take(&mut self.0.lock().wanted)
    }

    pub(super) fn learn(&self, asked: ConversionRequest, converted: Object) {
        self.0.lock().known.push((asked, converted));
    }
}
