//! The order of the segments of a log, and the selection of these segments from all segments in a directory.
//! All functions are pure. `docs/format.md` has the rules and the reasons.

use crate::checkpoint::SegmentImage;
use crate::header::Header;
use crate::types::{Revision, SegmentNumber};

/// A segment that should exist but does not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MissingSegment {
    pub number: SegmentNumber,
}

/// Determines the log from the headers of its segments: returns indexes into `headers` in the order of the
/// log. All other segments are superseded.
pub(crate) fn from_headers(headers: &[Header]) -> Result<Vec<usize>, MissingSegment> {
    let LogOrder { log, gaps } = order(headers);
    match gaps.first() {
        None => Ok(log),
        Some(&behind) => Err(MissingSegment { number: headers[behind].after.max(SegmentNumber::FIRST) }),
    }
}

/// The known order of a log in which segments may be missing.
pub(crate) struct LogOrder {
    /// Indexes into the headers, in the order of the log.
    pub log: Vec<usize>,
    /// Indexes of the segments before which a segment is missing.
    pub gaps: Vec<usize>,
}

/// Like [`from_headers`], but returns all gaps instead of an error.
pub(crate) fn order(headers: &[Header]) -> LogOrder {
    let superseded = superseded(headers);
    let mut log: Vec<usize> = (0..headers.len()).filter(|&at| !superseded[at]).collect();
    // If the first record did not fit into a segment, the segment has no records, and it has the same first
    // revision as the segment after it.
    log.sort_unstable_by_key(|&at| (headers[at].first_revision, headers[at].number));
    let mut gaps: Vec<usize> = log
        .first()
        .copied()
        .filter(|&first| headers[first].first_revision != Revision::FIRST)
        .into_iter()
        .collect();
    for pair in log.windows(2) {
        let (before, next) = (&headers[pair[0]], &headers[pair[1]]);
        let follows = match before.rewritten {
            Some(rewritten) => next.first_revision == rewritten.last_revision.next(),
            None => next.after == before.number,
        };
        if !follows {
            gaps.push(pair[1]);
        }
    }
    LogOrder { log, gaps }
}

/// Returns which of the segments are superseded by a rewritten segment. A superseded segment supersedes
/// nothing itself. This rule is necessary because a crash can undo a reclamation after the rewritten file was
/// renamed to its final name. A later reclamation may then rewrite the same segments, or only some of them.
/// If a rewritten segment covers only a part of the range of another rewritten segment, the segment with the
/// larger range did not exist when the one with the smaller range was written.
fn superseded(headers: &[Header]) -> Vec<bool> {
    let mut newest_first: Vec<usize> = (0..headers.len()).collect();
    newest_first.sort_unstable_by_key(|&at| std::cmp::Reverse(headers[at].number));
    let mut superseded = vec![false; headers.len()];
    let mut rewritten: Vec<std::ops::RangeInclusive<Revision>> = Vec::new();
    for at in newest_first {
        let header = &headers[at];
        let last_known = header.rewritten.map_or(header.first_revision, |it| it.last_revision);
        superseded[at] = rewritten
            .iter()
            .any(|stretch| *stretch.start() <= last_known && header.first_revision <= *stretch.end());
        if header.rewritten.is_some() && !superseded[at] {
            rewritten.push(header.first_revision..=last_known);
        }
    }
    superseded
}

/// Determines the log from a checkpoint and the segments written after it: returns indexes into `headers` in
/// the order of the log. All other segments were superseded before the checkpoint, or reclamation wrote them
/// after it. Returns `None` if the checkpoint does not match the segments.
pub(crate) fn from_checkpoint(
    headers: &[Header],
    store: u64,
    images: &[SegmentImage],
    numbers_given: SegmentNumber,
) -> Option<Vec<usize>> {
    let mut log = Vec::with_capacity(images.len() + 1);
    for image in images {
        let is_meant = |header: &Header| {
            header.number == image.number && header.salt == image.salt && header.store == store
        };
        let at = headers.iter().position(is_meant)?;
        // A segment without records has the same first revision as the segment after it.
        let place = |at: usize| (headers[at].first_revision, headers[at].number);
        if log.last().is_some_and(|&before| place(before) >= place(at)) {
            return None;
        }
        log.push(at);
    }
    loop {
        let last = &headers[*log.last()?];
        let next = headers.iter().position(|header| {
            header.after == last.number
                && header.rewritten.is_none()
                && header.first_revision >= last.first_revision
                && !images.iter().any(|image| image.number == header.number)
        });
        match next {
            Some(next) => log.push(next),
            None => break,
        }
    }
    // A segment that is newer than the checkpoint and that reclamation did not write is part of the end of
    // the log.
    let is_explained = |at: usize| {
        headers[at].rewritten.is_some() || headers[at].number <= numbers_given || log.contains(&at)
    };
    (0..headers.len()).all(is_explained).then_some(log)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{Numbering, Rewritten};

    /// Parses `n<a@r` (number, number of the segment before, first revision) or `n<a@r-l` (rewritten, with
    /// last revision).
    fn header(text: &str) -> Header {
        let (numbers, revisions) = text.split_once('@').unwrap();
        let (number, after) = numbers.split_once('<').unwrap();
        let (first, last) = match revisions.split_once('-') {
            Some((first, last)) => (first, Some(last.parse().unwrap())),
            None => (revisions, None),
        };
        let rewritten = |last_revision| Rewritten {
            last_revision,
            oldest: Revision::new(900),
            records: 0,
            end: 4096,
            tombstone_bytes: 0,
            tombstones_since: Revision::ZERO,
        };
        Header {
            number: number.parse().map(SegmentNumber::new).unwrap(),
            after: after.parse().map(SegmentNumber::new).unwrap(),
            first_revision: first.parse().unwrap(),
            salt: 7,
            store: 5,
            numbering: Numbering::Dense,
            rewritten: last.map(rewritten),
        }
    }

    fn headers(text: &str) -> Vec<Header> {
        text.split_whitespace().map(header).collect()
    }

    fn numbers(headers: &[Header], log: &[usize]) -> String {
        let numbers: Vec<_> = log.iter().map(|&at| headers[at].number.to_string()).collect();
        numbers.join(" ")
    }

    #[test]
    fn the_newest_segment_that_covers_a_range_of_the_log_is_used() {
        for (files, log) in [
            ("", Ok("")),
            ("1<0@1", Ok("1")),
            ("1<0@1 2<1@10 3<2@20", Ok("1 2 3")),
            ("3<2@20 2<1@10 1<0@1", Ok("1 2 3")),
            ("2<1@1 1<0@1", Ok("1 2")),
            // A segment was rewritten alone, then together with its neighbour, then again. All or some of the
            // old segments are still present.
            ("1<0@1 2<1@10 3<2@20 4<0@1-9", Ok("4 2 3")),
            ("2<1@10 3<2@20 4<0@1-9", Ok("4 2 3")),
            ("1<0@1 3<2@20 4<0@1-19", Ok("4 3")),
            ("1<0@1 2<1@10 3<2@20 4<0@1-9 5<0@1-19", Ok("5 3")),
            ("1<0@1 2<1@10 3<2@20 4<1@10-19", Ok("1 4 3")),
            ("5<2@30 3<2@20-29 2<1@10 1<0@1 6<1@10-29", Ok("1 6 5")),
            // A crash undid the reclamation that wrote 4. Later 6 was made from 1 alone, so 2 is still valid.
            ("1<0@1 2<1@10 3<2@20 4<0@1-19 6<0@1-9", Ok("6 2 3")),
            ("2<1@10 3<2@20 4<0@1-19 6<0@1-9", Ok("6 2 3")),
            // As above, but 6 was made from 2. In the third case, 7 was then made from 1 and 6.
            ("1<0@1 2<1@10 3<2@20 4<0@1-19 6<1@10-19", Ok("1 6 3")),
            ("1<0@1 3<2@20 4<0@1-19 6<1@10-19", Ok("1 6 3")),
            ("1<0@1 2<1@10 3<2@20 4<0@1-19 6<1@10-19 7<0@1-19", Ok("7 3")),
            // A store that begins with a segment made by a restore.
            ("1<0@1-500", Ok("1")),
            ("1<0@1-500 2<1@501", Ok("1 2")),
            // A segment is missing: the first one, one in the middle, or one after a rewritten segment.
            ("2<1@10", Err(1)),
            ("1<0@1 3<2@20", Err(2)),
            ("4<0@1-9 3<2@20", Err(2)),
            ("1<0@1 4<2@20-29", Err(2)),
        ] {
            let headers = headers(files);
            let got = from_headers(&headers)
                .map(|log| numbers(&headers, &log))
                .map_err(|missing| missing.number.get());
            assert_eq!(got, log.map(str::to_owned), "{files}");
        }
    }

    #[test]
    fn a_checkpoint_and_the_segments_after_it_make_up_the_log() {
        for (files, images, given, log) in [
            ("1<0@1", "1", 1, Some("1")),
            ("1<0@1 2<1@10 3<2@20", "1", 1, Some("1 2 3")),
            ("1<0@1 2<1@10 3<2@20", "1 2", 2, Some("1 2 3")),
            // Segment 2 was left without records.
            ("1<0@1 2<1@10 3<2@10", "1 2 3", 3, Some("1 2 3")),
            ("1<0@1 2<1@10 3<2@10", "1 3 2", 3, None),
            // Reclamation ran after the checkpoint. The chain ignores the rewritten segment and keeps the
            // superseded ones.
            ("1<0@1 2<1@10 3<2@20 4<0@1-9", "1 2 3", 3, Some("1 2 3")),
            ("1<0@1 2<1@10 3<2@20 4<0@1-19", "1 2", 2, Some("1 2 3")),
            // Reclamation ran before the checkpoint: the superseded segments are ignored.
            ("1<0@1 2<1@10 3<0@1-9", "3 2", 3, Some("3 2")),
            ("2<1@10 3<0@1-9 4<2@20", "3 2", 3, Some("3 2 4")),
            // A segment of the checkpoint is missing, or a segment written after it.
            ("2<1@10 3<2@20", "1 2", 2, None),
            ("1<0@1 3<2@20", "1", 1, None),
            ("1<0@1 2<1@10 4<3@30", "1 2", 2, None),
        ] {
            let headers = headers(files);
            let images: Vec<_> = images
                .split_whitespace()
                .map(|n| SegmentImage {
                    number: n.parse().map(SegmentNumber::new).unwrap(),
                    salt: 7,
                    end: 4096,
                    marks: Vec::new(),
                })
                .collect();
            let got = from_checkpoint(&headers, 5, &images, SegmentNumber::new(given))
                .map(|log| numbers(&headers, &log));
            assert_eq!(got, log.map(str::to_owned), "{files}");
            assert_eq!(
                from_checkpoint(&headers, 6, &images, SegmentNumber::new(given)),
                None,
                "another store"
            );
        }
        let headers = headers("1<0@1");
        let other = SegmentImage { number: SegmentNumber::FIRST, salt: 8, end: 4096, marks: Vec::new() };
        assert_eq!(from_checkpoint(&headers, 5, &[other], SegmentNumber::FIRST), None, "another segment 1");
    }
}
