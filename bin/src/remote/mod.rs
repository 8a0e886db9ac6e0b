//! Clients of other processes: HTTPS and gRPC clients, kubeconfig files of other servers, key services, and token
//! signers.

pub mod client;
pub mod freshness;
pub mod grpc;
pub mod kms;
pub mod kubeconfig;
pub mod signer;
pub mod webhooks;
