//! The identity of a store: the naming profile of its objects, and the unique name of the store. The identity
//! is a record in the log of the store. The files `profile` and `store-id` next to the log are copies of it
//! (docs/format.md#identity).
//!
//! ```text
//! record in the log ─────┬─► the record decides ─► the files are written to agree
//! no record (older store)┴─► the file decides, else the objects ─► the record is written
//! ```

use std::path::Path;

use anyhow::{Context, bail};
use bytes::Bytes;
use engine::offline::{LogItem, Store};
use engine::{Change, Engine, Expected, Payload, Revision, Write};
use values::naming;

use crate::flags::profile::Profile;
use crate::host::files;
use crate::store::location::{self, StoreLocation};

/// Name of the file with the naming profile of the store. If the server's own log stores the objects, the
/// profile in the log is authoritative. If etcd stores the objects, only this file has the profile.
pub const PROFILE_FILE: &str = "profile";

/// Key of the identity record. The keys of objects begin with `/`, so there is no conflict.
const KEY: &[u8] = b"store/identity";

/// The first line of the record, with the name and the version of the layout.
const TITLE: &str = "identity 1";

/// Maximum number of records that [`check_early`] reads from the beginning of a log. The identity is among
/// the first records.
const EARLY_RECORDS_MAX: usize = 16;

/// Contents of the identity record.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Identity {
    /// Naming profile of the objects.
    profile: String,
    /// Number of the store ([`Engine::store_number`]) when the record was written. A restored store has
    /// another number.
    number: u64,
    id: String,
}

impl Identity {
    fn encode(&self) -> String {
        let Identity { profile, number, id } = self;
        format!("{TITLE}\nprofile {profile}\nstore {number:016x}\nid {id}\n")
    }

    /// Decodes a value. Returns `None` if the value is not an identity, or if it has the layout of a later
    /// release.
    fn decode(value: &[u8]) -> Option<Identity> {
        let mut lines = std::str::from_utf8(value).ok()?.lines();
        lines.next().filter(|title| *title == TITLE)?;
        let mut member = |name: &str| Some(lines.next()?.strip_prefix(name)?.strip_prefix(' ')?.to_owned());
        let (profile, number, id) = (member("profile")?, member("store")?, member("id")?);
        Some(Identity { profile, number: u64::from_str_radix(&number, 16).ok()?, id })
    }
}

/// Refuses a store with another naming profile before the server changes anything. Reads only the profile file or the
/// first records of the log. If there is no identity, only [`settle`] can check the profile.
///
/// # Errors
/// The store has another profile.
pub fn check_early(data_dir: &Path, naming: Profile) -> anyhow::Result<()> {
    let dir = location::log_dir(data_dir);
    let is_segment = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".segment");
    let has_log = std::fs::read_dir(&dir).is_ok_and(|entries| entries.flatten().any(is_segment));
    if !has_log || location::recorded(data_dir)? == Some(StoreLocation::Etcd) {
        return check_file(data_dir, naming);
    }
    // Ignore an error here, because the later open of the store reports it.
    let Ok(store) = Store::open(&dir) else { return Ok(()) };
    let value = store.records().take(EARLY_RECORDS_MAX).find_map(|found| match found {
        LogItem::Record(record) if record.key() == KEY => record.value(),
        _ => None,
    });
    match value.and_then(|value| Identity::decode(&value)) {
        Some(identity) => must_be(data_dir, &identity.profile, naming),
        None => Ok(()),
    }
}

/// Refuses a directory whose profile file has another naming profile.
///
/// # Errors
/// The file has another profile, or cannot be read.
pub fn check_file(data_dir: &Path, naming: Profile) -> anyhow::Result<()> {
    profile_in_file(data_dir)?.map_or(Ok(()), |profile| must_be(data_dir, &profile, naming))
}

/// Writes the profile file of a directory whose objects are stored in etcd. Must be called before anything is
/// stored.
///
/// # Errors
/// The file has another profile, or cannot be written.
pub fn remember_profile(data_dir: &Path, naming: Profile) -> anyhow::Result<()> {
    check_file(data_dir, naming)?;
    files::write_private(&data_dir.join(PROFILE_FILE), format!("{}\n", naming.profile).as_bytes())?;
    Ok(())
}

fn profile_in_file(data_dir: &Path) -> anyhow::Result<Option<String>> {
    let bytes = files::read_if_there(&data_dir.join(PROFILE_FILE))?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
}

fn must_be(data_dir: &Path, profile: &str, naming: Profile) -> anyhow::Result<()> {
    if profile != naming.profile {
        bail!("{} was made with --naming={profile}, not {}", data_dir.display(), naming.profile);
    }
    Ok(())
}

/// Reads the identity from the log. Returns `None` if the record is missing or unreadable.
fn read(engine: &Engine) -> anyhow::Result<Option<Identity>> {
    let Some(entry) = engine.snapshot().get(KEY) else { return Ok(None) };
    match entry.read() {
        Ok(record) => Identity::decode(&record.value).map(Some).with_context(|| {
            "a later release wrote the identity of the store: start that release, or a later one".to_owned()
        }),
        Err(error) => {
            tracing::error!(
                %error,
                "store identity in the log cannot be read, the files in the data directory count"
            );
            Ok(None)
        }
    }
}

/// Determines the naming profile of a store without an identity from the name of its system namespace. Returns the
/// profile only if it is not `naming`.
fn other_profile(engine: &Engine, naming: Profile) -> Option<Profile> {
    let snapshot = engine.snapshot();
    let has = |profile: Profile| {
        let key = format!("/core/namespaces/{}", profile.system("system"));
        snapshot.get(key.as_bytes()).is_some()
    };
    naming::ALL
        .into_iter()
        .find(|other| other.profile != naming.profile && has(*other))
        .filter(|_| !has(naming))
}

/// Refuses a store whose objects have another naming profile. Returns the identity of the store, if it has
/// one.
///
/// # Errors
/// The objects have another profile, or a later release wrote the identity.
fn check(engine: &Engine, data_dir: &Path, naming: Profile) -> anyhow::Result<Option<Identity>> {
    let identity = read(engine)?;
    match &identity {
        Some(identity) => must_be(data_dir, &identity.profile, naming)?,
        None => {
            check_file(data_dir, naming)?;
            if let Some(other) =
                other_profile(engine, naming).filter(|_| profile_in_file(data_dir).ok().flatten().is_none())
            {
                must_be(data_dir, other.profile, naming)?;
            }
        }
    }
    Ok(identity)
}

/// Checks the naming profile of a store like [`settle`], but writes nothing.
///
/// # Errors
/// The errors of [`settle`].
pub fn must_have_profile(engine: &Engine, data_dir: &Path, naming: Profile) -> anyhow::Result<()> {
    check(engine, data_dir, naming).map(drop)
}

/// Ensures that a store has an identity with this naming profile, and that the files next to the log have the
/// same contents. Must be called before anything is stored.
///
/// # Errors
/// The store has another profile, or a file cannot be written. A file that differs from the log is not an
/// error: the file is replaced.
pub async fn settle(engine: &Engine, data_dir: &Path, naming: Profile) -> anyhow::Result<()> {
    let found = check(engine, data_dir, naming)?;
    let number = engine.store_number();
    let identity = match found {
        Some(identity) if identity.number == number => identity,
        // The store has no identity yet, or it was restored and still has the identity of the original store.
        _ => {
            let id = location::store_id(data_dir)?;
            let identity = Identity { profile: naming.profile.to_owned(), number, id };
            let value = Bytes::from(identity.encode());
            let payload = Payload { value, essential: true, ..Payload::default() };
            let key = Bytes::from_static(KEY);
            let write = Write { key, expected: Expected::Any, change: Change::Put(payload) };
            if let Err(error) = engine.commit(write).await {
                // A full disk must not prevent the start. The next start tries again.
                tracing::warn!(%error, "store identity not written to the log, the next start tries again");
            }
            identity
        }
    };
    if engine.revision() > Revision::FIRST
        && profile_in_file(data_dir)?.is_some_and(|profile| profile != identity.profile)
    {
        tracing::warn!(
            file = %data_dir.join(PROFILE_FILE).display(),
            profile = identity.profile,
            "the file has another naming profile than the store's log: the file is replaced"
        );
    }
    files::write_private(&data_dir.join(PROFILE_FILE), format!("{}\n", identity.profile).as_bytes())?;
    location::write_store_id(data_dir, &identity.id)
}

#[cfg(test)]
mod tests {
    use engine::Options;
    use values::naming::{CLUSTER, KUBERNETES};

    use super::*;
    use crate::host::files::scratch::Scratch;

    fn open(dir: &Scratch) -> Engine {
        Engine::open(Options::new(dir.join("log"))).unwrap()
    }

    fn file(dir: &Scratch) -> Option<String> {
        profile_in_file(&dir.join("")).unwrap()
    }

    async fn put(engine: &Engine, key: &'static str) {
        let change = Change::Put(Payload::default());
        let write = Write { key: Bytes::from_static(key.as_bytes()), expected: Expected::Any, change };
        engine.commit(write).await.unwrap();
    }

    #[test]
    fn an_identity_file_is_decoded_completely_or_not_at_all() {
        let identity = Identity { profile: "cluster".into(), number: 0x1f, id: "a-b".into() };
        assert_eq!(identity.encode(), "identity 1\nprofile cluster\nstore 000000000000001f\nid a-b\n");
        assert_eq!(Identity::decode(identity.encode().as_bytes()), Some(identity));
        for wrong in
            ["", "identity 2\nprofile a\nstore 1\nid b\n", "identity 1\nprofile a\n", "identity 1\nid b\n"]
        {
            assert_eq!(Identity::decode(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn the_identity_in_the_log_is_authoritative_and_files_repeat_it() {
        let dir = Scratch::new();
        let data = dir.join("");
        let engine = open(&dir);
        settle(&engine, &data, &KUBERNETES).await.unwrap();
        assert_eq!(engine.revision(), Revision::FIRST, "it is the first record");
        let id = location::store_id(&data).unwrap();
        put(&engine, "/core/configmaps/a/b").await;
        for text in [None, Some("cluster\n"), Some("\n"), Some("kubernetes\n")] {
            let path = data.join(PROFILE_FILE);
            match text {
                Some(text) => std::fs::write(&path, text).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            for refused in [check_early(&data, &CLUSTER), settle(&engine, &data, &CLUSTER).await] {
                let why = refused.unwrap_err().to_string();
                assert!(why.ends_with("was made with --naming=kubernetes, not cluster"), "{text:?}: {why}");
            }
            std::fs::write(data.join("store-id"), "another\n").unwrap();
            check_early(&data, &KUBERNETES).unwrap();
            settle(&engine, &data, &KUBERNETES).await.unwrap();
            assert_eq!(file(&dir).as_deref(), Some("kubernetes"), "{text:?}");
            assert_eq!(location::store_id(&data).unwrap(), id, "{text:?}");
        }
        assert_eq!(engine.revision(), Revision::new(2), "nothing more was written");
        engine.close().await;
    }

    #[tokio::test]
    async fn an_older_store_gets_its_identity_from_its_file_or_its_objects() {
        for (text, keys, naming, want) in [
            (Some("cluster\n"), &["/core/configmaps/a/b"][..], &CLUSTER, Ok(())),
            (Some("cluster\n"), &["/core/configmaps/a/b"], &KUBERNETES, Err("cluster")),
            (None, &["/core/namespaces/kube-system"], &KUBERNETES, Ok(())),
            (None, &["/core/namespaces/kube-system"], &CLUSTER, Err("kubernetes")),
            (None, &["/core/configmaps/a/b"], &KUBERNETES, Ok(())),
            // The file exists, but the store is new.
            (Some("cluster\n"), &[], &KUBERNETES, Err("cluster")),
            (Some("cluster\n"), &[], &CLUSTER, Ok(())),
        ] {
            let dir = Scratch::new();
            let data = dir.join("");
            let engine = open(&dir);
            for key in keys {
                put(&engine, key).await;
            }
            if let Some(text) = text {
                std::fs::write(data.join(PROFILE_FILE), text).unwrap();
            }
            let got = settle(&engine, &data, naming).await;
            match want {
                Ok(()) => {
                    got.unwrap();
                    assert_eq!(read(&engine).unwrap().unwrap().profile, naming.profile);
                    assert_eq!(file(&dir).as_deref(), Some(naming.profile));
                }
                Err(other) => {
                    let want = format!("was made with --naming={other}, not {}", naming.profile);
                    assert!(got.unwrap_err().to_string().ends_with(&want), "{text:?} {keys:?}");
                    assert_eq!(read(&engine).unwrap(), None);
                }
            }
            engine.close().await;
        }
    }

    #[tokio::test]
    async fn a_restored_store_keeps_its_naming_profile_and_gets_a_new_identity() {
        let dir = Scratch::new();
        let data = dir.join("");
        let engine = open(&dir);
        settle(&engine, &data, &CLUSTER).await.unwrap();
        put(&engine, "/core/configmaps/a/b").await;
        engine.close().await;
        let id = location::store_id(&data).unwrap();
        let restored = dir.join("restored");
        let to = restored.join("log");
        std::fs::create_dir(&restored).unwrap();
        engine::offline::restore(
            &data.join("log"),
            &to,
            engine::offline::RestorePoint::Newest,
            false,
            |_| (),
            |_, _| (),
        )
        .unwrap();
        let engine = Engine::open(Options::new(&to)).unwrap();
        assert!(settle(&engine, &restored, &KUBERNETES).await.is_err());
        settle(&engine, &restored, &CLUSTER).await.unwrap();
        assert_ne!(location::store_id(&restored).unwrap(), id);
        assert_eq!(read(&engine).unwrap().unwrap().number, engine.store_number());
        engine.close().await;
    }
}
