//! Another server as an object of the API names it: by its URL, or as a service of this cluster.

use http::Uri;

use super::Endpoint;
use crate::json::{Object, Value};
use crate::schema::scalars::bytes;

/// The port of a service whose reference names none.
const PORT_DEFAULT: u16 = 443;

/// A server that is called because an object says so.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Result<Endpoint, String>,
    service: Option<Service>,
}

/// A service of this cluster that is called.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Service {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its port.
    pub port: u16,
}

impl Client {
    /// Reads a client configuration with `url` or `service`, and `caBundle`. The server is told that it has so many
    /// seconds.
    pub fn read(config: &Value, seconds: i64) -> Client {
        let service = config.get("service").filter(|service| !service.is_null()).map(Service::read);
        Client { endpoint: endpoint(config, service.as_ref(), seconds), service }
    }

    /// Where the server is now. `find` looks a Service up by namespace and name.
    ///
    /// # Errors
    /// Why no call is possible.
    pub fn endpoint(
        &self,
        find: impl FnOnce(&str, &str) -> Result<Option<Object>, String>,
    ) -> Result<Endpoint, String> {
        let endpoint = self.endpoint.clone()?;
        let Some(service) = &self.service else { return Ok(endpoint) };
        let found = find(&service.namespace, &service.name);
        let address = found.and_then(|found| service.address(found.as_ref()));
        let (host, port) = address.map_err(|why| endpoint.no_call(&why))?;
        Ok(endpoint.at(host, port))
    }
}

/// The URL of a server with its timeout, and the authorities that it is verified against.
fn endpoint(config: &Value, service: Option<&Service>, seconds: i64) -> Result<Endpoint, String> {
    let base = match service {
        Some(Service { namespace, name, port }) => {
            let path = config.str_at(&["service", "path"]);
            format!("https://{name}.{namespace}.svc:{port}{path}")
        }
        None => config.str_at(&["url"]).to_owned(),
    };
    let base = base.trim_end_matches('/');
    let has_path = base.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    let slash = if has_path { "" } else { "/" };
    let url: Uri = format!("{base}{slash}?timeout={seconds}s").parse().map_err(|error| format!("{error}"))?;
    let authorities = bytes::decode(config.str_at(&["caBundle"])).unwrap_or_default();
    Endpoint::new(url, &authorities)
}

impl Service {
    /// Reads a reference.
    pub fn read(service: &Value) -> Service {
        let port = service.get("port").and_then(Value::as_i64);
        Service {
            namespace: service.str_at(&["namespace"]).to_owned(),
            name: service.str_at(&["name"]).to_owned(),
            port: port.and_then(|port| u16::try_from(port).ok()).unwrap_or(PORT_DEFAULT),
        }
    }

    /// Where the service object says that it is reached: at its address in the cluster, or under another name.
    ///
    /// # Errors
    /// Why it cannot be reached.
    pub fn address(&self, object: Option<&Object>) -> Result<(String, u16), String> {
        let Service { name, port, .. } = self;
        let spec = object.and_then(|object| object.get("spec"));
        let spec = spec.ok_or_else(|| format!("service \"{name}\" not found"))?;
        if spec.str_at(&["type"]) == "ExternalName" {
            return Ok((spec.str_at(&["externalName"]).to_owned(), *port));
        }
        let ports = spec.get("ports").and_then(Value::as_array).unwrap_or_default();
        if !ports.iter().any(|item| item.get("port").and_then(Value::as_i64) == Some((*port).into())) {
            return Err(format!("no service port {port} found for service \"{name}\""));
        }
        match spec.str_at(&["clusterIP"]) {
            "" | "None" => Err(format!("service \"{name}\" has no address in the cluster")),
            address => Ok((address.to_owned(), *port)),
        }
    }
}
