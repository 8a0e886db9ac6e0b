//! Fuzz targets: a function for each decoder and parser that external bytes reach, and for the engine.
//!
//! ```text
//! bytes ──► target ──► Input: choices ──► document: objects by schema ──┐
//!              └─────────────────────────────────────────────────────► the code under test ──► assertions
//!
//! tests/smoke.rs (corpus, seeded random input)  ┐
//! fuzz_targets/*.rs (cargo-fuzz, with coverage) ┴─► the functions of this crate
//! ```
//!
//! A target accepts any bytes. The target panics if and only if the code under test panics or violates an invariant; an
//! input of unexpected form never causes a panic. Where raw bytes would rarely pass the first check (objects by schema,
//! records with checksums), the target reads the bytes as choices and builds the input from these choices.
//!
//! A new target needs a function in `targets/`, a line in [`TARGETS`], a directory in `corpus/`, and an entry point for
//! cargo-fuzz; a test checks that all of them exist. `README.md` describes how to run the targets.

mod document;
mod input;
mod server;
mod targets;
mod tree;

pub use targets::accept::accept;
pub use targets::apply::{apply, field_set};
pub use targets::attributes::attributes;
pub use targets::codecs::{cbor_item, yaml_text};
pub use targets::continue_token::continue_token;
pub use targets::credentials::{certificates, credentials, token_file};
pub use targets::engine_decode::engine_decode;
pub use targets::engine_model::engine_model;
pub use targets::engine_recovery::engine_recovery;
pub use targets::expressions::expressions;
pub use targets::json_text::json_text;
pub use targets::patch::patch;
pub use targets::patch_round_trip::patch_round_trip;
pub use targets::request::{query, request_path};
pub use targets::scalars::scalars;
pub use targets::schema::{schema_objects, schema_text};
pub use targets::selectors::{field_selector, label_selector};
pub use targets::table::{printer_columns, table};
pub use targets::validation::validate;
pub use targets::writes::writes;
pub use targets::yaml_layout::yaml_layout;

/// A fuzz target with its corpus.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the function, of the corpus directory and of the entry point.
    pub name: &'static str,
    /// Runs one input; panics if an invariant is violated.
    pub run: fn(&[u8]),
    /// Texts that are likely to occur in inputs.
    pub words: &'static [&'static str],
}

macro_rules! targets {
    ($($name:ident: $words:expr;)*) => {
        /// All targets of the crate.
        pub static TARGETS: &[Target] = &[$(Target { name: stringify!($name), run: $name, words: $words },)*];
    };
}

const JSON_WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\u0000",
    "\\ud83d\\ude00",
    "\\n",
    "null",
    "true",
    "false",
    "-0",
    "0.1",
    "1e308",
    "5e-324",
    "9007199254740993",
    "9223372036854775808",
    "\"a\"",
    "\"a\":",
    "\u{2028}",
    "<&>",
];

const OBJECT_WORDS: &[&str] = &[
    "{\"metadata\":{\"name\":\"x\"}}",
    "\"metadata\":",
    "\"labels\":{\"a\":\"b\"}",
    "\"spec\":",
    "\"status\":{}",
    "\"containers\":[{}]",
    "\"kind\":\"Pod\"",
    "\"creationTimestamp\":",
    "\"2024-02-29T23:59:59Z\"",
    "null",
    "{}",
    "[]",
    "1",
    "1.5",
    "\"1Gi\"",
    "{",
    "}",
    "[",
    "]",
    ",",
];

targets! {
    accept: &[
        "application/json", "application/*", "*/*", "as=Table", "v=v1", "v=v1beta1", "g=meta.cluster.io", ";", ",",
        "q=0.5", "q=", "pretty=1", "stream=watch", "PartialObjectMetadata", "PartialObjectMetadataList",
    ];
    apply: &[];
    attributes: &["\u{1}\0", "\u{1}\u{1}", "\u{1}\u{4}", "app", "web", "\u{3}\u{3}"];
    cbor_item: &["A", "Aa", "aa", "\0", "\u{18}", "\u{10}", "\u{20}"];
    certificates: &["-----BEGIN CERTIFICATE-----\n", "\n-----END CERTIFICATE-----\n", "MIIB", "\u{30}\u{82}"];
    continue_token: &["{\"v\":\"meta.example/v1\",\"rv\":", "\"start\":\"", "../", "\\u0000", "-1", "}"];
    credentials: &["Bearer ", "Basic ", "  ", "eyJhbGciOiJSUzI1NiJ9", "eyJpc3MiOiJpc3N1ZXIifQ", ".", "bearer"];
    engine_decode: &["REVLOG\r\n", "REVCKPT\n", "\0\0\0\0\0\0\0\x01", "\0\0\x01\0"];
    engine_model: &[];
    engine_recovery: &[];
    expressions: &[
        "(", ")", "[", "]", "{", "}", ".", ",", "?", ":", "!", "-", "+", " * ", " / ", " % ", " == ", " != ", " < ",
        " >= ", " in ", " && ", " || ", ".?", "[?", "'a'", "\"b\"", "b'\\xff'", "r'''", "1", "2u", "0x1F", "1.5e3", ".5",
        "-9223372036854775808", "null", "true", "i", "s", "l", "m", "d", "x", "has(m.a)", "l.map(x, ", "l.filter(x, ",
        "l.all(x, ", "m.exists(k, v, ", "l.transformMap(x, y, ", "l.sortBy(x, ", "optional.of(", ".optMap(x, ",
        ".orValue(", "size(", "int(", "string(", "duration('1h')", "timestamp('2020-01-01T00:00:00Z')", ".getDate()",
        ".matches('a+')", ".findAll('[a-z]')", ".format([", "'%s %d'", ".split(', ')", ".join()", ".substring(1, ",
        "quantity('1Gi')", "ip('::1')", "cidr('10.0.0.0/8')", "url('https://a/b')", "semver('1.2.3')", ".isLessThan(",
        "format.uuid()", "sets.contains(", "lists.range(9)", ".flatten()", ".sum()", "type(", "dyn(", "// c\n",
    ];
    field_selector: &["metadata.name", "metadata.namespace", "spec.nodeName", "=", "==", "!=", ",", "\\", "\\=", "\\,"];
    field_set: &[
        "\0", "{\"f:a\":{}}", "\"f:metadata\":", "\".\":{}", "\"k:{\\\"name\\\":\\\"a\\\"}\":{}", "\"v:1\":{}", "\"i:0\":{}", "{", "}", ",",
        "null", "\"x:y\":{}",
    ];
    json_text: JSON_WORDS;
    label_selector: &[
        "in", "notin", " in (", ")", "(", ",", "=", "==", "!=", "!", "<", ">", "a", "app", "example.com/a", "1", " ",
    ];
    patch: &["\0", "{\"$patch\":\"delete\"}", "\"$retainKeys\":[]", "\"$setElementOrder/containers\":[]", "\"op\":"];
    patch_round_trip: &[];
    printer_columns: &[
        "\0", ".", "[0]", "[*]", "[-1]", "[?(@.", "==", "\")]", ".metadata", ".spec", ".status", "['a']", "{", "}", "..", "*",
        "\\.", "[0:2]", "{\"metadata\":{}}",
    ];
    query: &[
        "watch", "=", "&", "%", "%00", "+", ";", "limit=", "timeoutSeconds=-1", "resourceVersion=", "dryRun=All",
        "fieldValidation=Strict", "pretty=true", "resourceVersionMatch=Exact", "propagationPolicy=Orphan",
        "gracePeriodSeconds=", "fieldManager=", "sendInitialEvents=true", "continue=",
    ];
    request_path: &[
        "/api", "/apis", "/v1", "/namespaces", "/pods", "/watch", "/proxy", "/status", "/", "%2F", "%", "?watch=1",
        "?fieldSelector=metadata.name%3Dx", "/finalize", "..", "%ff",
    ];
    scalars: &[
        "1", "0", ".", "-", "+", "e", "E", "Ki", "Mi", "Ei", "m", "n", "k", "h", "ms", "s", "999999999999999999", "=",
        "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "+24:00", "-00:01", "T", "Z", ":", "µs",
    ];
    schema_objects: &[];
    schema_text: OBJECT_WORDS;
    table: OBJECT_WORDS;
    token_file: &["token,user,uid", ",", "\"", "\"\"", "\r\n", "\n", "\"a,b\"", "\u{feff}", "user"];
    validate: &[];
    writes: &[];
    yaml_layout: &[];
    yaml_text: &[
        "a: ", "\n", "- ", "  ", "&a ", "*a", "<<: ", "|\n", ">-\n", "\"", "'", "{", "}", "[", "]", ", ", "? ", ": ", "---\n",
        "!!int ", "yes", "0o17", "1_000", ".inf", "# c", "\t", "%YAML 1.1\n", "...\n", "~",
    ];
}
