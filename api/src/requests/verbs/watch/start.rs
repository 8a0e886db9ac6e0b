//! The beginning of a watch at a revision or an earlier point. At an earlier point only bookmarks follow the
//! initial events, until the time of the watch is over.

use engine::Revision;
use tokio::time::Instant;

use super::counts::count;
use super::{Ends, FUTURE_WAIT, State};
use crate::requests::verbs::Call;
use objects::store::Store;
use values::status::Status;

/// Returns the error of a watch whose revision does not exist. The revision is after the earlier point of the
/// watch, or the store does not reach the revision in time. Only a watch with initial events waits.
pub(super) async fn not_reached(
    call: &Call<'_>,
    store: &Store<'_>,
    revision: Revision,
    initial: bool,
) -> Option<Status> {
    if let Some(past) = call.request.past {
        return past.check_revision(revision).err();
    }
    if !initial || revision <= store.revision() {
        return None;
    }
    let reached = tokio::time::timeout(FUTURE_WAIT, store.reached(revision)).await;
    reached.err().map(|_| Status::too_large_resource_version(revision.get(), store.revision().get(), 1))
}

/// Returns a future that ends once the type is no longer served. The types of an earlier point do not change.
pub(super) fn end_of_type(call: &Call<'_>) -> Option<Ends> {
    if call.request.past.is_some() {
        return None;
    }
    call.server().types.retired(call.resource).map(|retired| Box::pin(retired) as Ends)
}

impl State {
    /// Waits for the next bookmark or the end.
    pub(super) async fn stand_still(&mut self) {
        let wake_at = self.schedule.wake_at();
        if self.alarm.deadline() != wake_at {
            self.alarm.as_mut().reset(wake_at);
        }
        tokio::select! {
            () = &mut self.shutdown => self.ended = true,
            () = &mut self.alarm => {
                let now = Instant::now();
                if self.schedule.is_over(now) {
                    self.ended = true;
                } else if self.schedule.take_bookmark(now) {
                    count(self.counts.bookmarks.as_ref());
                    self.renderer.bookmark(self.initial_revision, false, &mut self.buffer);
                }
            }
        }
    }
}
