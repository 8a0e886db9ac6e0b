//! Loads the types of all definitions at the start, before the first request.
//!
//! ```text
//! established definitions ─┬─► thread: outline read, prepared ─┐
//!                          └─► thread: outline read, prepared ─┴─► at most PREPARED_MAX waiting ─► served
//!                                                                                                     │
//! later: a request for an object, or one thread for all (complete) ─► schema read, equal parts shared ◄┘
//! ```
//!
//! Types are added to the registry in the order in which they were prepared, which makes no difference,
//! because the registry sorts them. Until its schema is read, a definition keeps the text of its record,
//! which is part of a file of the log.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::available_parallelism;

use bytes::Bytes;
use engine::Entry;
use parking_lot::Mutex;

use super::is_served;
use crate::writes::context::Context;
use crate::writes::loopback::Loopback;
use objects::custom::definition::Definition;
use objects::custom::established::Prepared;
use objects::custom::outline::outline;
use objects::store;
use types::schema::share::Pool;
use values::json::{self, Object, Value};
use values::object::meta;
use values::status::Status;

/// Maximum number of threads that prepare definitions.
const THREADS_MAX: usize = 4;

/// Maximum number of prepared definitions that wait to be served.
const PREPARED_MAX: usize = 8;

/// Serves the types of all definitions that are established in the store.
///
/// # Errors
/// The store failed. A definition that cannot be read or served is reported in the log and skipped.
pub fn load(api: &Context) -> Result<(), Status> {
    let snapshot = Loopback::new(api).store().view();
    let entries: Vec<Entry> = snapshot.prefix(&store::collection(api.definitions(), "")).collect();
    if entries.is_empty() {
        return Ok(());
    }
    let threads = available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX).min(entries.len());
    let entries = Mutex::new(entries.into_iter());
    let pool = api.establish(|established, _| Arc::clone(established.pool()));
    std::thread::scope(|scope| {
        let (send, prepared) = sync_channel(PREPARED_MAX);
        for _ in 0..threads {
            let (entries, pool, send) = (&entries, &pool, send.clone());
            scope.spawn(move || prepare(api, entries, pool, &send));
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

/// Prepares definitions until there are no more, or until the receiver was dropped after an error.
fn prepare(
    api: &Context,
    entries: &Mutex<impl Iterator<Item = Entry>>,
    pool: &Arc<Mutex<Pool>>,
    send: &SyncSender<Result<Prepared, Status>>,
) {
    loop {
        let Some(entry) = entries.lock().next() else { return };
        let Some(prepared) = prepared(api, entry, pool).transpose() else { continue };
        if send.send(prepared).is_err() {
            return;
        }
    }
}

/// Prepares a definition; returns `None` if it is not to be served.
fn prepared(api: &Context, entry: Entry, pool: &Arc<Mutex<Pool>>) -> Result<Option<Prepared>, Status> {
    let text = match store::read(entry) {
        Ok(stored) => stored.record.value,
        Err(error) => {
            tracing::error!(%error, "definition cannot be read, its types are not served");
            return Ok(None);
        }
    };
    let Some(outlined) = outlined(&text) else {
        return Ok(prepared_at_once(api, &text));
    };
    let definition = Definition::read(&outlined);
    if !is_served(api, &outlined, &definition) {
        return Ok(None);
    }
    let later =
        Prepared::deferred(meta(&outlined, "name"), &outlined, &definition, Bytes::clone(&text), pool);
    Ok(later.or_else(|| prepared_at_once(api, &text)))
}

/// Parses an object without its schemas; returns `None` if the text is unusual in any way.
pub(super) fn outlined(text: &[u8]) -> Option<Object> {
    object(&outline(text)?)
}

/// Parses an object. The text is canonical, so the result equals that of decoding by the definition's schema.
pub(super) fn object(text: &[u8]) -> Option<Object> {
    match json::parse(text) {
        Ok(Value::Object(object)) => Some(object),
        _ => None,
    }
}

/// Prepares a definition together with its schemas; returns `None` if it is not to be served.
fn prepared_at_once(api: &Context, text: &[u8]) -> Option<Prepared> {
    let object = object(text)?;
    let definition = Definition::read(&object);
    if !is_served(api, &object, &definition) {
        return None;
    }
    let name = meta(&object, "name");
    match Prepared::of(name, &object, &definition) {
        Ok(prepared) => Some(prepared),
        Err(error) => {
            tracing::error!(definition = name, %error, "types of a definition cannot be served");
            None
        }
    }
}

/// Reads the schemas of all definitions that no request has needed yet, one after the other, while the server
/// runs. Afterwards each type uses as much memory as its schema needs, and the files of the log are no longer
/// referenced.
pub(super) fn complete(api: &Context) {
    let all: Vec<_> = api.establish(|established, _| established.all().cloned().collect());
    all.iter().for_each(|resource| resource.complete());
}
