# Commands of the house. `just` lists them.

default:
    @just --list

# All that must hold before a change goes in; writes nothing. What CI runs, and licences and advisories besides.
check:
    .ci/run
    cargo deny check

# Rewrites what can be rewritten.
fix:
    cargo fmt --all
    cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged

# Tests, all or those whose name contains the filter.
test filter="":
    cargo test --workspace {{filter}}

# Benches; they state what they measure.
bench filter="":
    cargo bench --package benches -- {{filter}}

# Lives full of crashes on a simulated disk, until the store was opened so often after one.
crash cycles="1000000":
    FAULT_CYCLES={{cycles}} cargo test --release --package engine --test faults -- --nocapture no_life

# Runs the fuzz bodies for longer than CI does; the seconds are per target.
fuzz seconds="60":
    FUZZ_SECONDS={{seconds}} cargo test --release --package fuzz
