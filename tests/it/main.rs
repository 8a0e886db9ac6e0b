//! End to end: the real binary over real TLS. Each file is one topic of the specification.

mod place;
mod support;

mod auth;
mod backfill;
mod backups;
mod basics;
mod cbor;
mod controllers;
mod crash;
mod delete_options;
mod deletes;
mod encodings;
mod evictions;
mod field_validation;
mod full_disk;
mod garbage;
mod hostile;
mod kube_client;
mod kube_controller;
mod kube_watch;
mod kube_writes;
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
mod subresources;
mod tokens;
mod unreachable;
mod unreadable;
mod updates;
mod versions;
mod watches;
mod yaml;
