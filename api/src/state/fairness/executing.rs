//! The running requests of a level, for display. Seats do not depend on this list.
//!
//! Each request takes a slot of the list. Slots are reused, so the list grows only with the number of
//! concurrent requests.

use std::sync::Arc;
use std::time::Instant;

use auth::Attributes;
use parking_lot::Mutex;

/// The running requests of a level.
#[derive(Debug, Default)]
pub(super) struct Executing(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    places: Vec<Option<Runner>>,
    free: Vec<usize>,
}

/// A running request, for display.
#[derive(Clone, Debug)]
pub(super) struct Runner {
    /// Name of the flow schema of the request.
    pub(super) schema: String,
    /// Name of the flow of the request.
    pub(super) flow: String,
    /// The attributes of the request, as [`format_attributes`] formats them.
    pub(super) attributes_text: String,
    /// The queue of the flow of the request; `None` in a level without queues.
    pub(super) queue: Option<usize>,
    /// Number of seats that the request takes.
    pub(super) seats: u32,
    /// Time when the request arrived.
    pub(super) arrived: Instant,
    /// Time when the request got its seats.
    pub(super) began: Instant,
}

/// Formats the request attributes: user, verb, path, namespace, name, version, resource and subresource,
/// separated by [`BETWEEN`].
pub(super) fn format_attributes(attributes: &Attributes<'_>) -> String {
    let Attributes { user, verb, path, namespace, name, group, version, resource, subresource, .. } =
        *attributes;
    let slash = if group.is_empty() { "" } else { "/" };
    let to_name = [&*user.name, BETWEEN, verb, BETWEEN, path, BETWEEN, namespace, BETWEEN, name, BETWEEN];
    let parts = to_name.into_iter().chain([group, slash, version, BETWEEN, resource, BETWEEN, subresource]);
    let mut text = String::with_capacity(parts.clone().map(str::len).sum());
    text.extend(parts);
    text
}

/// Separator of the request attributes. An attribute that contains the separator is displayed as two
/// attributes.
pub(super) const BETWEEN: &str = "\0";

/// The slot of a request. Dropping the value frees the slot.
#[derive(Debug)]
pub(super) struct ExecutingEntry {
    executing: Arc<Executing>,
    place: usize,
}

impl Executing {
    /// Adds a request to the list.
    pub(super) fn list(self: &Arc<Self>, runner: Runner) -> ExecutingEntry {
        let mut places = self.0.lock();
        let place = match places.free.pop() {
            Some(place) => {
                places.places[place] = Some(runner);
                place
            }
            None => {
                places.places.push(Some(runner));
                places.places.len() - 1
            }
        };
        ExecutingEntry { executing: self.clone(), place }
    }

    /// Returns the requests that are running now.
    pub(super) fn all(&self) -> Vec<Runner> {
        self.0.lock().places.iter().flatten().cloned().collect()
    }
}

impl Drop for ExecutingEntry {
    fn drop(&mut self) {
        let mut places = self.executing.0.lock();
        places.places[self.place] = None;
        places.free.push(self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executing_request_is_described_by_eight_attributes() {
        let user = auth::User::new("joe", ["g"]);
        let path = Attributes::path(&user, "get", "/a");
        let scale = Attributes {
            group: "apps",
            version: "v1",
            resource: "deployments",
            subresource: "scale",
            namespace: "n",
            name: "d",
            ..path
        };
        for (attributes, want) in [
            (path, "joe|get|/a|||||"),
            (Attributes { version: "v1", resource: "pods", ..path }, "joe|get|/a|||v1|pods|"),
            (scale, "joe|get|/a|n|d|apps/v1|deployments|scale"),
        ] {
            assert_eq!(format_attributes(&attributes).replace(BETWEEN, "|"), want);
        }
    }

    #[test]
    fn slots_of_finished_requests_are_reused() {
        let executing = Arc::new(Executing::default());
        let list = |flow: &str| {
            let now = Instant::now();
            let (schema, flow, attributes_text) = (String::new(), flow.to_owned(), String::new());
            executing.list(Runner {
                schema,
                flow,
                attributes_text,
                queue: None,
                seats: 1,
                arrived: now,
                began: now,
            })
        };
        let flows = || executing.all().into_iter().map(|runner| runner.flow).collect::<Vec<_>>();
        let (first, _second) = (list("a"), list("b"));
        drop(first);
        assert_eq!(flows(), ["b"]);
        let _third = list("c");
        assert_eq!(flows(), ["c", "b"]);
        assert_eq!(executing.0.lock().places.len(), 2);
    }
}
