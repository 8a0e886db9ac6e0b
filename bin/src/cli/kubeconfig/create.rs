//! `kubeconfig create`: creates a kubeconfig for a user.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::document::Document;
use crate::cli::certs::pki_dir;
use crate::cli::connect::DEFAULT_DATA_DIR;
use crate::cli::history::point::{Point, point};
use crate::cli::output::{self, Format, Outcome, parse_format};
use crate::flags::duration;
use crate::host::pki::{self, Pki};
use crate::host::{expiry, files};
use crate::remote::kubeconfig::KUBECONFIG_FILE;

/// Shortest lifetime of a certificate.
const LIFETIME_MIN: Duration = Duration::from_secs(60);

/// Longest user name or group in a certificate (RFC 5280, appendix A: ub-common-name, ub-organization-name).
const NAME_CHARS_MAX: usize = 64;

/// The flags of the command `kubeconfig create`.
#[derive(Clone, Debug, Args)]
pub struct Create {
    /// Name of the user.
    #[arg(long, short, value_name = "NAME")]
    pub user: String,

    /// Group of the user; repeatable.
    #[arg(long, short, value_name = "GROUP")]
    pub group: Vec<String>,

    /// Lifetime of the client certificate. The certificate expires no later than the CA.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration::parse)]
    pub ttl: Duration,

    /// File to write, readable only by its owner. Default: standard output.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Format of the kubeconfig. Possible values: yaml, json. With --output, this flag is the format of the report, and
    /// possible values are text, json, yaml.
    #[arg(long, short = 'o', value_name = "FORMAT", default_value = "text", value_parser = parse_format)]
    pub format: Format,

    /// URL of the server in the kubeconfig. Default: the URL in admin.kubeconfig.
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,

    /// Clients with the kubeconfig read the state at this point, and cannot write. The point is a revision, a time, or
    /// a duration before now (10m).
    #[arg(long, value_name = "POINT", value_parser = point, allow_hyphen_values = true)]
    pub as_of: Option<Point>,

    /// Data directory of the server.
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
}

#[derive(Serialize)]
struct Report {
    file: PathBuf,
    user: String,
    groups: Vec<String>,
    server: String,
    context: String,
    expires: String,
}

/// Runs the command. Prints the kubeconfig, or writes it to a file and prints a report.
pub fn run(flags: &Create, out: &mut impl Write) -> anyhow::Result<Outcome> {
    check(flags)?;
    let dir = pki_dir(&flags.data_dir)?;
    let admin = flags.data_dir.join(KUBECONFIG_FILE);
    let document = Document::read(&admin)?;
    let document = document
        .with_context(|| format!("{} does not exist: the first start creates it", admin.display()))?;
    let (cluster_name, cluster) = document.current_cluster().with_context(|| admin.display().to_string())?;
    let mut cluster = cluster.clone();
    if let Some(server) = &flags.server {
        cluster["server"] = server.as_str().into();
    }
    let now = SystemTime::now();
    let lock = pki::lock(&dir)?;
    let pair = Pki::open(&dir, now)?.issue(&flags.user, &flags.group, flags.ttl, now)?;
    drop(lock);
    let context = format!("{}@{cluster_name}", flags.user);
    let user = json!({
        "client-certificate-data": STANDARD.encode(&pair.chain),
        "client-key-data": STANDARD.encode(&pair.key),
    });
    let kubeconfig = Document::with_context(&context, cluster_name, &cluster, &context, user);
    let kubeconfig = match &flags.as_of {
        Some(point) => kubeconfig.at_point(&point.text())?,
        None => kubeconfig,
    };
    let Some(file) = &flags.output else {
        let format = if flags.format == Format::Json { Format::Json } else { Format::Yaml };
        output::write(out, format, kubeconfig.value(), |_| Ok(()))?;
        return Ok(Outcome::Fine);
    };
    files::write_private(file, &output::yaml_of(kubeconfig.value())?)?;
    let report = Report {
        file: file.clone(),
        user: flags.user.clone(),
        groups: flags.group.clone(),
        server: kubeconfig.current_cluster()?.1["server"].as_str().unwrap_or_default().to_owned(),
        context: kubeconfig.current_context().to_owned(),
        expires: expiry::expiry_text(pair.chain.as_bytes()),
    };
    output::write(out, flags.format, &report, |out| {
        let groups = if report.groups.is_empty() {
            String::new()
        } else {
            format!(" in {}", report.groups.join(", "))
        };
        writeln!(
            out,
            "{}: {}{groups} on {}, until {}",
            report.file.display(),
            report.user,
            report.server,
            report.expires
        )
    })?;
    Ok(Outcome::Fine)
}

fn check(flags: &Create) -> anyhow::Result<()> {
    for (flag, names) in [("--user", std::slice::from_ref(&flags.user)), ("--group", &flags.group)] {
        for name in names {
            if name.is_empty() || name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control)
            {
                bail!(
                    "{flag} {name:?} is not accepted: a name has 1 to {NAME_CHARS_MAX} characters, and no control characters"
                );
            }
        }
    }
    if flags.ttl < LIFETIME_MIN {
        bail!("--ttl {} is too short: a certificate lives at least 1m", duration::duration_text(flags.ttl));
    }
    if let Some(server) = flags.server.as_deref().filter(|server| !server.starts_with("https://")) {
        bail!("--server {server:?} is not accepted: the URL must begin with https://");
    }
    if let Some(name) = flags.output.as_ref().and_then(|file| file.to_str())
        && ["json", "yaml", "text"].contains(&name)
    {
        bail!(
            "--output names a file: write -o {name} or --format={name} for the format, or --output=./{name}"
        );
    }
    Ok(())
}
