//! Entry point of cargo-fuzz; the target is in the crate `fuzz`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::yaml_layout(data));
