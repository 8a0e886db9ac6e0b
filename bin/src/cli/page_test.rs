//! Checks the reference page of the flags, `docs/flags.md`. The page is generated from the descriptions that
//! `--help-all` prints.
//!
//! `UPDATE_GOLDEN=1 cargo test --package cluster-apiserver the_documentation_of_flags` rewrites the page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use clap::Arg;

use super::definition::command;
use crate::flags::upstream;

/// Number of flags of kube-apiserver 1.36.
const UPSTREAM_COUNT: usize = 172;

/// Flags that kube-apiserver does not have.
const OWN: [&str; 18] = [
    "cluster-signing-cert-file",
    "cluster-signing-duration",
    "cluster-signing-key-file",
    "config",
    "continue-ttl",
    "controllers",
    "data-dir",
    "durability",
    "exit-with-parent",
    "history-authors",
    "history-bytes-max",
    "history-retention",
    "live-migration",
    "log-format",
    "naming",
    "shutdown-deadline",
    "testing",
    "tls-extra-names",
];

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/flags.md");

const OPENING: &str = "\
# Flags

The server accepts every flag of kube-apiserver 1.36 but one, and some flags of its own. This page is for operators who
start the server or who move a command line over from kube-apiserver.

```sh
cluster-apiserver --naming=kubernetes --data-dir=/var/lib/cluster-apiserver --secure-port=6443 --audit-policy-file=audit.yaml
```

The page is generated from the descriptions that `--help-all` prints. [Configuration](reference/configuration.md) describes the
configuration file and environment variables with the same names. In the name of a flag `_` and `-` are the same. If a flag is given
several times, the last value counts, except for flags that are lists or whose description says *repeatable*. Durations are written
`90s` or `1h30m`. *PEM* is the encoding of certificate and key files. The server's *own service* is the service through which pods reach
this server.

";

/// Puts the text of a table cell on one line, and escapes the separator of cells.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn default(flag: &Arg) -> String {
    let values: Vec<_> =
        flag.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    let value = values.join(",");
    if value.is_empty() { String::new() } else { format!("`{}`", cell(&value)) }
}

fn meaning(flag: &Arg) -> String {
    let text = flag.get_long_help().or(flag.get_help()).map(ToString::to_string).unwrap_or_default();
    assert!(
        !text.is_empty() || flag.get_long().is_some_and(|name| ["help", "version"].contains(&name)),
        "{flag}"
    );
    cell(&text)
}

/// Renders the page from the flags.
fn page() -> String {
    let command = command();
    let mut upstream = BTreeMap::new();
    let mut own = BTreeMap::new();
    for flag in command.get_arguments() {
        let aliases = flag.get_all_aliases().unwrap_or_default();
        for name in flag.get_long().into_iter().chain(aliases) {
            let table = if OWN.contains(&name) { &mut own } else { &mut upstream };
            table.insert(name.to_owned(), ("supported", default(flag), meaning(flag)));
        }
    }
    let is_own: BTreeSet<_> = own.keys().map(String::as_str).collect();
    assert_eq!(is_own, BTreeSet::from(OWN), "OWN lists the flags that only this server has");
    upstream.insert(
        "help".to_owned(),
        ("supported", String::new(), "Prints the most used flags and the commands on one screen. `--help-all` prints all flags in groups.".to_owned()),
    );
    let version = "Prints the version (`true`), all details of the build (`raw`), or, as `v1.36.0-vendor`, sets the version that the server reports.";
    upstream.insert("version".to_owned(), ("supported", String::new(), version.to_owned()));
    for (name, why) in upstream::all_without_effect() {
        let earlier = upstream.insert(name.to_owned(), ("no effect", String::new(), cell(why)));
        assert_eq!(earlier, None, "--{name} is supported and has no effect");
    }
    for (name, why) in upstream::all_refused() {
        let earlier = upstream.insert(name.to_owned(), ("refused", String::new(), cell(why)));
        assert_eq!(earlier, None, "--{name} is supported or has no effect, and is refused");
    }
    assert_eq!(upstream.len(), UPSTREAM_COUNT);
    let mut page = OPENING.to_owned();
    page.push_str("## Flags of this server only\n\n| flag | default | meaning |\n|---|---|---|\n");
    for (name, (_, default, meaning)) in own {
        let _ = writeln!(page, "| `{name}` | {default} | {meaning} |");
    }
    page.push_str(
        "\n## Flags of kube-apiserver\n\n\
         *No effect*: the server accepts the flag if its value is valid, and ignores it for the reason given. *Refused*: the\n\
         server does not start, and prints the reason.\n\n\
         | flag | here | default | meaning |\n|---|---|---|---|\n",
    );
    for (name, (here, default, meaning)) in upstream {
        let _ = writeln!(page, "| `{name}` | {here} | {default} | {meaning} |");
    }
    page
}

#[test]
fn the_documentation_of_flags_is_up_to_date() {
    let page = page();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(PAGE, &page).expect("the page can be written");
    }
    let committed = std::fs::read_to_string(PAGE).expect("docs/flags.md exists");
    for (committed, current) in committed.lines().zip(page.lines()) {
        assert_eq!(committed, current, "docs/flags.md is out of date: run this test with UPDATE_GOLDEN=1");
    }
    assert_eq!(
        committed.len(),
        page.len(),
        "docs/flags.md is out of date: run this test with UPDATE_GOLDEN=1"
    );
}
