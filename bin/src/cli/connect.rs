//! The connection of a command to a running server: the kubeconfig of the server, and a client for the server.

use std::ffi::OsString;
use std::future::Future;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use crate::remote::client::Client;
use crate::remote::kubeconfig::KUBECONFIG_FILE;
use crate::remote::kubeconfig::Settings;

/// Default of the flag `--data-dir` of the server.
pub const DEFAULT_DATA_DIR: &str = "./cluster-data";

/// The flags of commands that connect to a running server.
#[derive(Clone, Debug, Args)]
pub struct Connect {
    /// Kubeconfig of the server. The command uses the current context. Default: admin.kubeconfig in --data-dir, else
    /// the first file in the environment variable KUBECONFIG, else ./cluster-data/admin.kubeconfig, else
    /// ~/.kube/config.
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    pub kubeconfig: Option<PathBuf>,

    /// Data directory of a server on this machine.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// URL of the server, instead of the URL in the kubeconfig.
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
}

impl Connect {
    /// Returns the path of the kubeconfig.
    pub fn path(&self) -> PathBuf {
        let path = self.path_with(std::env::var_os("KUBECONFIG"));
        if path.exists() || path != Path::new(DEFAULT_DATA_DIR).join(KUBECONFIG_FILE) {
            return path;
        }
        let own = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
        own.filter(|own| own.exists()).unwrap_or(path)
    }

    fn path_with(&self, variable: Option<OsString>) -> PathBuf {
        if let Some(path) = &self.kubeconfig {
            return path.clone();
        }
        if let Some(dir) = &self.data_dir {
            return dir.join(KUBECONFIG_FILE);
        }
        let named = variable
            .as_ref()
            .and_then(|list| std::env::split_paths(list).find(|path| !path.as_os_str().is_empty()));
        named.unwrap_or_else(|| PathBuf::from(DEFAULT_DATA_DIR).join(KUBECONFIG_FILE))
    }

    /// Returns a client for the server.
    ///
    /// # Errors
    /// The kubeconfig is missing or invalid.
    pub fn client(&self) -> anyhow::Result<Client> {
        self.client_and_namespace().map(|(client, _)| client)
    }

    /// Returns a client for the server, and the namespace of the current context. The namespace is empty if
    /// the context has no namespace.
    ///
    /// # Errors
    /// The kubeconfig is missing or invalid.
    pub fn client_and_namespace(&self) -> anyhow::Result<(Client, String)> {
        let settings = Settings::read(&self.path()).with_context(|| {
            "no kubeconfig of the server: name one with --kubeconfig, or the server's data directory with --data-dir"
        })?;
        let namespace = settings.namespace.clone();
        Ok((Client::new(settings, self.server.as_deref())?, namespace))
    }
}

/// Runs the requests of a command until they have finished.
///
/// # Errors
/// The work fails, or the system cannot start a runtime.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_named_kubeconfig_is_used() {
        let path = |kubeconfig: Option<&str>, data_dir: Option<&str>, variable: Option<&str>| {
            let connect = Connect {
                kubeconfig: kubeconfig.map(PathBuf::from),
                data_dir: data_dir.map(PathBuf::from),
                server: None,
            };
            connect.path_with(variable.map(OsString::from)).display().to_string()
        };
        assert_eq!(path(Some("file"), None, Some("other")), "file");
        assert_eq!(path(None, Some("dir"), Some("other")), "dir/admin.kubeconfig");
        assert_eq!(path(None, None, Some(":one:two")), "one");
        assert_eq!(path(None, None, Some("")), "./cluster-data/admin.kubeconfig");
        assert_eq!(path(None, None, None), "./cluster-data/admin.kubeconfig");
    }
}
