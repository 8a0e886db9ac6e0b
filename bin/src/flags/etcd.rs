//! Flags of etcd, as kube-apiserver has them.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::flags::duration;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct EtcdFlags {
    /// Endpoints of etcd (scheme://host:port, separated by commas). With this flag, objects are stored in
    /// etcd, which several servers can share; without it, in the server's own store.
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    pub etcd_servers: Vec<String>,

    /// Prefix of all keys in etcd.
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    pub etcd_prefix: String,

    /// CA bundle (PEM) that the certificates of etcd are verified against.
    #[arg(long, value_name = "FILE")]
    pub etcd_cafile: Option<PathBuf>,

    /// Client certificate (PEM) that the server presents to etcd.
    #[arg(long, value_name = "FILE")]
    pub etcd_certfile: Option<PathBuf>,

    /// Private key (PEM) of --etcd-certfile.
    #[arg(long, value_name = "FILE")]
    pub etcd_keyfile: Option<PathBuf>,

    /// Resources that are stored in another etcd, as group/resource#url;url, separated by commas. Only
    /// possible for events and leases.
    #[arg(long, value_name = "OVERRIDES", value_delimiter = ',')]
    pub etcd_servers_overrides: Vec<String>,

    /// Move the store while the server serves it, and then serve it from the new location. to-etcd moves it from the
    /// server's own log to --etcd-servers, to-log moves it the other way. Possible values: to-etcd, to-log.
    #[arg(long, value_name = "DIRECTION", value_parser = direction)]
    pub live_migration: Option<Direction>,

    /// How often this server compacts etcd. 0 means that another program does it.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::kept)]
    pub etcd_compaction_interval: Duration,

    /// How long the health check waits for a response of etcd.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::kept)]
    pub etcd_healthcheck_timeout: Duration,

    /// How long the readiness check waits for a response of etcd.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::kept)]
    pub etcd_readycheck_timeout: Duration,

    /// Encoding of objects of built-in types in etcd. Possible value: application/vnd.kubernetes.protobuf.
    #[arg(long, value_name = "TYPE", default_value = "application/vnd.kubernetes.protobuf")]
    pub storage_media_type: String,
}

impl Default for EtcdFlags {
    fn default() -> EtcdFlags {
        EtcdFlags {
            etcd_servers: Vec::new(),
            etcd_prefix: "/registry".to_owned(),
            etcd_cafile: None,
            etcd_certfile: None,
            etcd_keyfile: None,
            etcd_servers_overrides: Vec::new(),
            live_migration: None,
            etcd_compaction_interval: Duration::from_secs(300),
            etcd_healthcheck_timeout: Duration::from_secs(2),
            etcd_readycheck_timeout: Duration::from_secs(2),
            storage_media_type: "application/vnd.kubernetes.protobuf".to_owned(),
        }
    }
}

/// The direction in which a store is moved while it is served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// From the server's own log to etcd.
    ToEtcd,
    /// From etcd to the server's own log.
    ToLog,
}

fn direction(text: &str) -> Result<Direction, String> {
    match text {
        "to-etcd" => Ok(Direction::ToEtcd),
        "to-log" => Ok(Direction::ToLog),
        _ => Err("must be to-etcd or to-log".to_owned()),
    }
}
