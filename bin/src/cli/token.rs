//! `token create`: requests a token of a service account from a running server.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use http::Uri;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::connect::{Connect, block_on};
use crate::cli::output::{self, Format, Outcome, parse_format};
use crate::flags::duration;

/// Shortest lifetime of a token. The server refuses a shorter lifetime.
const LIFETIME_MIN: Duration = Duration::from_secs(10 * 60);

/// The commands of `token`.
#[derive(Clone, Debug, Subcommand)]
pub enum TokenCommand {
    /// Creates a token of a service account
    ///
    /// The server signs the token. The token expires after --ttl, and stops working when the service account
    /// is deleted.
    Create(TokenCreate),
}

/// The flags of the command `token create`.
#[derive(Clone, Debug, Args)]
pub struct TokenCreate {
    #[command(flatten)]
    pub connect: Connect,

    /// Name of the service account.
    #[arg(value_name = "SERVICEACCOUNT")]
    pub account: String,

    /// Namespace of the service account.
    #[arg(long, short, value_name = "NAMESPACE", default_value = "default")]
    pub namespace: String,

    /// Lifetime of the token, at least 10m.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration::parse)]
    pub ttl: Duration,

    /// Audience of the token. Repeatable. Default: the audience of the server.
    #[arg(long, value_name = "AUDIENCE")]
    pub audience: Vec<String>,

    /// Output format. Possible values: text (only the token), json, yaml.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = parse_format)]
    pub output: Format,
}

#[derive(Serialize)]
struct Report {
    token: String,
    expires: String,
    service_account: String,
    namespace: String,
}

/// Runs the command and prints the token.
pub fn run(command: &TokenCommand, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let TokenCommand::Create(flags) = command;
    if flags.ttl < LIFETIME_MIN {
        bail!("--ttl {} is too short: a token lives at least 10m", duration::duration_text(flags.ttl));
    }
    let path = format!("/api/v1/namespaces/{}/serviceaccounts/{}/token", flags.namespace, flags.account);
    let is_segment = |text: &str| !text.is_empty() && !text.contains(['/', '?', '#', '%']);
    if !is_segment(&flags.namespace) || !is_segment(&flags.account) || path.parse::<Uri>().is_err() {
        bail!("{:?} in namespace {:?} is not the name of a service account", flags.account, flags.namespace);
    }
    let client = flags.connect.client()?;
    let request = json!({"spec": {"audiences": flags.audience, "expirationSeconds": flags.ttl.as_secs()}});
    let answer = block_on(client.post_json(&path, &request))?;
    let answer: Value = serde_json::from_slice(&answer).context("the response is not JSON")?;
    let text = |name: &str| answer["status"][name].as_str().unwrap_or_default().to_owned();
    let report = Report {
        token: text("token"),
        expires: text("expirationTimestamp"),
        service_account: flags.account.clone(),
        namespace: flags.namespace.clone(),
    };
    output::write(out, flags.output, &report, |out| writeln!(out, "{}", report.token))?;
    Ok(Outcome::Fine)
}
