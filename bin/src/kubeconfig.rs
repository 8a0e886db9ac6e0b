//! Kubeconfig files: writes the administrator's, and reads the one of a command that connects to a running server.
//!
//! Reading takes the current context and from it the server's address, certificates, keys and tokens, inline or in
//! files. Settings that would run programs or disable checks are refused by name.

use std::path::Path;

use anyhow::{Context, bail};
use api::codec::yaml;
use api::json::Value;
use api::outgoing::{Identities, Identity};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::files;
use crate::pki::PemPair;

/// Contents of a kubeconfig to write.
pub struct Connection<'a> {
    /// Naming profile of the server.
    pub profile: &'a str,
    /// `host:port`.
    pub address: &'a str,
    /// Name to expect in the server's certificate, if it is not the host of the address.
    pub server_name: Option<&'a str>,
    /// CA certificates of the server.
    pub ca_pem: &'a [u8],
    /// The client's certificate and key.
    pub client: &'a PemPair,
}

impl Connection<'_> {
    /// Name of the context, the same for as long as the server has its port: `cluster-6443`.
    fn name(&self) -> String {
        let port = self.address.rsplit(':').next().unwrap_or_default();
        format!("{}-{port}", self.profile)
    }

    /// Whether a file connects to the same server with the same credentials, whatever else its owner wrote there.
    pub fn fits(&self, file: &str) -> bool {
        let encoded = [self.ca_pem, self.client.chain.as_bytes(), self.client.key.as_bytes()];
        let server = format!("https://{}", self.address);
        let has = |text: &str| file.split([' ', '\n', '"', '\'']).any(|word| word == text);
        encoded.iter().all(|bytes| has(&STANDARD.encode(bytes)))
            && has(&server)
            && self.server_name.is_none_or(has)
    }

    /// The file's text. Every value is an address, a DNS name or base64, so double quotes suffice.
    pub fn render(&self) -> String {
        let server_name =
            self.server_name.map(|name| format!("    tls-server-name: \"{name}\"\n")).unwrap_or_default();
        format!(
            "apiVersion: v1\nkind: Config\n\
             clusters:\n- name: {name}\n  cluster:\n    server: \"https://{address}\"\n{server_name}    \
             certificate-authority-data: {ca}\n\
             users:\n- name: {name}-admin\n  user:\n    client-certificate-data: {certificate}\n    \
             client-key-data: {key}\n\
             contexts:\n- name: {name}\n  context:\n    cluster: {name}\n    user: {name}-admin\n\
             current-context: {name}\n",
            name = self.name(),
            address = self.address,
            ca = STANDARD.encode(self.ca_pem),
            certificate = STANDARD.encode(&self.client.chain),
            key = STANDARD.encode(&self.client.key),
        )
    }
}

/// How to reach a server, and with which credentials.
// No `Debug`: keys and tokens must not reach a log.
#[cfg_attr(test, derive(Debug, PartialEq))]
pub struct Access {
    /// `https://host:port`, optionally with a path prefix.
    pub server: String,
    /// Name to expect in the server's certificate, if it is not the host of the address.
    pub server_name: Option<String>,
    /// PEM of the CA certificates of the server.
    pub ca_pem: Vec<u8>,
    /// PEM of a client certificate and its key.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// Bearer token.
    pub token: Option<String>,
}

impl Access {
    /// Reads the current context of a kubeconfig.
    ///
    /// # Errors
    /// One line, with the path, for anything missing, unreadable or unsupported.
    pub fn read(path: &Path) -> anyhow::Result<Access> {
        let text =
            files::read_if_there(path)?.with_context(|| format!("{} does not exist", path.display()))?;
        let reading = Reading { dir: path.parent().unwrap_or(Path::new("")) };
        reading.access(&text).with_context(|| path.display().to_string())
    }
}

/// A kubeconfig that is being read.
struct Reading<'p> {
    /// Base directory of relative paths.
    dir: &'p Path,
}

/// Settings of a user or cluster that are not supported, and the alternative.
const REFUSED: [(&str, &str); 6] = [
    ("exec", "put a token or a client certificate into the file"),
    ("auth-provider", "put a token or a client certificate into the file"),
    ("username", "use a token or a client certificate"),
    ("as", "connect as yourself"),
    ("insecure-skip-tls-verify", "use certificate-authority"),
    ("proxy-url", "connect directly"),
];

impl Reading<'_> {
    fn access(&self, text: &[u8]) -> anyhow::Result<Access> {
        let config = yaml::parse(text)?.value;
        let current = config.str_at(&["current-context"]);
        if current.is_empty() {
            bail!("current-context is not set");
        }
        let context = named(&config, "contexts", "context", current)?;
        let (cluster_name, user_name) = (context.str_at(&["cluster"]), context.str_at(&["user"]));
        let cluster = named(&config, "clusters", "cluster", cluster_name)?;
        let absent = Value::Null;
        let user = if user_name.is_empty() { &absent } else { named(&config, "users", "user", user_name)? };
        for (who, said) in [(cluster_name, cluster), (user_name, user)] {
            let refused = REFUSED.iter().find(|(name, _)| is_set(said, name));
            if let Some((name, instead)) = refused {
                bail!("{name} of {who:?} is not supported here: {instead}");
            }
        }
        let text =
            |value: &Value, name: &str| Some(value.str_at(&[name]).to_owned()).filter(|it| !it.is_empty());
        let Some(ca_pem) = self.bytes(cluster, "certificate-authority")? else {
            bail!("cluster {cluster_name:?} has no certificate-authority to check the server with");
        };
        let pair = (self.bytes(user, "client-certificate")?, self.bytes(user, "client-key")?);
        let certificate = match pair {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => bail!("user {user_name:?} has only one of client-certificate and client-key"),
        };
        let token = self.token(user)?;
        Ok(Access {
            server: text(cluster, "server")
                .with_context(|| format!("cluster {cluster_name:?} has no server"))?,
            server_name: text(cluster, "tls-server-name"),
            ca_pem,
            certificate,
            token,
        })
    }

    /// The base64 of `NAME-data`, or the contents of the file that `NAME` names.
    fn bytes(&self, from: &Value, name: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let (data, file) = (from.str_at(&[&format!("{name}-data")]), from.str_at(&[name]));
        if !data.is_empty() {
            return Ok(Some(STANDARD.decode(data).with_context(|| format!("{name}-data is no base64"))?));
        }
        if file.is_empty() { Ok(None) } else { self.file(file).map(Some) }
    }

    fn file(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        let path = self.dir.join(name);
        files::read_if_there(&path)?.with_context(|| format!("{} does not exist", path.display()))
    }
}

/// The users of a kubeconfig as identities, each by its name; and the one of the current context for all others.
pub fn identities(path: &Path, config: &Value) -> Identities {
    let reading = Reading { dir: path.parent().unwrap_or(Path::new("")) };
    let users = config.get("users").and_then(Value::as_array).unwrap_or_default();
    let absent = Value::Null;
    let of_server = users.iter().map(|entry| {
        let user = entry.get("user").unwrap_or(&absent);
        let identity = reading.identity(user).map_err(|error| format!("{error:#}"));
        (entry.str_at(&["name"]).to_owned(), identity)
    });
    let context = named(config, "contexts", "context", config.str_at(&["current-context"]));
    Identities::new(of_server.collect(), context.map_or("", |context| context.str_at(&["user"])))
}

impl Reading<'_> {
    /// A user; a password is one of its own, and what would run a program is refused.
    fn identity(&self, user: &Value) -> anyhow::Result<Identity> {
        for (name, instead) in REFUSED.iter().filter(|(name, _)| !matches!(*name, "username")) {
            if is_set(user, name) {
                bail!("{name} is not supported here: {instead}");
            }
        }
        let certificate = match (self.bytes(user, "client-certificate")?, self.bytes(user, "client-key")?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => bail!("there is only one of client-certificate and client-key"),
        };
        let (name, password) = (user.str_at(&["username"]), user.str_at(&["password"]));
        let has_password = !name.is_empty() || !password.is_empty();
        Ok(Identity {
            certificate,
            token: self.token(user)?,
            password: has_password.then(|| (name.to_owned(), password.to_owned())),
        })
    }

    /// A user's token, or the contents of its file.
    fn token(&self, user: &Value) -> anyhow::Result<Option<String>> {
        match (user.str_at(&["token"]), user.str_at(&["tokenFile"])) {
            ("", "") => Ok(None),
            ("", file) => {
                let token = String::from_utf8(self.file(file)?).ok().context("tokenFile is no text")?;
                Ok(Some(token.trim().to_owned()))
            }
            (token, _) => Ok(Some(token.to_owned())),
        }
    }
}

/// The entry of that name in one of the lists.
fn named<'c>(config: &'c Value, list: &str, kind: &str, name: &str) -> anyhow::Result<&'c Value> {
    let entries = config.get(list).and_then(Value::as_array).unwrap_or_default();
    let entry = entries.iter().find(|entry| entry.str_at(&["name"]) == name);
    entry.and_then(|entry| entry.get(kind)).with_context(|| format!("there is no {kind} {name:?}"))
}

/// Whether the setting is present; false and empty texts are not.
fn is_set(value: &Value, name: &str) -> bool {
    match value.get(name) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(value) => value.as_str() != Some(""),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::files::scratch::Scratch;

    #[test]
    fn a_kubeconfig_holds_all_a_client_needs() {
        let client = PemPair { chain: "CERT".into(), key: "KEY".into() };
        let connection = Connection {
            profile: "cluster",
            address: "127.0.0.1:6443",
            server_name: Some("api.example"),
            ca_pem: b"CA",
            client: &client,
        };
        let want = "\
apiVersion: v1
kind: Config
clusters:
- name: cluster-6443
  cluster:
    server: \"https://127.0.0.1:6443\"
    tls-server-name: \"api.example\"
    certificate-authority-data: Q0E=
users:
- name: cluster-6443-admin
  user:
    client-certificate-data: Q0VSVA==
    client-key-data: S0VZ
contexts:
- name: cluster-6443
  context:
    cluster: cluster-6443
    user: cluster-6443-admin
current-context: cluster-6443
";
        assert_eq!(connection.render(), want);
        let dir = Scratch::new();
        fs::write(dir.join("config"), want).unwrap();
        let read = Access::read(&dir.join("config")).unwrap();
        let certificate = Some((b"CERT".to_vec(), b"KEY".to_vec()));
        let server_name = Some("api.example".to_owned());
        let server = "https://127.0.0.1:6443".to_owned();
        assert_eq!(read, Access { server, server_name, ca_pem: b"CA".into(), certificate, token: None });
        let edited = want.replace("6443-admin\ncurrent", "6443-admin\n    namespace: mine\ncurrent");
        for (file, fits) in [
            (want.to_owned(), true),
            (edited, true),
            (want.replace("Q0E=", "Q0Eb"), false),
            (want.replace(":6443\"", ":64431\""), false),
            (want.replace("api.example", "api.other"), false),
            (String::new(), false),
        ] {
            assert_eq!(connection.fits(&file), fits, "{file}");
        }
        assert!(!Connection { server_name: None, ..connection }.render().contains("tls-server-name"));
    }

    const CONFIG: &str = "\
current-context: b
contexts:
- {name: a, context: {cluster: none, user: none}}
- {name: b, context: {cluster: c, user: u}}
clusters:
- name: c
  cluster: {server: 'https://api.example/base', certificate-authority: ca.pem}
users:
- name: u
  user: {tokenFile: sub/token}
";

    #[test]
    fn files_are_found_beside_the_kubeconfig_and_json_will_do() {
        let dir = Scratch::new();
        fs::create_dir(dir.join("sub")).unwrap();
        for (name, text) in [("config", CONFIG), ("ca.pem", "CA"), ("sub/token", "secret\n")] {
            fs::write(dir.join(name), text).unwrap();
        }
        let want = Access {
            server: "https://api.example/base".to_owned(),
            server_name: None,
            ca_pem: b"CA".to_vec(),
            certificate: None,
            token: Some("secret".to_owned()),
        };
        assert_eq!(Access::read(&dir.join("config")).unwrap(), want);
        let json = r#"{"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c", "user": ""}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://api.example/base",
            "certificate-authority-data": "Q0E="}}]}"#;
        fs::write(dir.join("config"), json).unwrap();
        assert_eq!(Access::read(&dir.join("config")).unwrap(), Access { token: None, ..want });
    }

    #[test]
    fn unusable_settings_are_named_in_one_line() {
        let dir = Scratch::new();
        fs::write(dir.join("ca.pem"), "CA").unwrap();
        let path = dir.join("config");
        for (from, to, want) in [
            ("", "", "DIR/sub/token does not exist"),
            ("current-context: b", "", "current-context is not set"),
            ("current-context: b", "current-context: d", "there is no context \"d\""),
            ("current-context: b", "current-context: a", "there is no cluster \"none\""),
            ("user: u}", "user: v}", "there is no user \"v\""),
            ("users:", "users: 7\nothers:", "there is no user \"u\""),
            ("server: 'https://api.example/base', ", "", "cluster \"c\" has no server"),
            (
                ", certificate-authority: ca.pem",
                "",
                "cluster \"c\" has no certificate-authority to check the server with",
            ),
            (
                "certificate-authority: ca.pem",
                "certificate-authority-data: '!'",
                "certificate-authority-data is no base64: Invalid symbol 33, offset 0.",
            ),
            (
                "certificate-authority: ca.pem",
                "insecure-skip-tls-verify: true",
                "insecure-skip-tls-verify of \"c\" is not supported here: use certificate-authority",
            ),
            (
                "tokenFile: sub/token",
                "exec: {command: rm}",
                "exec of \"u\" is not supported here: put a token or a client certificate into the file",
            ),
            (
                "tokenFile: sub/token",
                "client-key-data: Q0E=",
                "user \"u\" has only one of client-certificate and client-key",
            ),
        ] {
            let text = CONFIG.replacen(from, to, 1);
            fs::write(&path, if from.is_empty() { CONFIG } else { &text }).unwrap();
            let error = format!("{:#}", Access::read(&path).unwrap_err());
            let shown = error.replace(&dir.display().to_string(), "DIR");
            let shown = shown.strip_prefix("DIR/config: ").unwrap_or(&shown);
            assert_eq!(shown, want);
            if from.is_empty() {
                fs::create_dir(dir.join("sub")).unwrap();
                fs::write(dir.join("sub/token"), "secret").unwrap();
            }
        }
        fs::write(&path, "users: [").unwrap();
        let error = format!("{:#}", Access::read(&path).unwrap_err());
        assert!(error.contains("config: yaml: line ") && error.lines().count() == 1, "{error}");
        assert_eq!(
            format!("{:#}", Access::read(&dir.join("none")).unwrap_err()),
            format!("{} does not exist", dir.join("none").display())
        );
    }
}
