//! Loads the types of all definitions at the start, before the first request.
//!
//! ```text
//! established definitions ─┬─► thread: outline read, prepared ─┐
//!                          └─► thread: outline read, prepared ─┴─► at most PREPARED_MAX waiting ─► served
//!                                                                                                     │
//! later: a request for an object, or one thread for all (complete) ─► schema read, equal parts shared ◄┘
//! ```
//!
//! The order in which types are added to the registry makes no difference, because the registry sorts the
//! types. Until its schema is read, a definition holds a reference to the text of its record, which is in a
//! file of the log.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::available_parallelism;

use engine::Entry;
use parking_lot::Mutex;

use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::custom::established::Prepared;
use objects::custom::stored_definition;
use objects::store;
use types::schema::share::Pool;
use values::status::Status;

/// Maximum number of threads that prepare definitions.
const THREADS_MAX: usize = 4;

/// Maximum number of prepared definitions that wait to be served.
const PREPARED_MAX: usize = 8;

/// Serves the types of all definitions that are established in the store.
///
/// # Errors
/// The store failed. A definition that cannot be read or served is reported in the log and skipped.
pub fn load(server: &Server) -> Result<(), Status> {
    let snapshot = Loopback::new(server).store().view();
    let entries: Vec<Entry> = snapshot.prefix(&store::collection(&server.types.definitions, "")).collect();
    if entries.is_empty() {
        return Ok(());
    }
    let threads = available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX).min(entries.len());
    let entries = Mutex::new(entries.into_iter());
    let pool = server.establish(|established, _| Arc::clone(established.pool()));
    std::thread::scope(|scope| {
        let (send, prepared) = sync_channel(PREPARED_MAX);
        for _ in 0..threads {
            let (entries, pool, send) = (&entries, &pool, send.clone());
            scope.spawn(move || prepare(server, entries, pool, &send));
        }
        drop(send);
        server.establish(|established, changes| {
            for prepared in prepared {
                established.put(prepared?, server.types.naming, changes);
            }
            Ok(())
        })
    })
}

/// Prepares all definitions; ends early if the receiver was dropped after an error.
fn prepare(
    server: &Server,
    entries: &Mutex<impl Iterator<Item = Entry>>,
    pool: &Arc<Mutex<Pool>>,
    send: &SyncSender<Result<Prepared, Status>>,
) {
    loop {
        let Some(entry) = entries.lock().next() else { return };
        let Some(prepared) = prepared(server, entry, pool).transpose() else { continue };
        if send.send(prepared).is_err() {
            return;
        }
    }
}

/// Prepares a definition. Returns `None` if the definition must not be served.
fn prepared(server: &Server, entry: Entry, pool: &Arc<Mutex<Pool>>) -> Result<Option<Prepared>, Status> {
    let text = match store::read(entry) {
        Ok(stored) => stored.record.value,
        Err(error) => {
            tracing::error!(%error, "definition cannot be read, its types are not served");
            return Ok(None);
        }
    };
    Ok(stored_definition::prepared(server.types.naming, &text, pool))
}

/// Reads the schemas of all definitions that no request has needed yet, one after the other, while the server
/// runs. Afterwards each type uses as much memory as its schema needs, and the files of the log are no longer
/// referenced.
pub(super) fn complete(server: &Server) {
    let all: Vec<_> = server.establish(|established, _| established.all().cloned().collect());
    all.iter().for_each(|resource| resource.complete());
}
