//! Tests that a renderer with a memo produces the same bytes as a renderer without a memo, for each built-in
//! type and representation. The inputs are generated objects, objects that differ in one part from the
//! previous object, and damaged texts.

use std::sync::Arc;

use super::{EventType, Renderer, RendererParameters};
use crate::lengths::Lengths;
use crate::negotiate::{Encoding, Output, Transform};
use testkit::Random;
use types::schema::encode::encode;
use types::schema::generate;
use types::schema::registry::{Registry, Resource};
use types::table::MetaVersion;
use values::json::{self, Value};
use values::memory::Account;
use values::naming::KUBERNETES;
use values::query::Query;

const FORMS: [(Encoding, Transform); 7] = [
    (Encoding::Json, Transform::None),
    (Encoding::Json, Transform::Table),
    (Encoding::Json, Transform::PartialObjectList),
    (Encoding::Protobuf, Transform::None),
    (Encoding::Protobuf, Transform::PartialObjectList),
    (Encoding::Yaml, Transform::None),
    (Encoding::Cbor, Transform::Table),
];

fn renderer(resource: &Arc<Resource>, (encoding, transform): (Encoding, Transform)) -> Renderer {
    let output = Output { encoding, transform, meta_version: MetaVersion::V1, ..Output::JSON };
    let parameters = RendererParameters {
        resource,
        naming: &KUBERNETES,
        output,
        query: &Query::default(),
        metrics: &Arc::default(),
        lengths: &Arc::new(Lengths::default()),
        account: &Account::detached(),
        time: None,
    };
    Renderer::new(parameters).unwrap()
}

/// Generates texts of objects as they may follow each other in a list.
fn texts(resource: &Resource, random: &mut Random) -> Vec<Vec<u8>> {
    let message = &resource.table.message;
    let mut texts: Vec<Vec<u8>> = Vec::new();
    for _ in 0..6 {
        let mut object: Value = generate::object(random, message, 0).into();
        for change in 0..4 {
            let mut text = Vec::new();
            match &object {
                Value::Object(object) => encode(message, object, &mut text),
                other => json::write(other, &mut text),
            }
            if random.one_in(3) {
                let with_kind = [b"{\"kind\":\"K\",\"apiVersion\":\"v1\",", &text[1..]].concat();
                text = if text == b"{}" { text } else { with_kind };
            }
            texts.push(text.clone());
            match change {
                // Repeats the previous object.
                0 => texts.push(text),
                // Damages the text.
                1 | 2 if !text.is_empty() => {
                    let at = random.index(text.len());
                    if random.one_in(2) {
                        text.truncate(at);
                    } else {
                        text[at] = random.pick(b"\"{}[],:x0\\ \xff");
                    }
                    texts.push(text);
                }
                _ => {}
            }
            generate::disturb(random, &mut object);
        }
    }
    texts
}

/// Output to which an object is rendered.
#[derive(Clone, Copy, Debug)]
enum StreamElement {
    Item,
    Event,
}

impl StreamElement {
    fn write(self, renderer: &mut Renderer, text: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let written = match self {
            StreamElement::Item => renderer.list_item(text, false, out),
            StreamElement::Event => renderer.event(EventType::Modified, text, out),
        };
        written.map_err(|status| status.to_string())
    }
}

#[test]
fn table_renderers_that_reuse_cells_write_the_same_bytes() {
    let registry = Registry::new(&KUBERNETES);
    let mut compared = 0;
    for resource in registry.resources().filter(|resource| resource.is_stored_form()) {
        let mut random = Random(compared as u64 + 1);
        let texts = texts(resource, &mut random);
        for form in FORMS {
            let has_no_form = form == (Encoding::Protobuf, Transform::None)
                && resource.table.message.wire.is_empty()
                && !resource.table.message.fields.is_empty();
            if has_no_form {
                continue;
            }
            let mut plain = renderer(resource, form);
            let mut alike = plain.fork();
            // The first item of a list has no separator, and the first event of a table has the columns, so
            // skip both.
            drop(plain.list_item(br#"{"metadata":{}}"#, true, &mut Vec::new()));
            drop(plain.event(EventType::Added, br#"{"metadata":{}}"#, &mut Vec::new()));
            let parts = texts
                .iter()
                .flat_map(|text| [StreamElement::Item, StreamElement::Event].map(|part| (text, part)));
            for (text, part) in parts {
                let (mut want, mut got) = (b"before".to_vec(), b"before".to_vec());
                let is_made = part.write(&mut plain, text, &mut want);
                let is_made_alike = part.write(&mut alike, text, &mut got);
                let shown =
                    || format!("{} {form:?} {part:?} {}", resource.table.kind, String::from_utf8_lossy(text));
                if json::parse(text).is_err() {
                    // The output for text that is not JSON is unspecified, but a failure must not append
                    // bytes.
                    assert!(is_made_alike.is_ok() || got == b"before", "{}", shown());
                    continue;
                }
                assert_eq!(is_made_alike, is_made, "{}", shown());
                assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(&want), "{}", shown());
                assert_eq!(got, want, "{}", shown());
                compared += 1;
            }
        }
    }
    assert!(compared > 10_000, "{compared}");
}
