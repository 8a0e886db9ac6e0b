//! The schema of a type as its author wrote it, with its descriptions; the server only publishes this schema.
//!
//! The schema is stored as text, and a long text is compressed (RFC 1950). The schema is read only when a
//! document is generated, which is rare, and the text of a large definition is several times as large as the
//! type that is made from the text.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use values::json::{self, Value};

/// Texts up to this size are stored uncompressed: a thousand such texts take little memory, and compression would slow
/// the start down.
const PLAIN_BYTES_MAX: usize = 16 * 1024;

/// The text of a schema.
#[derive(Debug)]
pub struct Published {
    /// Length of the text in bytes.
    length: usize,
    /// The uncompressed text if the buffer has `length` bytes, otherwise the compressed text.
    bytes: Box<[u8]>,
}

impl Published {
    /// Stores a schema as text.
    pub fn new(schema: &Value) -> Published {
        let mut text = Vec::new();
        json::write(schema, &mut text);
        let length = text.len();
        let bytes = (length > PLAIN_BYTES_MAX).then(|| compressed(&text)).flatten();
        Published { length, bytes: bytes.unwrap_or(text).into() }
    }

    /// Returns the schema as a tree.
    pub fn schema(&self) -> Value {
        let parse = |text: &[u8]| json::parse(text).unwrap_or_default();
        if self.bytes.len() == self.length {
            return parse(&self.bytes);
        }
        let mut text = Vec::with_capacity(self.length);
        match Decompress::new(true).decompress_vec(&self.bytes, &mut text, FlushDecompress::Finish) {
            Ok(_) => parse(&text),
            Err(_) => Value::Null, // unreachable: `compressed` wrote the data
        }
    }
}

/// Returns the compressed form of a text, if the compressed form is shorter.
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
    fn a_published_schema_survives_compression() {
        let words = |count: usize| (0..count).map(|at| format!("word {at} ")).collect::<String>();
        for (bytes, is_short) in [(words(1), false), (words(1000), false), (words(20_000), true)] {
            let schema = Value::Object(Object::from_iter([("description".into(), Value::from(&*bytes))]));
            let published = Published::new(&schema);
            assert_eq!(published.schema(), schema);
            assert_eq!(
                published.bytes.len() < published.length / 2,
                is_short,
                "{} of {}",
                published.bytes.len(),
                published.length
            );
        }
        // A text that does not become shorter is stored uncompressed.
        let noise: String = (0..40_000u32)
            .map(|at| char::from_u32(0x4e00 + at.wrapping_mul(2_654_435_761) % 20_000).unwrap_or('x'))
            .collect();
        let schema = Value::from(&*noise);
        assert_eq!(Published::new(&schema).schema(), schema);
    }
}
