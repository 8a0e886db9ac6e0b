//! Reads the users of a kubeconfig as identities. The name of a user is the name of another server. The user
//! has the credentials that this process presents to the other server (docs/api/webhooks.md#credentials).
//!
//! Files are read once. Users that run a program or impersonate another user are refused, and the error has
//! the name of the setting.

use std::path::Path;

use anyhow::{Context, bail};
use values::json::Value;
use wire::outgoing::{Identities, Identity};

use super::file_members::text_of;
use super::settings::{Reading, ValueSource, named};

/// Settings of a user that are not supported, with the alternative to each setting.
const REFUSED: [(&str, &str); 3] = [
    ("exec", "put a token or a client certificate into the file"),
    ("auth-provider", "put a token or a client certificate into the file"),
    ("as", "connect as yourself"),
];

/// Returns all users by name. The user of the current context is the identity for all other servers.
pub fn identities(path: &Path, config: &Value) -> Identities {
    let reading = Reading { dir: path.parent().unwrap_or(Path::new("")) };
    let users = config.get("users").and_then(Value::as_array).unwrap_or_default();
    let absent = Value::Null;
    let of_server = users.iter().map(|entry| {
        let user = entry.get("user").unwrap_or(&absent);
        let identity = identity(&reading, user).map_err(|error| format!("{error:#}"));
        (entry.str_at(&["name"]).to_owned(), identity)
    });
    let context = named(config, "contexts", "context", config.str_at(&["current-context"]));
    Identities::new(of_server.collect(), context.map_or("", |context| context.str_at(&["user"])))
}

fn identity(reading: &Reading<'_>, user: &Value) -> anyhow::Result<Identity> {
    let is_set = |name: &str| user.get(name).is_some_and(|set| !set.is_null() && set.as_str() != Some(""));
    if let Some((name, instead)) = REFUSED.iter().find(|(name, _)| is_set(name)) {
        bail!("{name} is not supported here: {instead}");
    }
    let certificate = reading.value_source(user, "client-certificate", "client-certificate-data")?;
    let key = reading.value_source(user, "client-key", "client-key-data")?;
    let certificate = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate.bytes()?, key.bytes()?)),
        (None, None) => None,
        _ => bail!("client-certificate and client-key must be given together"),
    };
    let token = match reading.token(user).as_ref().map(ValueSource::bytes).transpose()? {
        Some(token) => {
            let token = String::from_utf8(token).ok().context("the token is not UTF-8 text")?;
            Some(token.trim().to_owned()).filter(|token| !token.is_empty())
        }
        None => None,
    };
    let name = text_of(user, "username");
    let password = text_of(user, "password");
    let has_password = name.is_some() || password.is_some();
    Ok(Identity {
        certificate,
        token,
        password: has_password.then(|| (name.unwrap_or_default(), password.unwrap_or_default())),
    })
}
