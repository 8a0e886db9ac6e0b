//! The state that a request reads: the newest state, or the state at an earlier point.

use engine::Revision;

use super::Call;
use objects::store::{self, StoreView, Stored};
use values::status::Status;

impl Call<'_> {
    /// Returns the view for a request that names no revision.
    ///
    /// # Errors
    /// 410 if the earlier point was compacted in the meantime.
    pub(crate) fn view(&self) -> Result<StoreView, Status> {
        let store = self.store();
        let Some(past) = self.request.past else { return Ok(store.view()) };
        store.view_at(past.revision).map_err(|error| past.refused(&store, &error))
    }

    /// Returns one object in the state that the request reads.
    ///
    /// # Errors
    /// Fails with 500 if the record cannot be read, or with 410 in the same cases as [`Call::view`].
    pub(super) fn read(&self, key: &[u8]) -> Result<Option<Stored>, Status> {
        match self.request.past {
            None => self.store().get(key),
            Some(_) => self.view()?.get(key).map(store::read).transpose(),
        }
    }

    /// Waits for a bounded time until the store has reached a revision. A request at an earlier point does
    /// not wait.
    ///
    /// # Errors
    /// 504 if the revision is not reached, or is after the earlier point.
    pub(super) async fn reach_revision(&self, revision: Revision) -> Result<(), Status> {
        match self.request.past {
            None => self.server().store.wait_for_revision(self.resource, revision).await,
            Some(past) => past.check_revision(revision),
        }
    }
}
