//! Which segments make the log, in which order, and which are missing: a function of their headers.
//! Source: `docs/format.md`, "Which files make the log".

use crate::header::Header;

/// The log that a set of segments makes.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Chain<S> {
    /// In order.
    pub log: Vec<S>,
    /// How many segments others stand for.
    pub superseded: u32,
    /// Numbers of segments before which one is missing; `None` when there are no segments at all.
    pub missing: Vec<Option<u32>>,
}

/// Puts segments in the order of the log.
pub(super) fn chain<S>(segments: Vec<S>, header: impl Fn(&S) -> Header) -> Chain<S> {
    let all: Vec<Header> = segments.iter().map(&header).collect();
    let is_superseded = |old: &Header| {
        all.iter().any(|new| {
            new.number > old.number
                && new.rewritten.is_some_and(|rewritten| {
                    (new.first_revision..=rewritten.last_revision).contains(&old.first_revision)
                })
        })
    };
    let before = segments.len();
    let mut log: Vec<S> = segments.into_iter().filter(|segment| !is_superseded(&header(segment))).collect();
    // A segment that nothing was written into begins with the same revision as the one after it.
    log.sort_by_key(|segment| (header(segment).first_revision, header(segment).number));
    let mut missing = Vec::new();
    match log.first() {
        Some(first) if header(first).first_revision != 1 => missing.push(Some(header(first).number)),
        Some(_) => {}
        None => missing.push(None),
    }
    for pair in log.windows(2) {
        let (left, right) = (header(&pair[0]), header(&pair[1]));
        let follows = match left.rewritten {
            Some(rewritten) => right.first_revision == rewritten.last_revision + 1,
            None => right.after == left.number,
        };
        if !follows {
            missing.push(Some(right.number));
        }
    }
    Chain { superseded: (before - log.len()) as u32, log, missing }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Rewritten;

    /// `7<6@100` is number 7, made after 6, from revision 100; `7@1-200` is rewritten, up to revision 200.
    fn parse(text: &str) -> Header {
        let (name, revisions) = text.split_once('@').unwrap();
        let (number, after) = name.split_once('<').unwrap_or((name, "0"));
        let (first, last) = revisions.split_once('-').map_or((revisions, None), |(f, l)| (f, Some(l)));
        let rewritten = last.map(|last| {
            let last_revision = last.parse().unwrap();
            Rewritten { last_revision, oldest: last_revision, records: 0, end: 4096, grave_bytes: 0 }
        });
        Header {
            number: number.parse().unwrap(),
            after: after.parse().unwrap(),
            first_revision: first.parse().unwrap(),
            salt: 1,
            store: 1,
            rewritten,
        }
    }

    #[test]
    fn the_log_is_what_nothing_newer_stands_for() {
        for (segments, log, superseded, missing) in [
            ("1@1", "1", 0, ""),
            ("2<1@10 1@1 3<2@20", "1 2 3", 0, ""),
            // Rewritten while the old ones are still there, and after they are gone.
            ("1@1 2<1@10 3<2@20 4@1-19", "4 3", 2, ""),
            ("3<2@20 4@1-19", "4 3", 0, ""),
            // Rewritten again together with what came after.
            ("4@1-19 3<2@20 5<3@30 6@1-29", "6 5", 2, ""),
            // Nothing was written between two rolls.
            ("1@1 2<1@10 3<2@10", "1 2 3", 0, ""),
            ("2<1@10 3<2@20", "2 3", 0, "2"),
            ("1@1 3<2@20", "1 3", 0, "3"),
            ("4@1-19 5<3@30", "4 5", 0, "5"),
        ] {
            let got = chain(segments.split(' ').map(parse).collect(), |header| *header);
            let text = |numbers: Vec<u32>| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
            let got_log = text(got.log.iter().map(|header| header.number).collect());
            let got_missing = text(got.missing.iter().map(|number| number.unwrap()).collect());
            assert_eq!(
                (got_log.as_str(), got.superseded, got_missing.as_str()),
                (log, superseded, missing),
                "{segments}"
            );
        }
        assert_eq!(chain(Vec::<Header>::new(), |header| *header).missing, [None]);
    }
}
