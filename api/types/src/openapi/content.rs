//! Responses with a finished document to conditional and range requests (RFC 9110).

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

/// A document with its media type and validators.
pub(super) struct DocumentContent {
    pub body: Bytes,
    pub content_type: HeaderValue,
    /// Quoted strong ETag of the document.
    pub etag: HeaderValue,
    /// Time at which the server began to serve this document.
    pub modified: HeaderValue,
}

/// Responds with the whole document, a range of the document, or 304 Not Modified.
pub(super) fn respond(content: DocumentContent, headers: &HeaderMap) -> Response<Bytes> {
    let DocumentContent { body, content_type, etag, modified } = content;
    let mut response = Response::new(Bytes::new());
    if unchanged(headers, &etag, &modified) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        let len = body.len();
        // A range is valid only if the client has the other parts of the same version of this document.
        let current = headers.get(IF_RANGE).is_none_or(|known| *known == etag || *known == modified);
        let range = headers.get(RANGE).filter(|_| current).and_then(|range| range.to_str().ok());
        match range.map_or(ByteRange::All, |range| parse_range(range, len)) {
            ByteRange::All => *response.body_mut() = body,
            ByteRange::Some(from, to) => {
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                insert(&mut response, &format!("bytes {from}-{}/{len}", to - 1));
                *response.body_mut() = body.slice(from..to);
            }
            ByteRange::Outside => {
                *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
                insert(&mut response, &format!("bytes */{len}"));
            }
        }
        response.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    }
    response.headers_mut().insert(ETAG, etag);
    response.headers_mut().insert(LAST_MODIFIED, modified);
    response
}

fn insert(response: &mut Response<Bytes>, range: &str) {
    if let Ok(range) = HeaderValue::from_str(range) {
        response.headers_mut().insert(CONTENT_RANGE, range);
    }
}

/// Returns whether the client has the current document. If `If-None-Match` is present, `If-Modified-Since` is
/// ignored. Dates are compared for equality, because the server has one date for each document.
fn unchanged(headers: &HeaderMap, etag: &HeaderValue, modified: &HeaderValue) -> bool {
    match headers.get(IF_NONE_MATCH).map(|known| known.to_str().unwrap_or("")) {
        Some(known) => known.split(',').map(str::trim).any(|known| {
            known == "*" || known.strip_prefix("W/").unwrap_or(known).as_bytes() == etag.as_bytes()
        }),
        None => headers.get(IF_MODIFIED_SINCE) == Some(modified),
    }
}

#[derive(Debug, Eq, PartialEq)]
enum ByteRange {
    All,
    /// A half-open range of bytes.
    Some(usize, usize),
    Outside,
}

/// Parses a range of bytes. A request for several ranges, for other units, or with a malformed range
/// returns the whole document, as the standard allows.
fn parse_range(range: &str, len: usize) -> ByteRange {
    let Some((from, last)) = range.strip_prefix("bytes=").and_then(|range| range.trim().split_once('-'))
    else {
        return ByteRange::All;
    };
    match (from.parse::<usize>(), last.parse::<usize>(), from.is_empty(), last.is_empty()) {
        (Ok(from), Ok(last), ..) if from <= last && from < len => {
            ByteRange::Some(from, last.saturating_add(1).min(len))
        }
        (Ok(from), Ok(last), ..) if from > last => ByteRange::All,
        (Ok(from), _, _, true) if from < len => ByteRange::Some(from, len),
        (_, Ok(suffix), true, _) if suffix > 0 && len > 0 => ByteRange::Some(len.saturating_sub(suffix), len),
        (Ok(_), Ok(_), ..) | (Ok(_), _, _, true) | (_, Ok(_), true, _) => ByteRange::Outside,
        _ => ByteRange::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_ranges_are_parsed_as_in_rfc_9110() {
        for (range, want) in [
            ("bytes=0-3", ByteRange::Some(0, 4)),
            ("bytes=4-", ByteRange::Some(4, 10)),
            ("bytes=-3", ByteRange::Some(7, 10)),
            ("bytes=-30", ByteRange::Some(0, 10)),
            ("bytes=5-100", ByteRange::Some(5, 10)),
            ("bytes=10-", ByteRange::Outside),
            ("bytes=10-12", ByteRange::Outside),
            ("bytes=-0", ByteRange::Outside),
            ("bytes=3-1", ByteRange::All),
            ("bytes=0-1,3-4", ByteRange::All),
            ("lines=0-1", ByteRange::All),
            ("bytes=a-b", ByteRange::All),
            ("bytes=99999999999999999999-", ByteRange::All),
        ] {
            assert_eq!(parse_range(range, 10), want, "{range}");
        }
        assert_eq!(parse_range("bytes=-1", 0), ByteRange::Outside);
    }

    #[test]
    fn if_none_match_takes_precedence_over_if_modified_since() {
        let (etag, modified) = (HeaderValue::from_static("\"A\""), HeaderValue::from_static("yesterday"));
        for (none_match, since, code) in [
            ("", "", 200),
            ("\"A\"", "", 304),
            ("\"B\", W/\"A\"", "", 304),
            ("*", "", 304),
            ("\"B\"", "yesterday", 200),
            ("", "yesterday", 304),
            ("", "today", 200),
        ] {
            let mut headers = HeaderMap::new();
            if !none_match.is_empty() {
                headers.insert(IF_NONE_MATCH, HeaderValue::from_static(none_match));
            }
            if !since.is_empty() {
                headers.insert(IF_MODIFIED_SINCE, HeaderValue::from_static(since));
            }
            let content = DocumentContent {
                body: Bytes::from_static(b"0123456789"),
                content_type: HeaderValue::from_static("text/plain"),
                etag: etag.clone(),
                modified: modified.clone(),
            };
            let response = respond(content, &headers);
            assert_eq!(response.status(), code, "{none_match} {since}");
            assert_eq!(response.body().is_empty(), code == 304);
        }
    }
}
