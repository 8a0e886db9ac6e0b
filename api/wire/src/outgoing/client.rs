//! Servers that an API object names, by a URL or by a reference to a service of this cluster.

use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::{Authorities, Credentials, Endpoint, Identities};
use values::base64_text;
use values::json::{Object, Value};

/// Port of a service reference that names no port.
const PORT_DEFAULT: u16 = 443;

/// A server to call, as an API object configures it.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Result<Endpoint, String>,
    service: Option<Service>,
}

/// Reference to a service of this cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Service {
    /// Namespace of the service.
    pub namespace: String,
    /// Name of the service.
    pub name: String,
    /// Port of the service.
    pub port: u16,
}

impl Client {
    /// Reads a client configuration with `url` or `service`, and `caBundle`. `seconds` is the timeout that is
    /// sent to the server.
    pub fn read(config: &Value, seconds: i64) -> Client {
        Client::read_authenticated(config, seconds, &Identities::default())
    }

    /// Reads a client configuration of a server to which this server authenticates itself.
    pub fn read_authenticated(config: &Value, seconds: i64, identities: &Identities) -> Client {
        let service = config.get("service").filter(|service| !service.is_null()).map(Service::read);
        Client { endpoint: endpoint(config, service.as_ref(), seconds, identities), service }
    }

    /// Returns the current endpoint of the server. `address` resolves a service.
    ///
    /// # Errors
    /// The message says why no call is possible.
    pub fn endpoint_at(
        &self,
        address: impl FnOnce(&Service) -> Result<(String, u16), String>,
    ) -> Result<Endpoint, String> {
        let endpoint = self.endpoint.clone()?;
        let Some(service) = &self.service else { return Ok(endpoint) };
        let (host, port) = address(service).map_err(|why| endpoint.no_call(&why))?;
        Ok(endpoint.at(host, port))
    }
}

/// Returns the URL of a server with its timeout, and the authorities that verify the server.
fn endpoint(
    config: &Value,
    service: Option<&Service>,
    seconds: i64,
    identities: &Identities,
) -> Result<Endpoint, String> {
    let base = match service {
        Some(Service { namespace, name, port }) => {
            let path = config.str_at(&["service", "path"]);
            // The path of a service reference is used literally.
            format!("https://{name}.{namespace}.svc:{port}{}", clean_path(path))
        }
        None => with_clean_path(config.str_at(&["url"])),
    };
    let url: Uri = format!("{base}?timeout={seconds}s").parse().map_err(|error| format!("{error}"))?;
    let authorities = base64_text::decode(config.str_at(&["caBundle"])).unwrap_or_default();
    if let Some(why) = Authorities::fault(&authorities) {
        return Err(format!("could not get REST client: unable to load root certificates: {why}"));
    }
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let identity = identities
        .for_server(host, url.port_u16().unwrap_or(PORT_DEFAULT))
        .map_err(|why| format!("could not get REST client: {why}"))?;
    let credentials = Credentials {
        authorities: &authorities,
        otherwise: identities.system_authorities(),
        identity,
        ..Credentials::default()
    };
    Ok(Endpoint::with(url, &credentials)?.through(identities.egress(service.is_some())))
}

/// Characters of a path that are percent-encoded, as Go's URL type does: all except letters, digits and the
/// characters that are removed below.
pub const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// Decodes, cleans and encodes the path of a URL, as client-go does before a call. The URL must not have a
/// query. An escaped slash becomes a slash; a doubled slash becomes a single slash; a slash at the end is
/// removed.
pub fn with_clean_path(url: &str) -> String {
    let begin = url.find("://").map_or(0, |at| at + 3);
    let at = url[begin..].find('/').map_or(url.len(), |at| begin + at);
    let (server, path) = url.split_at(at);
    format!("{server}{}", clean_path(&percent_decode_str(path).decode_utf8_lossy()))
}

/// Returns an absolute path, cleaned and encoded.
fn clean_path(path: &str) -> String {
    let path = go::path::clean(&format!("/{path}"));
    utf8_percent_encode(&path, PATH).to_string()
}

impl Service {
    /// Reads the reference from a `service` field.
    pub fn read(service: &Value) -> Service {
        let port = service.get("port").and_then(Value::as_i64);
        Service {
            namespace: service.str_at(&["namespace"]).to_owned(),
            name: service.str_at(&["name"]).to_owned(),
            port: port.and_then(|port| u16::try_from(port).ok()).unwrap_or(PORT_DEFAULT),
        }
    }

    /// Returns the address at which the service is reached according to its object: its cluster IP, or its
    /// external name.
    ///
    /// # Errors
    /// The message says why the service cannot be reached.
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
            "None" => Err("cannot route to service with ClusterIP \"None\"".to_owned()),
            "" => Err(format!("service \"{name}\" has no address in the cluster")),
            address => Ok((address.to_owned(), *port)),
        }
    }

    /// Returns the address of one ready endpoint of the service according to its endpoint slices. `choose`
    /// gets the number of ready endpoints and returns the index of an endpoint.
    ///
    /// # Errors
    /// The message says why the service cannot be reached.
    pub fn endpoint(
        &self,
        object: Option<&Object>,
        slices: &[Object],
        choose: impl FnOnce(usize) -> usize,
    ) -> Result<(String, u16), String> {
        let Service { name, port, .. } = self;
        let spec = object.and_then(|object| object.get("spec"));
        let spec = spec.ok_or_else(|| format!("service \"{name}\" not found"))?;
        let kind = spec.str_at(&["type"]);
        if !matches!(kind, "ClusterIP" | "NodePort" | "LoadBalancer") {
            return Err(format!("unsupported service type \"{kind}\""));
        }
        let ports = spec.get("ports").and_then(Value::as_array).unwrap_or_default();
        let named =
            ports.iter().find(|item| item.get("port").and_then(Value::as_i64) == Some((*port).into()));
        let named = named.ok_or_else(|| format!("no service port {port} found for service \"{name}\""))?;
        let ready = |endpoint: &&Value| {
            endpoint.at(&["conditions", "ready"]).and_then(Value::as_bool).unwrap_or(true)
        };
        let mut found = Vec::new();
        for slice in slices {
            let of = |list: &str| slice.get(list).and_then(Value::as_array).unwrap_or_default();
            let port = of("ports").iter().find(|item| item.str_at(&["name"]) == named.str_at(&["name"]));
            let port = port.and_then(|port| u16::try_from(port.get("port")?.as_i64()?).ok());
            let Some(port) = port else { continue };
            for endpoint in of("endpoints").iter().filter(ready) {
                let addresses = endpoint.get("addresses").and_then(Value::as_array).unwrap_or_default();
                found.extend(addresses.first().and_then(Value::as_str).map(|address| (address, port)));
            }
        }
        if found.is_empty() {
            return Err(format!("no endpoints available for service \"{name}\""));
        }
        let (address, port) = found[choose(found.len()) % found.len()];
        Ok((address.to_owned(), port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json::parse;

    fn object(text: &str) -> Object {
        match parse(text.as_bytes()) {
            Ok(Value::Object(object)) => object,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn escapes_are_decoded_in_the_path_of_a_url_but_not_in_that_of_a_service() {
        for (config, want) in [
            (r#"{"url":"https://h/a%2Fb"}"#, "https://h/a/b?timeout=5s"),
            (
                r#"{"url":"https://h:8443/a%20b/%C3%BC/c;d=e/"}"#,
                "https://h:8443/a%20b/%C3%BC/c;d=e?timeout=5s",
            ),
            (r#"{"url":"https://h/a%252Fb"}"#, "https://h/a%252Fb?timeout=5s"),
            (r#"{"url":"https://h"}"#, "https://h/?timeout=5s"),
            (r#"{"url":"https://h//mutate-v1-pod"}"#, "https://h/mutate-v1-pod?timeout=5s"),
            (r#"{"url":"https://h/a/./b//../c//"}"#, "https://h/a/c?timeout=5s"),
            (
                r#"{"service":{"namespace":"n","name":"s","path":"/a%2Fb"}}"#,
                "https://s.n.svc:443/a%252Fb?timeout=5s",
            ),
            (
                r#"{"service":{"namespace":"n","name":"s","path":"//a//b/"}}"#,
                "https://s.n.svc:443/a/b?timeout=5s",
            ),
            (r#"{"service":{"namespace":"n","name":"s"}}"#, "https://s.n.svc:443/?timeout=5s"),
        ] {
            let config = Value::Object(object(config));
            let client = Client::read(&config, 5);
            let endpoint = client.endpoint_at(|_| Ok(("10.0.0.1".to_owned(), 443))).unwrap();
            assert_eq!(endpoint.url().to_string(), want);
        }
    }

    #[test]
    fn a_service_is_reached_at_a_ready_endpoint_that_has_its_port() {
        let service = Service { namespace: "n".to_owned(), name: "s".to_owned(), port: 443 };
        let slice = |text: &str| object(text);
        let ports = r#""ports":[{"name":"other","port":1},{"name":"web","port":8443}]"#;
        let slices = [
            slice(r#"{"ports":[{"name":"other","port":1}],"endpoints":[{"addresses":["10.0.0.1"]}]}"#),
            slice(&format!(
                r#"{{{ports},"endpoints":[{{"addresses":["10.0.0.2"],"conditions":{{"ready":false}}}},
                    {{"addresses":["10.0.0.3","10.0.0.9"],"conditions":{{"ready":true}}}}]}}"#
            )),
            slice(&format!(r#"{{{ports},"endpoints":[{{"addresses":["10.0.0.4"]}}]}}"#)),
        ];
        let spec = r#"{"spec":{"type":"ClusterIP","ports":[{"name":"web","port":443}]}}"#;
        for (spec, slices, chosen, want) in [
            (Some(spec), &slices[..], 0, Ok(("10.0.0.3", 8443))),
            (Some(spec), &slices[..], 1, Ok(("10.0.0.4", 8443))),
            (Some(spec), &slices[..1], 0, Err("no endpoints available for service \"s\"")),
            (Some(spec), &[], 0, Err("no endpoints available for service \"s\"")),
            (
                Some(r#"{"spec":{"type":"ExternalName"}}"#),
                &slices[..],
                0,
                Err("unsupported service type \"ExternalName\""),
            ),
            (
                Some(r#"{"spec":{"type":"ClusterIP","ports":[{"port":80}]}}"#),
                &slices[..],
                0,
                Err("no service port 443 found for service \"s\""),
            ),
            (None, &slices[..], 0, Err("service \"s\" not found")),
        ] {
            let got = service.endpoint(spec.map(object).as_ref(), slices, |count| chosen.min(count));
            let want = want.map(|(host, port)| (host.to_owned(), port)).map_err(str::to_owned);
            assert_eq!(got, want, "{spec:?}");
        }
    }
}
