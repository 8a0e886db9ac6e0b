//! Clients of other processes: HTTPS and gRPC clients, kubeconfig files that describe servers, key services and signers.

pub mod client;
pub mod freshness;
pub mod grpc;
pub mod kms;
pub mod kubeconfig;
pub mod signer;
pub mod webhooks;
