//! The schema of a type as its author wrote it, which is only published, with its descriptions.
//!
//! The schema is stored as text, and a long one is compressed (RFC 1950). It is read only when a document is
//! generated, which is rare, and the text of a large definition is several times as large as the type that is
//! made from it.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use values::json::{self, Value};

/// Texts up to this size are stored uncompressed: a thousand of them take little memory, and compressing them
/// would slow the start down.
const PLAIN_BYTES_MAX: usize = 16 * 1024;

/// The text of a schema.
#[derive(Debug)]
pub struct Published {
    /// Length of the text in bytes.
    length: usize,
    /// The text if its length is `length`, otherwise its compressed form.
    kept: Box<[u8]>,
}

impl Published {
    /// Stores a schema as text.
    pub fn new(schema: &Value) -> Published {
        let mut text = Vec::new();
        json::write(schema, &mut text);
        let length = text.len();
        let kept = (length > PLAIN_BYTES_MAX).then(|| compressed(&text)).flatten();
        Published { length, kept: kept.unwrap_or(text).into() }
    }

    /// Returns the schema as a tree.
    pub fn schema(&self) -> Value {
        let parse = |text: &[u8]| json::parse(text).unwrap_or_default();
        if self.kept.len() == self.length {
            return parse(&self.kept);
        }
        let mut text = Vec::with_capacity(self.length);
        match Decompress::new(true).decompress_vec(&self.kept, &mut text, FlushDecompress::Finish) {
            Ok(_) => parse(&text),
            Err(_) => Value::Null, // unreachable: `compressed` wrote the data
        }
    }
}

/// Returns the compressed form of a text, if it is shorter than the text.
fn compressed(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() - 1);
    let status = Compress::new(Compression::fast(), true).compress_vec(text, &mut out, FlushCompress::Finish);
    matches!(status, Ok(flate2::Status::StreamEnd)).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json::Object;

    #[test]
    fn a_schema_is_read_as_it_was_written() {
        let words = |count: usize| (0..count).map(|at| format!("word {at} ")).collect::<String>();
        for (bytes, is_short) in [(words(1), false), (words(1000), false), (words(20_000), true)] {
            let schema = Value::Object(Object::from_iter([("description".into(), Value::from(&*bytes))]));
            let kept = Published::new(&schema);
            assert_eq!(kept.schema(), schema);
            assert_eq!(kept.kept.len() < kept.length / 2, is_short, "{} of {}", kept.kept.len(), kept.length);
        }
        // A text that does not become shorter is stored uncompressed.
        let noise: String = (0..40_000u32)
            .map(|at| char::from_u32(0x4e00 + at.wrapping_mul(2_654_435_761) % 20_000).unwrap_or('x'))
            .collect();
        let schema = Value::from(&*noise);
        assert_eq!(Published::new(&schema).schema(), schema);
    }
}
