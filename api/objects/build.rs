//! Tells the compiler where the build script of `types` wrote the lists of code that the schema files name.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let tables = std::env::var("DEP_TYPES_TABLES").expect("the build script of `types` names its directory");
    println!("cargo::rustc-env=SCHEMA_TABLES={tables}");
}
