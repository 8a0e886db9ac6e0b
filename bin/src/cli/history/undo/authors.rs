//! Restricts a plan to objects that one user changed. The histories of the objects have the authors.

use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

use super::super::discovery::CONCURRENT;
use super::super::versions;
use super::step::{UndoAction, UndoStep};
use crate::remote::client::Client;

/// Number of versions in a page.
const PAGE: usize = 100;

/// Returns the steps for objects that `user` changed since the point. Each step brings back the state before the user's
/// first change.
///
/// # Errors
/// The server cannot be reached, or refuses the history of an object.
pub async fn only_of(client: &Client, steps: Vec<UndoStep>, user: &str) -> anyhow::Result<Vec<UndoStep>> {
    let steps = steps.into_iter().map(async |step| {
        let mut since = Vec::new();
        let path = format!("/history{}", step.path);
        let query = format!("limit={PAGE}");
        versions::read(client, &path, &query, |item| {
            let is_after = versions::revision(&item) > step.point_revision;
            since.extend(is_after.then_some(item));
            is_after
        })
        .await?;
        anyhow::Ok(restricted(step, &since, user))
    });
    let steps: Vec<Option<UndoStep>> = stream::iter(steps).buffered(CONCURRENT).try_collect().await?;
    Ok(steps.into_iter().flatten().collect())
}

/// Returns the step that brings back the state before the user's first change, or `None` if there is nothing to do.
/// `since` has the versions of the object after the point, the newest first.
fn restricted(step: UndoStep, since: &[Value], user: &str) -> Option<UndoStep> {
    let first = since.iter().rev().find(|item| item["author"]["user"].as_str() == Some(user))?;
    let exists_now = step.action != UndoAction::Create;
    let before = versions::revision(first).checked_sub(1).filter(|_| first["operation"] != "Create");
    match (before, exists_now) {
        (Some(revision), true) => {
            Some(UndoStep { action: UndoAction::Restore, revision: Some(revision), ..step })
        }
        (Some(revision), false) => {
            Some(UndoStep { action: UndoAction::Create, revision: Some(revision), ..step })
        }
        (None, true) => Some(UndoStep { action: UndoAction::Delete, revision: None, ..step }),
        (None, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn undo_restores_the_state_before_the_first_change_of_the_user() {
        let item = |revision: u64, operation: &str, user: &str| json!({"revision": revision.to_string(), "operation": operation, "author": {"user": user}});
        for (action, since, want) in [
            (
                UndoAction::Restore,
                vec![item(9, "Update", "bob"), item(7, "Update", "alice")],
                Some((UndoAction::Restore, Some(6))),
            ),
            (UndoAction::Restore, vec![item(9, "Update", "bob")], None),
            (
                UndoAction::Create,
                vec![item(9, "Delete", "alice"), item(7, "Update", "bob")],
                Some((UndoAction::Create, Some(8))),
            ),
            (UndoAction::Delete, vec![item(7, "Create", "alice")], Some((UndoAction::Delete, None))),
            (
                UndoAction::Delete,
                vec![item(9, "Update", "alice"), item(7, "Create", "bob")],
                Some((UndoAction::Restore, Some(8))),
            ),
            (UndoAction::Create, vec![item(9, "Create", "alice")], None),
            (UndoAction::Restore, vec![json!({"revision": "9", "operation": "Update"})], None),
        ] {
            let step = UndoStep { action, point_revision: 5, revision: Some(5), ..UndoStep::default() };
            let got = restricted(step, &since, "alice").map(|step| (step.action, step.revision));
            assert_eq!(got, want, "{since:?}");
        }
    }
}
