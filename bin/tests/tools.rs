//! Tests of the commands that read a store, started as an operator starts them. The tests check output, JSON
//! and exit codes, for intact, damaged and open stores and for directories without a store.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use engine::{Change, Engine, Expected, Options, Payload, Revision, SEGMENT_BYTES_MIN, Write};
use serde_json::Value;

struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("cluster-tools-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        // A process with the same identifier may have been killed before it could remove its directories.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Dir(path)
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    /// Returns the store's files, sorted by name.
    fn segments(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.data().join("log")).unwrap().map(|file| file.unwrap().path());
        let mut files: Vec<_> =
            files.filter(|path| path.extension().is_some_and(|e| e == "segment")).collect();
        files.sort();
        files
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(arguments: &[&str], data: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cluster-apiserver"))
        .args(arguments)
        .arg(format!("--data-dir={}", data.display()))
        .env_remove("RUST_LOG")
        .output()
        .unwrap()
}

#[track_caller]
fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[track_caller]
fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

async fn open(dir: &Dir) -> Engine {
    let options = Options { segment_bytes: SEGMENT_BYTES_MIN, ..Options::new(dir.data().join("log")) };
    Engine::open(options).unwrap()
}

async fn put(engine: &Engine, key: &str, value: &str) -> u64 {
    let (key, value) = (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value.as_bytes()));
    let change = Change::Put(Payload { value, ..Payload::default() });
    engine.commit(Write { key, expected: Expected::Any, change }).await.unwrap().revision.get()
}

/// Writes three segments: revisions of `/core/pods/default/N`, then a deletion of the first key.
async fn fill(dir: &Dir) -> u64 {
    let engine = open(dir).await;
    let value = format!("{{\"pad\":\"{}\"}}", "x".repeat(8_000));
    for n in 0..16 {
        put(&engine, &format!("/core/pods/default/{n}"), &value).await;
    }
    let key = Bytes::from_static(b"/core/pods/default/0");
    let write = Write { key, expected: Expected::Any, change: Change::Delete(None) };
    let revision = engine.commit(write).await.unwrap().revision;
    engine.close().await;
    revision.get()
}

fn flip(path: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[tokio::test]
async fn verify_inspect_and_stats_accept_an_undamaged_store() {
    let dir = Dir::new();
    let last = fill(&dir).await;
    let output = run(&["verify"], &dir.data());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        text(&output).ends_with("3 segments, 17 records, 15 keys up to revision 17: sound\n"),
        "{output:?}"
    );
    let report = json(&run(&["verify", "--output=json"], &dir.data()));
    assert_eq!(report["damage"], serde_json::json!([]));
    assert_eq!((report["damages"].as_u64(), report["revision"].as_u64()), (Some(0), Some(last)));
    assert_eq!(report["running"], false);

    let stats = json(&run(&["stats", "-o=json"], &dir.data()));
    assert_eq!((stats["keys"].as_u64(), stats["records"].as_u64()), (Some(15), Some(17)));
    assert_eq!(stats["resources"][0]["prefix"], "/core/pods/");
    assert_eq!(stats["resources"][0]["keys"], 15);
    assert_eq!(stats["segments"].as_array().unwrap().len(), 3);
    let bytes = |name: &str| stats[name].as_u64().unwrap();
    let in_segments =
        stats["segments"].as_array().unwrap().iter().map(|s| s["record_bytes"].as_u64().unwrap());
    assert_eq!(bytes("live_bytes") + bytes("retained_bytes") + bytes("dead_bytes"), in_segments.sum::<u64>());
}

#[tokio::test]
async fn inspect_prints_the_records_that_match_its_filters() {
    let dir = Dir::new();
    fill(&dir).await;
    let revisions = |flags: &[&str]| {
        let arguments: Vec<&str> = ["inspect", "--output=json"].iter().chain(flags).copied().collect();
        let output = run(&arguments, &dir.data());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let lines = text(&output);
        let records = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.map(|record| record["revision"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(revisions(&[]), (1..=17).collect::<Vec<_>>());
    assert_eq!(revisions(&["--from=5", "--to=7"]), [5, 6, 7]);
    assert_eq!(revisions(&["--key=/core/pods/default/0"]), [1, 17]);
    assert!(revisions(&["--key=/core/pods/default"]).is_empty());
    assert_eq!(revisions(&["--prefix=/core/pods/default/1"]), [2, 11, 12, 13, 14, 15, 16]);
    let output = run(&["inspect", "--from=17", "--values", "-o", "json"], &dir.data());
    let record = json(&output);
    assert_eq!((record["kind"].as_str(), record["created"].as_u64()), (Some("delete"), Some(1)));
    assert_eq!(record["value"]["pad"].as_str().map(str::len), Some(8_000));
    let line = text(&run(&["inspect", "--from=17"], &dir.data()));
    assert!(line.contains("  delete         8010  /core/pods/default/0\n"), "{line}");
}

#[tokio::test]
async fn verify_lists_every_damage_with_its_position_and_sets_the_exit_code() {
    let dir = Dir::new();
    fill(&dir).await;
    let segments = dir.segments();
    // Damage the value of revision 1, the header of revision 3 (so that its key is unknown), and a copy of a
    // file header.
    let line = text(&run(&["inspect", "--from=3", "--to=3", "-o=json"], &dir.data()));
    let third = serde_json::from_str::<Value>(&line).unwrap()["offset"].as_u64().unwrap();
    flip(&segments[0], 4096 + 5_000);
    flip(&segments[0], third + 8);
    flip(&segments[1], 24);
    let output = run(&["verify", "-o=json"], &dir.data());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let report = json(&output);
    let reported: Vec<_> = report["damage"]
        .as_array()
        .unwrap()
        .iter()
        .map(|damage| {
            (damage["file"].as_str().unwrap(), damage["first_revision"].as_u64(), damage["key"].as_str())
        })
        .collect();
    assert_eq!(
        reported,
        [
            ("0000000002.segment", None, None),
            ("0000000001.segment", Some(1), Some("/core/pods/default/0")),
            ("0000000001.segment", Some(3), None),
        ]
    );
    assert_eq!(report["records"], 16);
    let output = run(&["verify"], &dir.data());
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output).contains(
            "damage: 0000000001.segment at byte 4096: the record does not match its checksum, \
        revision 1, key \"/core/pods/default/0\"\n"
        ),
        "{output:?}"
    );
    // `inspect` and `stats` report the damage and still exit with 0.
    let lines = text(&run(&["inspect"], &dir.data()));
    assert_eq!(lines.lines().filter(|line| line.contains("DAMAGED")).count(), 1, "{lines}");
    assert_eq!(lines.lines().filter(|line| line.starts_with("damage: ")).count(), 2, "{lines}");
    let stats = run(&["stats", "-o=json"], &dir.data());
    assert_eq!((stats.status.code(), json(&stats)["damages"].as_u64()), (Some(0), Some(3)));

    // Remove a file, and damage the header of another file.
    fs::rename(&segments[1], dir.0.join("away")).unwrap();
    let output = run(&["verify"], &dir.data());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("0000000003.segment: a segment is missing before this one"), "{output:?}");
    flip(&segments[2], 24);
    flip(&segments[2], 2048 + 24);
    let output = run(&["verify"], &dir.data());
    assert!(text(&output).contains("0000000003.segment: the header is damaged"), "{output:?}");
}

/// Returns the documents of YAML output as JSON.
fn documents(output: &Output) -> Vec<Value> {
    let yaml = text(output);
    let parts = yaml.split("---\n").filter(|part| !part.is_empty());
    let json = |part: &str| {
        let tree =
            values::yaml::parse(part.as_bytes()).unwrap_or_else(|error| panic!("{error}: {part}")).value;
        let mut text = Vec::new();
        values::json::write(&tree, &mut text);
        serde_json::from_slice(&text).unwrap()
    };
    parts.map(json).collect()
}

#[tokio::test]
async fn every_command_prints_in_yaml_what_it_prints_in_json() {
    let dir = Dir::new();
    fill(&dir).await;
    let same = |arguments: &[&str]| {
        let with = |format| [arguments, &["-o", format]].concat();
        let as_json = text(&run(&with("json"), &dir.data()));
        let lines: Vec<Value> = as_json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(documents(&run(&with("yaml"), &dir.data())), lines, "{arguments:?}");
    };
    same(&["verify"]);
    same(&["stats"]);
    same(&["inspect", "--values"]);
    same(&["accept-loss"]);
    flip(&dir.segments()[0], 4096 + 5_000);
    flip(&dir.segments()[1], 24);
    same(&["verify"]);
    same(&["inspect"]);
    let target = dir.0.join("backup").display().to_string();
    let backup = documents(&run(&["backup", "-o=yaml", "--to", &target], &dir.data()));
    assert!(backup.len() == 1 && backup[0]["damages"].as_u64() > Some(0), "{backup:?}");
    let restored = dir.0.join("restored");
    let restore = documents(&run(&["restore", "-o=yaml", "--skip-damaged", "--from", &target], &restored));
    assert_eq!(restore[0]["keys"], 15, "{restore:?}");
    let compact = documents(&run(&["compact", "-o=yaml"], &restored));
    assert!(compact[0]["after_bytes"].is_u64(), "{compact:?}");
}

#[tokio::test]
async fn a_torn_tail_is_not_damage() {
    let dir = Dir::new();
    fill(&dir).await;
    let last = dir.segments().pop().unwrap();
    // The damage is after the last record, like a batch that was never synced.
    let line = text(&run(&["inspect", "--from=17", "-o=json"], &dir.data()));
    let record: Value = serde_json::from_str(&line).unwrap();
    let end = record["offset"].as_u64().unwrap() + record["stored_bytes"].as_u64().unwrap();
    fs::File::options().write(true).open(&last).unwrap().write_all_at(&[7; 100], end).unwrap();
    let output = run(&["verify", "-o=json"], &dir.data());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(json(&output)["torn"]["offset"].as_u64(), Some(end));
    // The last record itself is known durable, so its loss is damage.
    flip(&last, end - 100);
    let output = run(&["verify", "-o=json"], &dir.data());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(json(&output)["damage"][0]["first_revision"].as_u64(), Some(17));
}

#[tokio::test]
async fn an_open_store_is_inspected_without_disturbing_it() {
    let dir = Dir::new();
    let engine = open(&dir).await;
    for n in 0..40 {
        put(&engine, &format!("/core/pods/default/{n}"), &"v".repeat(4_000)).await;
        if n % 8 == 7 {
            let report = json(&run(&["verify", "-o=json"], &dir.data()));
            assert_eq!(
                (report["damages"].as_u64(), &report["running"]),
                (Some(0), &Value::Bool(true)),
                "{report}"
            );
            // Every batch except the last is known durable, because a later batch follows it.
            assert!(report["revision"].as_u64().unwrap() >= n, "{report}");
        }
    }
    assert!(engine.health().is_ok());
}

#[test]
fn a_directory_without_a_store_is_reported_in_one_line() {
    let dir = Dir::new();
    let log = dir.data().join("log");
    let check = |want: &str| {
        for command in ["verify", "inspect", "stats"] {
            let output = run(&[command], &dir.data());
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            assert_eq!(String::from_utf8_lossy(&output.stderr), format!("error: {want}\n"));
            assert!(output.stdout.is_empty(), "{output:?}");
        }
    };
    let no_store = format!("no store in {}", log.display());
    check(&no_store);
    fs::create_dir(dir.data()).unwrap();
    check(&no_store);
    fs::write(&log, "a file").unwrap();
    check(&no_store);
    fs::remove_file(&log).unwrap();
    fs::create_dir(&log).unwrap();
    fs::write(log.join("lock"), "").unwrap();
    fs::write(log.join("next.segment"), "unfinished").unwrap();
    check(&no_store);
    // The header has the format version of a later release.
    let mut header = [0u8; 4096];
    header[..8].copy_from_slice(b"REVLOG\r\n");
    header[8] = 200;
    let crc = crc32(&header[..124]);
    header[124..128].copy_from_slice(&crc.to_le_bytes());
    let first = log.join("0000000001.segment");
    fs::write(&first, header).unwrap();
    check(&format!(
        "{}: store format 200 is newer than 2, the newest this release reads: use the release that wrote it, or a later one",
        first.display()
    ));
}

#[test]
fn hostile_directories_are_reported_and_end() {
    let dir = Dir::new();
    let log = dir.data().join("log");
    fs::create_dir_all(&log).unwrap();
    let first = log.join("0000000001.segment");
    let noise: Vec<u8> = (0..1u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let makes: [(&str, &dyn Fn()); 5] = [
        ("empty", &|| fs::write(&first, "").unwrap()),
        ("noise", &|| fs::write(&first, &noise).unwrap()),
        ("a directory", &|| fs::create_dir(&first).unwrap()),
        ("a link to itself", &|| std::os::unix::fs::symlink(&first, &first).unwrap()),
        ("a pipe", &|| {
            let made = Command::new("mkfifo").arg(&first).status().unwrap();
            assert!(made.success());
        }),
    ];
    for (what, make) in makes {
        make();
        for command in ["verify", "inspect", "stats"] {
            let output = run(&[command, "-o=json"], &dir.data());
            let want = if command == "verify" { 2 } else { 0 };
            assert_eq!(output.status.code(), Some(want), "{what}: {output:?}");
            let all = text(&output);
            assert!(command == "inspect" || serde_json::from_str::<Value>(&all).is_ok(), "{what}: {all}");
        }
        let _ = fs::remove_file(&first).or_else(|_| fs::remove_dir(&first));
    }
}

/// Computes the checksum of the store, so that a test can write a valid header with a later format version.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

/// Returns the fields of all records that a copy must have: revision, kind, key and value.
fn records(data: &Path) -> Vec<Value> {
    let output = run(&["inspect", "--values", "-o=json"], data);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines = text(&output);
    let record = |line: &str| {
        let all: Value = serde_json::from_str(line).unwrap();
        serde_json::json!([all["revision"], all["kind"], all["key"], all["value"], all["time"]])
    };
    lines.lines().map(record).collect()
}

fn backup(dir: &Dir, to: &Path) -> Output {
    run(&["backup", "-o=json", &format!("--to={}", to.display())], &dir.data())
}

#[tokio::test]
async fn a_backup_equals_the_log_and_the_next_one_copies_only_new_segments() {
    let dir = Dir::new();
    fill(&dir).await;
    let to = dir.0.join("backup");
    let first = json(&backup(&dir, &to));
    assert_eq!(first["revision"], 17);
    assert_eq!(
        (&first["copied_segments"], &first["kept_segments"], &first["pki"]),
        (&Value::from(3), &Value::from(0), &Value::from(false))
    );
    assert_eq!(records(&to), records(&dir.data()));
    assert_eq!(run(&["verify"], &to).status.code(), Some(0));

    // The backup runs while the engine is open, and includes its last acknowledged writes.
    let engine = open(&dir).await;
    let mut newest = 0;
    for n in 0..8 {
        newest = put(&engine, &format!("/core/pods/default/n{n}"), &"v".repeat(8_000)).await;
    }
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    let kept = to.join("log/0000000001.segment");
    let before = inode(&kept);
    let second = json(&backup(&dir, &to));
    assert_eq!(second["revision"], newest);
    assert_eq!((&second["copied_segments"], &second["kept_segments"]), (&Value::from(2), &Value::from(2)));
    assert_eq!(inode(&kept), before, "it was not copied again");
    assert!(!to.join("log.next").exists());
    engine.close().await;
    assert_eq!(records(&to), records(&dir.data()));

    // If a file of the backup is damaged later, the next backup detects the damage and copies the file again.
    flip(&kept, 4096 + 5_000);
    assert_eq!(run(&["verify"], &to).status.code(), Some(2));
    let third = json(&backup(&dir, &to));
    assert_eq!((&third["copied_segments"], &third["kept_segments"]), (&Value::from(2), &Value::from(2)));
    assert_eq!(run(&["verify"], &to).status.code(), Some(0));

    // The files of an interrupted backup have no effect.
    fs::create_dir(to.join("log.next")).unwrap();
    fs::write(to.join("log.next/0000000001.segment"), "half").unwrap();
    assert_eq!(json(&backup(&dir, &to))["kept_segments"], 3);
    assert!(!to.join("log.next").exists());
    // A backup can be opened as a store.
    let copy = Engine::open(Options::new(to.join("log"))).unwrap();
    assert_eq!(copy.revision(), Revision::new(newest));
    // A backup that is open is not replaced.
    let output = backup(&dir, &to);
    assert_eq!(output.status.code(), Some(1));
    let error = format!("error: {} is in use by another process\n", to.join("log").display());
    assert_eq!(String::from_utf8_lossy(&output.stderr), error);
}

#[tokio::test]
async fn a_backup_reports_damage_and_refuses_an_incomplete_store() {
    let (dir, other) = (Dir::new(), Dir::new());
    fill(&dir).await;
    fill(&other).await;
    let to = dir.0.join("backup");
    flip(&dir.segments()[0], 4096 + 5_000);
    let output = backup(&dir, &to);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let report = json(&output);
    assert_eq!(
        (&report["damages"], &report["damage"][0]["first_revision"]),
        (&Value::from(1), &Value::from(1))
    );
    assert_eq!(records(&to), records(&dir.data()));
    // If a backup fails, the earlier backup is kept.
    let before = records(&to);
    let (last, high_water) = (dir.segments()[2].clone(), dir.data().join("log/high-water"));
    let (first, middle) = (dir.segments()[0].clone(), dir.segments()[1].clone());
    for (what, harm) in [
        ("is missing", vec![&middle]),
        ("the segment is missing, and the log went on in it", vec![&first, &last]),
        ("no store in", vec![&high_water]),
    ] {
        harm.into_iter().for_each(|file| fs::rename(file, file.with_extension("away")).unwrap());
        let output = backup(&dir, &to);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(what) && error.lines().count() == 1, "{error}");
        assert_eq!(records(&to), before);
        assert!(!to.join("log.next").exists());
    }
    let refused = |data: &Path, to: &Path, want: &str| {
        let output = run(&["backup", &format!("--to={}", to.display())], data);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("error: {want}\n"));
    };
    let log = to.join("log");
    refused(
        &other.data(),
        &to,
        &format!(
            "{} contains something other than a backup of this store: choose an empty directory",
            log.display()
        ),
    );
    let own = other.data().join("log");
    refused(&other.data(), &other.data(), &format!("{} cannot be copied to itself", own.display()));
    assert_eq!(run(&["verify"], &other.data()).status.code(), Some(0));
}

#[tokio::test]
async fn a_restore_contains_the_state_at_the_requested_revision_or_time() {
    let dir = Dir::new();
    let last = fill(&dir).await;
    let all = records(&dir.data());
    let restore = |name: &str, flags: &[&str]| {
        let from = format!("--from={}", dir.data().display());
        let arguments: Vec<&str> = ["restore", "-o=json", &from].iter().chain(flags).copied().collect();
        run(&arguments, &dir.0.join(name))
    };
    // Returns the state at a revision: the puts up to this revision, without key 0 if it is already deleted.
    let state_at = |revision: usize| -> Vec<Value> {
        let states = all[..revision.min(16)].iter().filter(|record| revision < 17 || record[2] != all[0][2]);
        states.cloned().collect()
    };
    for revision in [1, 9, 16, 17] {
        let name = format!("at-{revision}");
        let report = json(&restore(&name, &[&format!("--revision={revision}")]));
        assert_eq!(report["from_revision"], revision);
        assert_eq!(records(&dir.0.join(&name)), state_at(revision), "{revision}");
        let verified = json(&run(&["verify", "-o=json"], &dir.0.join(&name)));
        assert_eq!(
            (&verified["damages"], &verified["revision"], &verified["oldest"]),
            (&Value::from(0), &report["revision"], &report["revision"])
        );
        assert!(report["revision"].as_u64().unwrap() > last + 1_000_000, "{report}");
    }
    // A time selects the newest revision of that millisecond.
    let time = all[8][4].as_str().unwrap();
    let newest = all.iter().filter(|record| record[4].as_str().unwrap() <= time).count();
    let report = json(&restore("time", &["--time", time]));
    assert_eq!(report["from_revision"], newest);
    assert_eq!(json(&restore("future", &["--time=2100-01-01T00:00:00Z"]))["from_revision"], last);
    let early = restore("early", &["--time=1990-01-01T00:00:00Z"]);
    assert_eq!(early.status.code(), Some(1), "{early:?}");
    let message = String::from_utf8_lossy(&early.stderr).into_owned();
    assert!(message.contains("the backup begins at 20") && message.contains("with revision 1"), "{message}");
    assert!(!dir.0.join("early").exists(), "a failed restore leaves nothing");

    for (name, flags, want) in [
        (
            "at-1",
            &[][..],
            format!("{} is not empty: restore into a new directory", dir.0.join("at-1").display()),
        ),
        ("new", &["--revision=18"], "revision 18 does not exist, the newest is 17".to_owned()),
        (
            "new",
            &["--time=yesterday"],
            "invalid argument \"yesterday\" for \"--time\" flag: must be a time such as 2026-01-31T12:00:00Z"
                .to_owned(),
        ),
    ] {
        let output = restore(name, flags);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("error: {want}\n"));
    }
    // A restored store can itself be restored, but not at compacted revisions.
    let from = format!("--from={}", dir.0.join("at-9").display());
    let again = run(&["restore", "-o=json", &from], &dir.0.join("again"));
    assert_eq!(records(&dir.0.join("again")), state_at(9), "{again:?}");
    let output = run(&["restore", &from, "--revision=9"], &dir.0.join("forgotten"));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .starts_with("error: revision 9 is no longer readable, the oldest is ")
    );
}

#[tokio::test]
async fn a_damaged_backup_is_restored_only_on_request() {
    let dir = Dir::new();
    fill(&dir).await;
    let from = format!("--from={}", dir.data().display());
    // Damage the version of key 0 at revision 1 (revision 17 deletes this key).
    flip(&dir.segments()[0], 4096 + 5_000);
    let restored = run(&["restore", "-o=json", &from], &dir.0.join("unharmed"));
    assert_eq!((restored.status.code(), &json(&restored)["keys"]), (Some(0), &Value::from(15)));
    let restored = run(&["restore", &from, "--revision=16"], &dir.0.join("harmed"));
    assert_eq!(restored.status.code(), Some(1));
    let error = String::from_utf8_lossy(&restored.stderr).into_owned();
    assert!(error.contains("one damage in ") && error.contains("key \"/core/pods/default/0\""), "{error}");
    assert!(!dir.0.join("harmed/log").exists());
    let restored = run(&["restore", &from, "--revision=16", "--skip-damaged"], &dir.0.join("harmed"));
    assert_eq!(restored.status.code(), Some(2), "{restored:?}");
    assert!(text(&restored).starts_with("left out: 0000000001.segment at byte 4096: "), "{restored:?}");
    // The copy has the 15 readable versions, and a record of the loss.
    assert_eq!(records(&dir.0.join("harmed")).len(), 16);
}

#[tokio::test]
async fn compacting_a_stopped_store_reclaims_space_and_keeps_the_requested_history() {
    let dir = Dir::new();
    let engine = open(&dir).await;
    let mut newest = 0;
    for n in 0..60 {
        newest =
            put(&engine, &format!("/core/pods/default/{}", n % 3), &format!("{n:06}").repeat(1_000)).await;
    }
    let in_use = run(&["compact"], &dir.data());
    assert_eq!(in_use.status.code(), Some(1));
    let error = format!(
        "error: {} is in use: a running server compacts by itself (--history-retention); stop it to do so by hand\n",
        dir.data().join("log").display()
    );
    assert_eq!(String::from_utf8_lossy(&in_use.stderr), error);
    engine.close().await;

    let future = run(&["compact", "--revision=61"], &dir.data());
    assert_eq!(future.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&future.stderr),
        "error: revision 61: revision lies in the future, the newest is 60\n"
    );
    // There is no history older than an hour, so nothing is dropped.
    let kept = json(&run(&["compact", "-o=json", "--keep=1h"], &dir.data()));
    assert_eq!(kept["before_bytes"], kept["after_bytes"]);
    let report = json(&run(&["compact", "-o=json", "--revision=55"], &dir.data()));
    assert_eq!((&report["oldest"], &report["revision"]), (&Value::from(55), &Value::from(newest)));
    let bytes = |name: &str| report[name].as_u64().unwrap();
    assert!(bytes("after_bytes") < bytes("before_bytes") / 2, "{report}");
    let kept: Vec<_> = records(&dir.data()).iter().map(|record| record[0].as_u64().unwrap()).collect();
    assert!([53, 54, 55, 56, 57, 58, 59, 60].iter().all(|revision| kept.contains(revision)), "{kept:?}");

    // The compacted store and its checkpoint are consistent, and the store can be copied and restored.
    let verified = run(&["verify", "-o=json"], &dir.data());
    assert_eq!(verified.status.code(), Some(0), "{verified:?}");
    let stats = json(&run(&["stats", "-o=json"], &dir.data()));
    assert_eq!((&stats["checkpoint"], &stats["oldest"]), (&Value::from(60), &Value::from(55)));
    assert!(
        stats["segments"].as_array().unwrap().iter().any(|segment| segment["rewritten"] == true),
        "{stats}"
    );
    let to = dir.0.join("backup");
    assert_eq!(json(&backup(&dir, &to))["oldest"], 55);
    assert_eq!(records(&to), records(&dir.data()));
    let from = format!("--from={}", to.display());
    let at = |revision: &str| run(&["restore", "-o=json", &from, revision], &dir.0.join(&revision[2..]));
    assert_eq!(json(&at("--revision=55"))["keys"], 3);
    assert_eq!(at("--revision=54").status.code(), Some(1));

    // A damaged checkpoint is reported and has no effect.
    let log = fs::read_dir(dir.data().join("log")).unwrap().map(|file| file.unwrap().path());
    let mut log = log.filter(|path| path.extension().is_some_and(|e| e == "checkpoint"));
    let checkpoint = log.next().unwrap();
    flip(&checkpoint, 4096 + 60);
    let output = run(&["verify"], &dir.data());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains(".checkpoint: the checkpoint is damaged, which costs time"), "{output:?}");
    let engine = open(&dir).await;
    assert_eq!(engine.revision(), Revision::new(newest));
}

#[test]
fn errors_of_a_network_backup_are_one_line() {
    let dir = Dir::new();
    let config = |name: &str, text: &str| {
        let path = dir.0.join(name);
        fs::write(&path, text).unwrap();
        format!("--kubeconfig={}", path.display())
    };
    let to = format!("--to={}", dir.0.join("backup").display());
    let named = "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n";
    let cluster =
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1', certificate-authority-data: Q0E=}}]\n";
    let none = format!("--kubeconfig={}", dir.0.join("none").display());
    let whole = config("whole", &format!("{named}{cluster}"));
    for (flags, want) in [
        (vec![&*none], format!("{} does not exist", dir.0.join("none").display())),
        (vec![&*config("cut", named)], format!("{}: there is no cluster \"c\"", dir.0.join("cut").display())),
        (vec![&*whole], "unable to load root certificates: unable to parse bytes as PEM block".to_owned()),
        (vec![&*whole, "--server=ftp://x"], "\"ftp://x\" is not an https:// URL".to_owned()),
        (vec![&*whole, "--server=x y"], "\"x y\" is not a URL".to_owned()),
        (vec!["--server=https://x"], "flag is required: --kubeconfig <FILE>".to_owned()),
        (
            vec![&*whole, "--data-dir=x"],
            "the argument '--kubeconfig <FILE>' cannot be used with '--data-dir <DIR>'".to_owned(),
        ),
        (
            vec![&*whole, "--with-pki"],
            "the argument '--kubeconfig <FILE>' cannot be used with '--with-pki'".to_owned(),
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cluster-apiserver"));
        let output = command.arg("backup").args(&flags).arg(&to).env_remove("RUST_LOG").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("error: {want}\n"), "{flags:?}");
    }
    assert!(!dir.0.join("backup").exists(), "nothing was touched");
}
