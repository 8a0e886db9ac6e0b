//! Reports losses of the store that the operator has not accepted, and records them in the store. This
//! happens at the start, and when a reader finds another damaged record (docs/api/operations.md#damage).

use std::path::Path;
use std::time::Duration;

use engine::{Engine, Losses, RevisionSet};

/// Minimum time between two reports.
const PACE: Duration = Duration::from_secs(1);

/// Maximum number of revision ranges in a log line. `verify` lists all ranges.
const RANGES_REPORTED_MAX: usize = 10;

/// Logs the losses of the store `engine` in `data_dir`, and records them in the store, so that the next start
/// finds them without reading the whole log.
pub async fn report(engine: &Engine, data_dir: &Path) {
    let losses = engine.losses();
    let unaccepted = losses.unaccepted();
    if !losses.unaccepted_counts().is_empty() {
        tracing::error!(
            lost_revisions = %ranges(&unaccepted.lost),
            lost_before_checkpoint = losses.unnamed,
            unreadable_records = %ranges(&unaccepted.damaged),
            "the store has unreadable records: it serves all other records, and controllers that delete objects because \
             another object is absent are off. Restore the store from a backup, or accept the loss: stop the server, run \
             cluster-apiserver accept-loss --data-dir={}, and start it again",
            data_dir.display()
        );
    }
    if let Err(error) = engine.note_losses().await {
        tracing::warn!(%error, "cannot record the losses in the store: each start reads the whole log to find them");
    }
}

/// Calls [`report`] again whenever more losses are found.
pub async fn follow(engine: Engine, data_dir: std::path::PathBuf) {
    let mut losses = engine.watch_losses();
    while losses.changed().await.is_ok() {
        tokio::time::sleep(PACE).await;
        losses.borrow_and_update();
        report(&engine, &data_dir).await;
    }
}

/// Formats losses for people, with the ranges of revisions of each kind.
pub fn described(losses: &Losses) -> String {
    let kinds = [("lost revisions", &losses.lost), ("unreadable records of revisions", &losses.damaged)];
    let found = kinds.into_iter().filter(|(_, set)| !set.is_empty());
    found.map(|(kind, set)| format!("{kind} {}", ranges(set))).collect::<Vec<_>>().join(" and ")
}

/// Formats ranges of revisions for people.
pub fn ranges(set: &RevisionSet) -> String {
    let ranges = set.ranges();
    let mut lines: Vec<String> = ranges
        .iter()
        .take(RANGES_REPORTED_MAX)
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    if ranges.len() > RANGES_REPORTED_MAX {
        lines.push(format!("and {} more ranges", ranges.len() - RANGES_REPORTED_MAX));
    }
    if lines.is_empty() { "none".to_owned() } else { lines.join(", ") }
}

#[cfg(test)]
mod tests {
    use engine::Revision;

    use super::*;

    #[test]
    fn a_loss_line_names_few_ranges_and_the_number_of_others() {
        let set = |count: u64| {
            let mut set = RevisionSet::default();
            for n in 0..count {
                set.insert(Revision::new(10 * n + 1), Revision::new(10 * n + 1 + n % 2));
            }
            set
        };
        for (count, want) in [
            (0, "none"),
            (2, "1, 11-12"),
            (12, "1, 11-12, 21, 31-32, 41, 51-52, 61, 71-72, 81, 91-92, and 2 more ranges"),
        ] {
            assert_eq!(ranges(&set(count)), want);
        }
    }

    #[test]
    fn losses_are_described_by_their_ranges() {
        let mut losses = Losses::default();
        losses.lost.insert(Revision::new(7), Revision::new(1_795_898_352_000_005));
        assert_eq!(described(&losses), "lost revisions 7-1795898352000005");
        losses.damaged.insert(Revision::new(3), Revision::new(3));
        let both = "lost revisions 7-1795898352000005 and unreadable records of revisions 3";
        assert_eq!(described(&losses), both);
    }
}
