# Development commands. `just` lists them.

default:
    @just --list

# All checks before a merge; writes nothing. CI runs them, except for licences and advisories.
check:
    .ci/check
    cargo deny check

# Formats and applies automatic fixes.
fix:
    cargo fmt --all
    cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged

# Tests, all or those whose name contains the filter.
test filter="":
    cargo test --workspace {{filter}}

# Benchmarks; each states what it measures.
bench filter="":
    cargo bench --package benches -- {{filter}}

# Simulated runs with crashes, until the store was opened this often after one.
crash cycles="1000000":
    FAULT_CYCLES={{cycles}} cargo test --release --package engine --test faults -- --nocapture simulated_runs

# Replaces a custom type this often, and fails if memory grows with it.
types cycles="10000":
    TYPE_CYCLES={{cycles}} cargo test --release --package tests --test it -- --nocapture replacing_and_recreating

# Runs the fuzz targets for longer than CI does; the seconds are per target.
fuzz seconds="60":
    FUZZ_SECONDS={{seconds}} cargo test --release --package fuzz
