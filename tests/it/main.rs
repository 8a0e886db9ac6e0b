//! End to end: the real binary over real TLS. Each file is one topic of the specification.

mod place;
mod support;

mod auth;
mod backups;
mod basics;
mod cbor;
mod controllers;
mod crash;
mod encodings;
mod evictions;
mod garbage;
mod hostile;
mod kube_client;
mod kube_watch;
mod kubectl;
mod lists;
mod memory;
mod namespaces;
mod naming;
mod network_backups;
mod process;
mod protobuf;
mod python;
mod retention;
mod routes;
mod scenario;
mod selectors;
mod services;
mod status;
mod tokens;
mod unreachable;
mod unreadable;
mod versions;
mod watches;
mod yaml;
