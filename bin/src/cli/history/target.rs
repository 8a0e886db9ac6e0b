//! The object in the arguments of a history command: `TYPE/NAME` or `TYPE NAME`, and the namespace.

use anyhow::bail;
use clap::Args;

use super::discovery::{Discovery, now, object_label};
use super::point::Point;
use crate::cli::connect::Connect;
use crate::remote::client::Client;

/// The flags that name an object of a running server.
#[derive(Clone, Debug, Args)]
pub struct ObjectFlags {
    #[command(flatten)]
    pub connect: Connect,

    /// Type and name of the object: deployments/web, or "deployment web". The type may be a plural name, a singular
    /// name, a kind or a short name. A dot and the group may follow.
    #[arg(value_name = "TYPE/NAME", required = true, num_args = 1..=2)]
    pub object: Vec<String>,

    /// Namespace of the object. Default: the namespace of the current context in the kubeconfig, else
    /// default.
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
}

/// An object of a running server.
pub struct FoundObject {
    /// Client for the server.
    pub client: Client,
    /// Path of the object.
    pub path: String,
    /// Type, namespace and name, for messages: `deployments.apps shop/web`.
    pub label: String,
}

impl FoundObject {
    /// Returns the path of the object's history.
    pub fn history(&self) -> String {
        format!("/history{}", self.path)
    }
}

impl ObjectFlags {
    /// Connects to the server and looks up the type. If `point` is set, this function also finds types that existed
    /// only at the point. This function does not check whether the object exists.
    ///
    /// # Errors
    /// The server cannot be reached, or does not serve the type.
    pub async fn find(&self, point: Option<&Point>) -> anyhow::Result<FoundObject> {
        let (type_name, name) = match self.object.as_slice() {
            [one] => one.split_once('/').unwrap_or((one.as_str(), "")),
            [type_name, name] if !type_name.contains('/') => (type_name.as_str(), name.as_str()),
            _ => ("", ""),
        };
        if type_name.is_empty() || name.is_empty() || name.contains('/') {
            bail!("{:?} does not name an object: write TYPE/NAME or TYPE NAME", self.object.join(" "));
        }
        let (client, namespace) = self.connect.client_and_namespace()?;
        let namespace = self.namespace.clone().unwrap_or(namespace);
        let namespace = if namespace.is_empty() { "default".to_owned() } else { namespace };
        let mut discovery = now(&client).await?;
        if let Some(point) = point.filter(|_| discovery.resolve(type_name).is_err()) {
            discovery = Discovery::read(&client, &point.prefix()).await?;
        }
        let found = discovery.resolve(type_name)?;
        let namespace = if found.is_namespaced { namespace } else { String::new() };
        let path = found.object(&namespace, name);
        let label = format!("{} {}", found.qualified(), object_label(&namespace, name));
        Ok(FoundObject { client, path, label })
    }
}
