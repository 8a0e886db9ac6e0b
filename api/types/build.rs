//! Generates `tables.rs` from `../schema/*.proto`: the static tables that `src/schema/builtin.rs` includes.
//! Also generates lists of the functions and constants that the schema files name. The module that owns the
//! code includes the list.
//!
//! ```text
//! schema/*.proto ──load──► model ──emit, once per profile──► OUT_DIR/tables.rs
//!                            └──── code ───────────────────► OUT_DIR/rules.rs, strategies.rs …
//! schema/*.proto, src/schema/defaults*.rs ──hash─────► OUT_DIR/defaults_mark.rs
//! ```
//!
//! A mistake in a schema file ends the build with the position and the reason of the mistake. The build never
//! repairs a mistake silently.

#[path = "build/code.rs"]
mod code;
#[path = "build/emit.rs"]
mod emit;
#[path = "build/load.rs"]
mod load;
#[path = "build/model.rs"]
mod model;
#[expect(dead_code, reason = "the server uses the rest of the module")]
#[path = "../values/src/naming.rs"]
mod naming;
#[path = "build/options.rs"]
mod options;

use std::path::Path;

use code::Use;

/// Source files of the defaults that a schema file cannot express.
const DEFAULTS_CODE: [&str; 3] =
    ["src/schema/defaults.rs", "src/schema/defaults_aliases.rs", "src/schema/defaults_rules.rs"];

fn main() {
    for path in ["build.rs", "build", "../schema", "../values/src/naming.rs"].into_iter().chain(DEFAULTS_CODE)
    {
        println!("cargo::rerun-if-changed={path}");
    }
    let schema = load::schema(Path::new("../schema"));
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts");
    let tables = emit::tables(&schema, &naming::ALL);
    let code = |uses: &[Use]| uses.iter().map(|&used| code::list(&schema, used)).collect();
    let mark = format!("{:#x}", defaults_mark());
    for (name, text) in [
        ("tables.rs", tables),
        ("rules.rs", code(&[Use::Rule, Use::UpdateRule, Use::Normalization])),
        ("strategies.rs", code(&[Use::Strategy])),
        ("conversions.rs", code(&[Use::Conversion])),
        ("default_rules.rs", code(&[Use::DefaultRule])),
        ("defaults_mark.rs", mark),
    ] {
        std::fs::write(Path::new(&out).join(name), text).expect("OUT_DIR can be written");
    }
    // The build script of `objects` reads this value as DEP_TYPES_TABLES.
    println!("cargo::metadata=tables={}", Path::new(&out).display());
}

/// Returns a fingerprint of everything that determines the defaults of objects: the schemas without their
/// comments, and the code of the rules. The fingerprint may change although the defaults are unchanged. An unnecessary
/// change only costs a scan of the stored objects.
fn defaults_mark() -> u64 {
    let mut files: Vec<_> = std::fs::read_dir("../schema")
        .expect("schema directory")
        .map(|entry| entry.expect("schema directory").path())
        .chain(DEFAULTS_CODE.map(Into::into))
        .collect();
    files.sort();
    // FNV-1a, which gives the same value with every release of the compiler.
    let mut mark: u64 = 0xcbf2_9ce4_8422_2325;
    for file in files {
        let text = std::fs::read_to_string(&file).expect("sources are text");
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        for byte in lines.flat_map(|line| line.bytes().chain([b'\n'])) {
            mark = (mark ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    mark
}
