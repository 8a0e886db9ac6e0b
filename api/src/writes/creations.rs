//! The creations in namespaces that are in progress. The deletion of a namespace waits for the creations that
//! may have read the namespace as active.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The creations that may have looked up their namespace and have not ended.
#[derive(Default)]
pub struct Creations {
    tickets: Mutex<Tickets>,
    ended: Notify,
}

#[derive(Default)]
struct Tickets {
    next: u64,
    open: BTreeSet<u64>,
}

/// A creation in progress. Dropping this value ends the creation.
pub struct Creation<'c> {
    creations: &'c Creations,
    ticket: u64,
}

impl Creations {
    /// Begins a creation. Call this before the lookup of the namespace.
    pub fn begin(&self) -> Creation<'_> {
        let mut tickets = self.tickets.lock();
        let ticket = tickets.next;
        tickets.next += 1;
        tickets.open.insert(ticket);
        Creation { creations: self, ticket }
    }

    /// Resolves when all creations that began before the call have ended. The wait does not include later
    /// creations.
    pub async fn settled(&self) {
        let before = self.tickets.lock().next;
        loop {
            let ended = self.ended.notified();
            if self.tickets.lock().open.first().is_none_or(|first| *first >= before) {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for Creation<'_> {
    fn drop(&mut self) {
        self.creations.tickets.lock().open.remove(&self.ticket);
        self.creations.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn settled_waits_only_for_creations_that_began_earlier() {
        let creations = Creations::default();
        let earlier = [creations.begin(), creations.begin()];
        let mut settled = pin!(creations.settled());
        let mut poll = || settled.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(poll(), Poll::Pending);
        let later = creations.begin();
        let [first, second] = earlier;
        drop(second);
        assert_eq!(poll(), Poll::Pending);
        drop(first);
        assert_eq!(poll(), Poll::Ready(()));
        drop(later);
        assert!(creations.tickets.lock().open.is_empty());
    }
}
