//! Conversions that the computation of a write needs. Each conversion converts the object to a version in
//! which a field manager wrote the object.
//!
//! Field ownership is computed synchronously, but the call of a conversion webhook must be awaited. Therefore
//! the computation records a missing conversion and fails. The caller awaits the conversion
//! ([`Converter::make`](super::Converter::make)) and repeats the computation.

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
    requested: Vec<ConversionRequest>,
}

/// An object and the `apiVersion` to convert it to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConversionRequest {
    pub(super) object: Object,
    pub(super) to: String,
}

impl Conversions {
    /// Returns an object in the version `to`. Returns `None` if the object cannot be converted, or if the
    /// conversion is not known yet. In the second case, the function records a request for the conversion.
    pub fn get(&self, versions: &Versions, object: Object, to: &str) -> Option<Object> {
        let version: &VersionedTable = versions.get(to)?;
        if !versions.has_webhook() {
            return renamed(object, version).ok();
        }
        let request = ConversionRequest { object, to: to.to_owned() };
        let mut state = self.0.lock();
        if let Some((_, converted)) = state.known.iter().find(|(known, _)| *known == request) {
            return Some(converted.clone());
        }
        if !state.requested.contains(&request) {
            state.requested.push(request);
        }
        None
    }

    /// Returns whether the computation has requested conversions.
    pub fn has_requests(&self) -> bool {
        !self.0.lock().requested.is_empty()
    }

    /// Discards all conversions when a write ends.
    pub fn clear(&self) {
        *self.0.lock() = State::default();
    }

    pub(super) fn take_requests(&self) -> Vec<ConversionRequest> {
        std::mem::take(&mut self.0.lock().requested)
    }

    pub(super) fn learn(&self, request: ConversionRequest, converted: Object) {
        self.0.lock().known.push((request, converted));
    }
}
