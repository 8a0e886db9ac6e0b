//! The types of all definitions at the start, before the first request.
//!
//! ```text
//! established definitions ─┬─► thread: read, prepared ─┐
//!                          └─► thread: read, prepared ─┴─► at most PREPARED_MAX waiting ─► what is equal shared ─► served
//! ```
//!
//! Types are put into the registry in the order in which they were prepared, which makes no difference: it sorts them.

use std::num::NonZero;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::available_parallelism;

use engine::Entry;
use parking_lot::Mutex;

use super::is_served;
use crate::objects::custom::definition::Definition;
use crate::objects::custom::established::Prepared;
use crate::objects::store;
use crate::values::json::{self, Value};
use crate::values::object::meta;
use crate::values::status::Status;
use crate::writes::context::Context;
use crate::writes::loopback::Loopback;

/// Most threads that prepare definitions.
const THREADS_MAX: usize = 4;

/// Most prepared definitions that wait to be served.
const PREPARED_MAX: usize = 8;

/// Serves the types of all definitions that are established in the store.
///
/// # Errors
/// The store failed. A definition that cannot be read or served is reported in the log and left out.
pub fn load(api: &Context) -> Result<(), Status> {
    let snapshot = Loopback::new(api).store().view();
    let entries: Vec<Entry> = snapshot.prefix(&store::collection(api.definitions(), "")).collect();
    if entries.is_empty() {
        return Ok(());
    }
    let threads = available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX).min(entries.len());
    let entries = Mutex::new(entries.into_iter());
    std::thread::scope(|scope| {
        let (send, prepared) = sync_channel(PREPARED_MAX);
        for _ in 0..threads {
            let (entries, send) = (&entries, send.clone());
            scope.spawn(move || prepare(api, entries, &send));
        }
        drop(send);
        api.establish(|established, changes| {
            for prepared in prepared {
                established.put(prepared?, api.naming(), changes);
            }
            Ok(())
        })
    })
}

/// Prepares definitions until none is left, or until the other side goes away with an error.
fn prepare(
    api: &Context,
    entries: &Mutex<impl Iterator<Item = Entry>>,
    send: &SyncSender<Result<Prepared, Status>>,
) {
    loop {
        let Some(entry) = entries.lock().next() else { return };
        let Some(prepared) = prepared(api, entry).transpose() else { continue };
        if send.send(prepared).is_err() {
            return;
        }
    }
}

/// A definition prepared; `None` for one that is not to be served.
fn prepared(api: &Context, entry: Entry) -> Result<Option<Prepared>, Status> {
    let stored = store::read(entry)?;
    // The text is the canonical one: it says what the tree by the definition's schema would.
    let Ok(Value::Object(object)) = json::parse(&stored.record.value) else { return Ok(None) };
    let definition = Definition::read(&object);
    if !is_served(api, &object, &definition) {
        return Ok(None);
    }
    let name = meta(&object, "name");
    match Prepared::of((name, &object), &definition) {
        Ok(prepared) => Ok(Some(prepared)),
        Err(error) => {
            tracing::error!(definition = name, %error, "types of a definition cannot be served");
            Ok(None)
        }
    }
}
