//! Passes the directory of the generated tables of code from the build script of `types` to the compiler.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let tables = std::env::var("DEP_TYPES_TABLES").expect("the build script of `types` names its directory");
    println!("cargo::rustc-env=SCHEMA_TABLES={tables}");
}
