//! Encodes spans as the message `ExportTraceServiceRequest` of the OpenTelemetry protocol (OTLP 1.0), field
//! by field: the message is small and does not change. This module does not send the message.

use super::Span;

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;

/// The values `SPAN_KIND_INTERNAL` and `SPAN_KIND_SERVER`.
const KINDS: [u64; 2] = [1, 2];

/// The value `STATUS_CODE_ERROR`.
const ERROR: u64 = 2;

/// Returns the request with `spans` of this service.
pub(super) fn request(service: &str, spans: &[Span]) -> Vec<u8> {
    message(|resource_spans| {
        let resource = message(|resource| bytes(resource, 1, &attribute("service.name", service)));
        let scoped = message(|scoped| {
            bytes(scoped, 1, &message(|scope| bytes(scope, 1, service.as_bytes())));
            spans.iter().for_each(|span| bytes(scoped, 2, &encoded(span)));
        });
        let all = message(|all| {
            bytes(all, 1, &resource);
            bytes(all, 2, &scoped);
        });
        bytes(resource_spans, 1, &all);
    })
}

fn encoded(span: &Span) -> Vec<u8> {
    message(|out| {
        bytes(out, 1, &span.trace);
        bytes(out, 2, &span.id);
        if let Some(parent) = &span.parent {
            bytes(out, 4, parent);
        }
        bytes(out, 5, span.name.as_bytes());
        number(out, 6, KINDS[usize::from(span.is_entry)]);
        fixed64(out, 7, span.began_ns);
        fixed64(out, 8, span.ended_ns);
        for (name, value) in &span.attributes {
            bytes(out, 9, &attribute(name, value));
        }
        if span.is_failed {
            bytes(out, 15, &message(|status| number(status, 3, ERROR)));
        }
    })
}

/// Returns a `KeyValue` with a string value.
fn attribute(name: &str, value: &str) -> Vec<u8> {
    message(|out| {
        bytes(out, 1, name.as_bytes());
        bytes(out, 2, &message(|any| bytes(any, 1, value.as_bytes())));
    })
}

fn message(fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    fill(&mut out);
    out
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3 | VARINT);
    varint(out, value);
}

fn fixed64(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3 | FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | LENGTH);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_encoded_in_the_otlp_protobuf_format() {
        let span = Span {
            trace: [1; 16],
            id: [2; 8],
            parent: Some([3; 8]),
            name: "n".to_owned(),
            is_entry: true,
            began_ns: 4,
            ended_ns: 5,
            attributes: vec![("k", "v".repeat(200))],
            is_failed: true,
        };
        let text = encoded(&span);
        let mut want = vec![0x0a, 16];
        want.extend([1; 16]);
        want.extend([0x12, 8, 2, 2, 2, 2, 2, 2, 2, 2, 0x22, 8, 3, 3, 3, 3, 3, 3, 3, 3]);
        want.extend([0x2a, 1, b'n', 0x30, 2, 0x39, 4, 0, 0, 0, 0, 0, 0, 0, 0x41, 5, 0, 0, 0, 0, 0, 0, 0]);
        want.extend([0x4a, 209, 1, 0x0a, 1, b'k', 0x12, 203, 1, 0x0a, 200, 1]);
        want.extend([b'v'; 200]);
        want.extend([0x7a, 2, 0x18, 2]);
        assert_eq!(text, want);
        let whole = request("s", &[span]);
        assert!(whole.starts_with(&[0x0a]) && whole.windows(text.len()).any(|part| part == text));
    }
}
