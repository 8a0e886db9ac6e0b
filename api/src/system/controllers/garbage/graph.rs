//! The ownership graph: the keys of the dependents of each owner, by the uid of the owner. Each change of the
//! graph results in tasks.
//!
//! ```text
//! event ─► Graph::put / Graph::removed ─► tasks: look at a dependent · orphan · perhaps release an owner
//! ```
//!
//! Only objects with owners, and owners that wait for their dependents, use memory: a key and a uid for each
//! reference. The graph does not record whether owners exist: the collector looks up owners in the store during
//! a check. The graph is a pure data structure, without store, clock or writes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use super::head::{Ending, Head};

/// A check against the newest state. An unnecessary check does no harm.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Task {
    /// The dependent at this key may have lost its last owner, or its owner may wait for the deletion of
    /// dependents.
    Check(Bytes),
    /// The deleted owner at this key waits until its dependents no longer refer to it.
    Orphan(Bytes),
    /// The deleted owner at this key waits for its blocking dependents, and may have no such dependent left.
    Release(Bytes),
}

/// The dependents of one uid.
#[derive(Default)]
struct Dependents {
    keys: HashSet<Bytes>,
    /// Number of dependents that block a foreground deletion.
    blocking: usize,
}

/// An owner reference of a dependent.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Edge {
    owner: Arc<str>,
    blocking: bool,
}

/// The graph of owners and dependents.
#[derive(Default)]
pub struct Graph {
    edges: HashMap<Bytes, Box<[Edge]>>,
    dependents: HashMap<Arc<str>, Dependents>,
    /// Uids of owners in foreground deletion, with their keys.
    waiting: HashMap<Arc<str>, Bytes>,
    /// Keys of the owners in `waiting`.
    waiting_keys: HashSet<Bytes>,
}

impl Graph {
    /// Records a new state of the object at `key`. `head` is `None` if the object has no owners and does not
    /// wait for dependents.
    pub fn put(&mut self, key: &Bytes, head: Option<&Head>) -> Vec<Task> {
        let mut tasks = self.link(key, head);
        let Some(head) = head else {
            // If the object waited for its dependents, the object no longer has the finalizer and no longer waits.
            if self.waiting_keys.remove(key) {
                self.waiting.retain(|_, at| at != key);
            }
            return tasks;
        };
        match head.ending() {
            Some(Ending::Foreground) if !self.waiting.contains_key(head.uid.as_str()) => {
                self.waiting.insert(head.uid.as_str().into(), key.clone());
                self.waiting_keys.insert(key.clone());
                let dependents = self.dependents.get(head.uid.as_str());
                tasks.extend(dependents.into_iter().flat_map(|d| &d.keys).cloned().map(Task::Check));
                tasks.extend(self.release(&head.uid));
            }
            Some(Ending::Foreground) => {}
            Some(Ending::Orphan) => {
                self.forget_waiting(&head.uid);
                tasks.push(Task::Orphan(key.clone()));
            }
            None => self.forget_waiting(&head.uid),
        }
        tasks
    }

    fn forget_waiting(&mut self, uid: &str) {
        if let Some(key) = self.waiting.remove(uid) {
            self.waiting_keys.remove(&key);
        }
    }

    /// Records that the object at `key`, whose uid was `uid`, is gone.
    pub fn removed(&mut self, key: &Bytes, uid: &str) -> Vec<Task> {
        let mut tasks = self.link(key, None);
        self.forget_waiting(uid);
        let dependents = self.dependents.get(uid);
        tasks.extend(dependents.into_iter().flat_map(|d| &d.keys).cloned().map(Task::Check));
        tasks
    }

    /// Replaces the edges of a dependent.
    fn link(&mut self, key: &Bytes, head: Option<&Head>) -> Vec<Task> {
        let references = head.map_or(&[][..], |head| &head.owner_references);
        let old = self.edges.remove(key).unwrap_or_default();
        if references.is_empty() && old.is_empty() {
            return Vec::new();
        }
        let mut new: Vec<Edge> = Vec::with_capacity(references.len());
        for owner in references {
            match new.iter_mut().find(|edge| *edge.owner == *owner.uid) {
                // Two references refer to the same owner. The owner is blocked if either of the two references blocks.
                Some(edge) => edge.blocking |= owner.block_owner_deletion,
                None => {
                    let uid = match self.dependents.get_key_value(owner.uid.as_str()) {
                        Some((uid, _)) => uid.clone(),
                        None => owner.uid.as_str().into(),
                    };
                    new.push(Edge { owner: uid, blocking: owner.block_owner_deletion });
                }
            }
        }
        for edge in &old {
            if let Some(of_owner) = self.dependents.get_mut(&edge.owner) {
                of_owner.keys.remove(key);
                of_owner.blocking -= usize::from(edge.blocking);
            }
        }
        for edge in &new {
            let of_owner = self.dependents.entry(edge.owner.clone()).or_default();
            of_owner.keys.insert(key.clone());
            of_owner.blocking += usize::from(edge.blocking);
        }
        let mut tasks = Vec::new();
        if new.iter().any(|edge| !old.iter().any(|before| before.owner == edge.owner)) {
            tasks.push(Task::Check(key.clone()));
        }
        for edge in &old {
            tasks.extend(self.release(&edge.owner));
            if self.dependents.get(&edge.owner).is_some_and(|of_owner| of_owner.keys.is_empty()) {
                self.dependents.remove(&edge.owner);
            }
        }
        if !new.is_empty() {
            self.edges.insert(key.clone(), new.into());
        }
        tasks
    }

    /// Returns the task to release the owner, if the owner waits and no dependent blocks the owner.
    fn release(&self, uid: &str) -> Option<Task> {
        let key = self.waiting.get(uid)?;
        (!self.is_blocked(uid)).then(|| Task::Release(key.clone()))
    }

    /// Returns whether a dependent blocks the foreground deletion of `uid`.
    pub fn is_blocked(&self, uid: &str) -> bool {
        self.dependents.get(uid).is_some_and(|of_owner| of_owner.blocking > 0)
    }

    /// Returns the keys of the dependents of `uid`.
    pub fn dependents(&self, uid: &str) -> impl Iterator<Item = &Bytes> {
        self.dependents.get(uid).into_iter().flat_map(|of_owner| &of_owner.keys)
    }

    /// Returns whether `uid` has a dependent that itself waits for its dependents, which may be a cycle.
    pub fn has_waiting_dependent(&self, uid: &str) -> bool {
        self.dependents(uid).any(|key| self.waiting_keys.contains(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies a step to the graph: `a<b` means "b owns a", `a<b!` also blocks, `a~foreground` and `a~orphan`
    /// wait, `-a` is gone. Uids equal keys.
    fn apply(graph: &mut Graph, step: &str) -> String {
        let tasks = match step.strip_prefix('-') {
            Some(key) => graph.removed(&Bytes::copy_from_slice(key.as_bytes()), key),
            None => {
                let (edges, ending) = step.split_once('~').unwrap_or((step, ""));
                let mut names = edges.split('<');
                let key = names.next().unwrap_or_default();
                let owners: Vec<String> = names
                    .map(|owner| {
                        let uid = owner.trim_end_matches('!');
                        let blocks = owner.ends_with('!');
                        format!(r#"{{"uid":"{uid}","blockOwnerDeletion":{blocks}}}"#)
                    })
                    .collect();
                let deletion = match ending {
                    "" => String::new(),
                    "foreground" => {
                        r#","deletionTimestamp":"t","finalizers":["foregroundDeletion"]"#.to_owned()
                    }
                    other => format!(r#","deletionTimestamp":"t","finalizers":["{other}"]"#),
                };
                let owners = owners.join(",");
                let text =
                    format!(r#"{{"metadata":{{"uid":"{key}","ownerReferences":[{owners}]{deletion}}}}}"#);
                graph.put(&Bytes::copy_from_slice(key.as_bytes()), Head::read(text.as_bytes()).as_ref())
            }
        };
        let mut texts: Vec<String> = tasks
            .iter()
            .map(|task| {
                let (word, key) = match task {
                    Task::Check(key) => ("check", key),
                    Task::Orphan(key) => ("orphan", key),
                    Task::Release(key) => ("release", key),
                };
                format!("{word} {}", String::from_utf8_lossy(key))
            })
            .collect();
        texts.sort_unstable();
        texts.join(", ")
    }

    #[test]
    fn the_owner_graph_returns_the_tasks_of_each_change() {
        // See docs/api/controllers.md#garbage-collector. Each scenario is a list of steps with the resulting
        // tasks.
        for story in [
            &[("a", ""), ("-a", "")][..],
            &[("a<o", "check a"), ("a<o", ""), ("-o", "check a"), ("-a", "")],
            &[("a<o", "check a"), ("b<o", "check b"), ("-o", "check a, check b")],
            &[("a<o", "check a"), ("a<o<p", "check a"), ("a<p", ""), ("-o", ""), ("-p", "check a")],
            // Foreground: dependents are deleted first, and the deletion of the last blocking dependent
            // releases the owner.
            &[
                ("a<o!", "check a"),
                ("b<o", "check b"),
                ("c<o!", "check c"),
                ("o~foreground", "check a, check b, check c"),
                ("o~foreground", ""),
                ("-a", ""),
                ("-c", "release o"),
                ("-o", "check b"),
            ],
            &[("b<o", "check b"), ("o~foreground", "check b, release o")],
            // A dependent that stops blocking, or gets another owner, has the same effect as a deleted
            // dependent.
            &[("a<o!", "check a"), ("o~foreground", "check a"), ("a<o", "release o")],
            &[("a<o!", "check a"), ("o~foreground", "check a"), ("a<p", "check a, release o")],
            // A dependent that is created later is checked.
            &[("o~foreground", "release o"), ("a<o!", "check a"), ("-a", "release o")],
            // An owner that lost the finalizer does not wait.
            &[("a<o!", "check a"), ("o~foreground", "check a"), ("o", ""), ("-a", "")],
            &[("a<o!", "check a"), ("o~foreground", "check a"), ("o<p", "check o"), ("-a", "")],
            &[("a<o", "check a"), ("o~orphan", "orphan o"), ("o~orphan", "orphan o"), ("a", "")],
            // Two references to the same owner count as one.
            &[("a<o<o!", "check a"), ("o~foreground", "check a"), ("-a", "release o")],
        ] {
            let mut graph = Graph::default();
            for (step, want) in story {
                assert_eq!(apply(&mut graph, step), *want, "{step} in {story:?}");
            }
        }
    }

    #[test]
    fn the_owner_graph_is_empty_after_all_objects_are_deleted() {
        let mut graph = Graph::default();
        for step in ["a<o!<p", "b<a!", "o~foreground", "a<o!<p~foreground", "-b", "-a", "-o", "-p"] {
            apply(&mut graph, step);
        }
        assert!(graph.edges.is_empty() && graph.dependents.is_empty());
        assert!(graph.waiting.is_empty() && graph.waiting_keys.is_empty());
    }

    #[test]
    fn an_owner_cycle_is_detected_from_its_members() {
        let mut graph = Graph::default();
        for step in ["a<b!", "b<a!", "a<b!~foreground"] {
            apply(&mut graph, step);
        }
        assert!(graph.has_waiting_dependent("b") && !graph.has_waiting_dependent("a"));
    }
}
