//! Turns `schema/*.proto` into `tables.rs`, the static tables that `src/schema/builtin.rs` includes, and `rules.rs`, the
//! list of checks in code that `src/validation/rules.rs` includes.
//!
//! ```text
//! schema/*.proto ──load──► model ──emit, once per vocabulary──► OUT_DIR/tables.rs
//!                            └──── emit ────────────────────────► OUT_DIR/rules.rs
//! ```
//!
//! A mistake in a schema file ends the build with the place and what is wrong; nothing is repaired silently.

#[path = "build/emit.rs"]
mod emit;
#[path = "build/load.rs"]
mod load;
#[path = "build/model.rs"]
mod model;
#[expect(dead_code, reason = "the server uses the rest of it")]
#[path = "src/naming.rs"]
mod naming;
#[path = "build/options.rs"]
mod options;

use std::path::Path;

fn main() {
    for path in ["build.rs", "build", "schema", "src/naming.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let schema = load::schema(Path::new("schema"));
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts");
    let tables = emit::tables(&schema, &naming::ALL);
    let rules = emit::rule_list(&schema);
    for (name, text) in [("tables.rs", tables), ("rules.rs", rules)] {
        std::fs::write(Path::new(&out).join(name), text).expect("OUT_DIR can be written");
    }
}
