//! Metadata-only representations: `PartialObjectMetadata` and its list, copied from stored bytes.
//!
//! The stored form of an object begins with `{"kind":"…","apiVersion":"…","metadata":{…}`, so the metadata is
//! a range of the stored bytes. This range is found by matching braces, and is copied without parsing.
//! Source: docs/api/encodings.md#accept, #tables.

use std::io::Write;
use std::ops::Range;

use values::json::scan::Scan;
use values::json::write_string;
use values::naming::Naming;

/// A version of the meta group in which tables and metadata-only objects are requested.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MetaVersion {
    /// The version `v1` of the meta group.
    #[default]
    V1,
    /// `v1beta1`, which differs from `v1` only in the name.
    V1beta1,
}

impl MetaVersion {
    /// Returns the name of the version.
    pub fn as_str(self) -> &'static str {
        match self {
            MetaVersion::V1 => "v1",
            MetaVersion::V1beta1 => "v1beta1",
        }
    }

    /// Returns the version called `name`.
    pub fn by_name(name: &str) -> Option<Self> {
        [MetaVersion::V1, MetaVersion::V1beta1].into_iter().find(|version| version.as_str() == name)
    }

    /// Returns the first bytes of an object of `kind`: `{"kind":"…","apiVersion":"…"`.
    pub fn opening(self, kind: &str, naming: &Naming) -> String {
        format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{}/{}\"", naming.meta_group(), self.as_str())
    }
}

/// Metadata of a list or table. An empty resourceVersion is omitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListMeta<'m> {
    /// The resourceVersion of the collection.
    pub resource_version: &'m str,
    /// Continue token for the next chunk; `Some("")` writes an empty token, for the last chunk of lists that
    /// always have this member.
    pub continue_token: Option<&'m str>,
    /// Number of objects after this chunk.
    pub remaining: Option<u64>,
}

impl ListMeta<'_> {
    /// Appends the metadata as an object.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        let start = out.len();
        let version = Some(self.resource_version).filter(|version| !version.is_empty());
        for (name, text) in [("resourceVersion", version), ("continue", self.continue_token)] {
            if let Some(text) = text {
                separate(start, out);
                write_string(name, out);
                out.push(b':');
                write_string(text, out);
            }
        }
        if let Some(remaining) = self.remaining {
            separate(start, out);
            write!(out, "\"remainingItemCount\":{remaining}").expect("writing to memory cannot fail");
        }
        out.push(b'}');
    }
}

/// Appends a comma if something was written since `start`.
fn separate(start: usize, out: &mut Vec<u8>) {
    if out.len() > start {
        out.push(b',');
    }
}

/// Writer of metadata-only objects of one version.
#[derive(Debug)]
pub struct PartialWriter {
    item: String,
    list: String,
    items: usize,
}

impl PartialWriter {
    /// Creates a writer of objects of `version`.
    pub fn new(version: MetaVersion, naming: &Naming) -> Self {
        PartialWriter {
            item: version.opening("PartialObjectMetadata", naming) + ",\"metadata\":",
            list: version.opening("PartialObjectMetadataList", naming) + ",\"metadata\":",
            items: 0,
        }
    }

    /// Creates a writer of further items of the same list, after the first item.
    #[must_use]
    pub fn fork(&self) -> Self {
        PartialWriter { item: self.item.clone(), list: self.list.clone(), items: 1 }
    }

    /// Appends the metadata-only form of `stored`, without a newline. Returns whether `stored` has metadata.
    /// Without metadata, nothing is written.
    #[must_use]
    pub fn object(&self, stored: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(range) = metadata_range(stored) else { return false };
        self.object_of(&stored[range], out);
        true
    }

    /// Appends the metadata-only form of an object with this metadata.
    pub fn object_of(&self, metadata: &[u8], out: &mut Vec<u8>) {
        out.reserve(self.item.len() + metadata.len() + 1);
        out.extend_from_slice(self.item.as_bytes());
        out.extend_from_slice(metadata);
        out.push(b'}');
    }

    /// Appends the head of a list.
    pub fn list_head(&mut self, meta: &ListMeta, out: &mut Vec<u8>) {
        self.items = 0;
        out.extend_from_slice(self.list.as_bytes());
        meta.write(out);
        out.extend_from_slice(b",\"items\":[");
    }

    /// Appends the next item of the list. Returns whether `stored` has metadata, like
    /// [`PartialWriter::object`].
    #[must_use]
    pub fn list_item(&mut self, stored: &[u8], out: &mut Vec<u8>) -> bool {
        let before = out.len();
        if self.items > 0 {
            out.push(b',');
        }
        let written = self.object(stored, out);
        if written {
            self.items += 1;
        } else {
            out.truncate(before);
        }
        written
    }

    /// Closes the list, with the final newline of a document.
    pub fn list_tail(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"]}\n");
    }
}

/// Returns the range of the top-level member `metadata` in an object's compact JSON, including its braces;
/// `None` if the bytes are not an object in this form. The function reads up to the end of the metadata only.
pub fn metadata_range(stored: &[u8]) -> Option<Range<usize>> {
    let start = metadata_start(stored)?;
    let value = Scan::new(&stored[start..]).value()?;
    Some(start..start + value.len())
}

/// Returns the position of the metadata's opening brace. The function does not read beyond this brace.
pub fn metadata_start(stored: &[u8]) -> Option<usize> {
    let mut scan = Scan::new(stored);
    if !scan.take(b'{') {
        return None;
    }
    loop {
        let name = scan.name()?;
        if name.raw == b"metadata" {
            return (scan.peek() == b'{').then_some(scan.position());
        }
        scan.value()?;
        if !scan.more(b'}')? {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::{CLUSTER, KUBERNETES};

    #[test]
    fn metadata_is_found_by_matching_braces() {
        for (stored, want) in [
            (
                r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{}}"#,
                Some(r#"{"name":"a"}"#),
            ),
            (r#"{"metadata":{}}"#, Some("{}")),
            (
                r#"{"kind":"P\"{","metadata":{"a":"}\\","b":{"c":["]",{}]},"d":"\"}"},"x":1}"#,
                Some(r#"{"a":"}\\","b":{"c":["]",{}]},"d":"\"}"}"#),
            ),
            (r#"{"n":12,"o":{"metadata":{"no":1}},"t":true,"metadata":{"yes":1}}"#, Some(r#"{"yes":1}"#)),
            (r#"{"kind":"Pod"}"#, None),
            (r#"{"metadata":[]}"#, None),
            (r#"{"metadata":{"name":"a""#, None),
            (r#"{"metadata":{"name":"a\"#, None),
            (r#"{"metadata"}"#, None),
            ("{}", None),
            ("[]", None),
            ("", None),
        ] {
            let range = metadata_range(stored.as_bytes());
            assert_eq!(range.map(|range| &stored[range]), want, "{stored}");
        }
    }

    #[test]
    fn objects_and_lists_carry_the_stored_metadata_bytes() {
        let one = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{"x":1}}"#;
        let mut out = Vec::new();
        assert!(PartialWriter::new(MetaVersion::V1, &CLUSTER).object(one, &mut out));
        let meta = CLUSTER.meta_group();
        let want = format!(
            r#"{{"kind":"PartialObjectMetadata","apiVersion":"{meta}/v1","metadata":{{"name":"a"}}}}"#
        );
        assert_eq!(String::from_utf8(out).unwrap(), want);

        let mut writer = PartialWriter::new(MetaVersion::V1beta1, &KUBERNETES);
        let mut out = Vec::new();
        writer.list_head(
            &ListMeta { resource_version: "7", remaining: Some(3), ..ListMeta::default() },
            &mut out,
        );
        assert!(writer.list_item(one, &mut out));
        assert!(!writer.list_item(b"{}", &mut out), "no metadata");
        assert!(writer.list_item(one, &mut out));
        writer.list_tail(&mut out);
        let meta = KUBERNETES.meta_group();
        let item = format!(
            r#"{{"kind":"PartialObjectMetadata","apiVersion":"{meta}/v1beta1","metadata":{{"name":"a"}}}}"#
        );
        let want = format!(
            "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"{meta}/v1beta1\",\
             \"metadata\":{{\"resourceVersion\":\"7\",\"remainingItemCount\":3}},\"items\":[{item},{item}]}}\n"
        );
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }
}
