//! `certs`: shows and replaces the certificates that the server creates for itself (docs/guides/certificates.md).
//!
//! ```text
//! lock of <data-dir>/pki ─► new certificates ─► admin.kubeconfig with them ─► a running server notices the files
//! ```

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::connect::DEFAULT_DATA_DIR;
use crate::cli::output::Outcome;
use crate::cli::output::{Align, table};
use crate::cli::output::{Format, parse_format};
use crate::cli::{output, report};
use crate::host::pki::{self, Described, PKI_DIR, PemPair, Pki};
use crate::host::{files, reload};
use crate::remote::kubeconfig::{KUBECONFIG_FILE, with_replaced};
use crate::store::location::log_dir;

const DAY_S: i64 = 24 * 60 * 60;

/// The commands of `certs`.
#[derive(Clone, Debug, Subcommand)]
pub enum CertsCommand {
    /// Lists the certificates in the data directory, with their names and the end of their validity
    Show(CertsFlags),
    /// Replaces the certificates of the server and of its administrator by new certificates
    ///
    /// The server itself renews its certificates 30 days before they expire. Use this command if another person may
    /// have a copy of a key. A running server uses the new serving certificate within 10 seconds. The server accepts
    /// the administrator's old certificate until that certificate expires. To revoke the old certificate, rotate the
    /// CA.
    Renew(Renew),
    /// Replaces the server's CA in two steps, without an interruption of the service
    ///
    /// The first step creates a new CA. From then on, the server accepts client certificates of both CAs, the new CA
    /// signs new client certificates, and every new kubeconfig contains both CAs. Give each user a new kubeconfig. Then
    /// run the second step with --finish, which removes the old CA and replaces the serving certificate.
    RotateCa(RotateCa),
}

/// The flags of all commands of `certs`.
#[derive(Clone, Debug, Args)]
pub struct CertsFlags {
    /// Data directory of the server.
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,

    /// Output format. Possible values: text, json, yaml.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = parse_format)]
    pub output: Format,
}

/// The flags of the command `certs renew`.
#[derive(Clone, Debug, Args)]
pub struct Renew {
    #[command(flatten)]
    pub common: CertsFlags,

    /// Certificates to renew: serving, admin. Default: both.
    #[arg(value_name = "CERTIFICATE", value_parser = certificate)]
    pub certificates: Vec<String>,
}

/// The flags of the command `certs rotate-ca`.
#[derive(Clone, Debug, Args)]
pub struct RotateCa {
    #[command(flatten)]
    pub common: CertsFlags,

    /// Run the second step: remove the old CA.
    #[arg(long)]
    pub finish: bool,
}

fn certificate(text: &str) -> Result<String, String> {
    match text {
        pki::SERVING | pki::ADMIN => Ok(text.to_owned()),
        _ => Err("must be serving or admin".to_owned()),
    }
}

#[derive(Serialize)]
struct Report {
    directory: PathBuf,
    /// Whether a rotation of the CA has begun and is not finished.
    rotating: bool,
    certificates: Vec<Certificate>,
}

#[derive(Serialize)]
struct Certificate {
    file: String,
    subject: String,
    groups: Vec<String>,
    names: Vec<String>,
    is_ca: bool,
    /// File of the CA that signed the certificate, if this CA is in the directory.
    signed_by: Option<String>,
    begins: String,
    expires: String,
    days_left: i64,
}

/// Runs the command, then prints all certificates.
pub fn run(command: &CertsCommand, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let (common, done) = match command {
        CertsCommand::Show(common) => (common, String::new()),
        CertsCommand::Renew(flags) => (&flags.common, renew(flags)?),
        CertsCommand::RotateCa(flags) => (&flags.common, rotate(flags)?),
    };
    let dir = pki_dir(&common.data_dir)?;
    let report = report_of(&dir)?;
    output::write(out, common.output, &report, |out| write_text(&report, &done, out))?;
    Ok(Outcome::Fine)
}

/// Returns the directory of the certificates in a data directory.
///
/// # Errors
/// The data directory has no certificates.
pub fn pki_dir(data_dir: &Path) -> anyhow::Result<PathBuf> {
    let dir = data_dir.join(PKI_DIR);
    if !dir.join("ca.crt").exists() {
        bail!(
            "{} has no certificates: name the data directory of a server with --data-dir; its first start creates them",
            dir.display()
        );
    }
    Ok(dir)
}

fn renew(flags: &Renew) -> anyhow::Result<String> {
    let data_dir = &flags.common.data_dir;
    let dir = pki_dir(data_dir)?;
    let _lock = pki::lock(&dir)?;
    let now = SystemTime::now();
    let pki = Pki::open(&dir, now)?;
    let selects = |name: &str| flags.certificates.is_empty() || flags.certificates.iter().any(|n| n == name);
    let mut renewed = Vec::new();
    // A server with `--tls-cert-file` did not create a serving certificate.
    let has_serving = dir.join(pki::SERVING).with_extension("crt").exists();
    if selects(pki::SERVING) && (has_serving || !flags.certificates.is_empty()) {
        pki.renew_serving(now)?;
        renewed.push(pki::SERVING);
    }
    if selects(pki::ADMIN) {
        renew_admin(data_dir, &dir, &pki, now)?;
        renewed.push(pki::ADMIN);
    }
    files::sync_dir(&dir)?;
    let effect = if is_running(data_dir) { "; the running server uses them within 10 seconds" } else { "" };
    Ok(format!("renewed: {}{effect}\n\n", renewed.join(", ")))
}

/// Replaces the administrator's certificate, and writes the new certificate into the administrator's
/// kubeconfig.
fn renew_admin(data_dir: &Path, dir: &Path, pki: &Pki, now: SystemTime) -> anyhow::Result<()> {
    let old = pair_of(dir, pki::ADMIN)?;
    let (user, group) = pki::ADMINISTRATOR;
    let new = pki.renew_client(pki::ADMIN, user, group, now)?;
    let replaced = [(old.chain.as_str(), new.chain.as_str()), (old.key.as_str(), new.key.as_str())];
    rewrite_kubeconfig(data_dir, &replaced)
}

fn pair_of(dir: &Path, name: &str) -> anyhow::Result<PemPair> {
    let text = |extension: &str| -> anyhow::Result<String> {
        let bytes = files::read_if_there(&dir.join(name).with_extension(extension))?;
        Ok(String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned())
    };
    Ok(PemPair { chain: text("crt")?, key: text("key")? })
}

/// Replaces PEM texts in the administrator's kubeconfig, if the file exists. Other contents of the file do
/// not change.
fn rewrite_kubeconfig(data_dir: &Path, replaced: &[(&str, &str)]) -> anyhow::Result<()> {
    let path = data_dir.join(KUBECONFIG_FILE);
    let Some(bytes) = files::read_if_there(&path)? else { return Ok(()) };
    let text = String::from_utf8(bytes).with_context(|| format!("{} is not text", path.display()))?;
    files::write_private(&path, with_replaced(&text, replaced).as_bytes())?;
    files::sync_dir(data_dir)
}

fn rotate(flags: &RotateCa) -> anyhow::Result<String> {
    let data_dir = &flags.common.data_dir;
    let dir = pki_dir(data_dir)?;
    let now = SystemTime::now();
    let before = pki::bundle(&dir)?;
    let lock = pki::lock(&dir)?;
    let pki = if flags.finish { Pki::finish_rotation(&dir, now)? } else { Pki::begin_rotation(&dir, now)? };
    drop(lock);
    // Give a running server time to reload the files. The server must accept certificates of the new CA before a client
    // presents one, and must present its new certificate before a kubeconfig trusts only the new CA.
    if is_running(data_dir) {
        std::thread::sleep(reload::BUNDLE_INTERVAL * 2);
    }
    let _lock = pki::lock(&dir)?;
    if flags.finish {
        // A running server has already adopted the certificate of the new CA.
        pki.adopt_serving(now)?;
    } else {
        renew_admin(data_dir, &dir, &pki, now)?;
    }
    rewrite_kubeconfig(data_dir, &[(&before, &pki.ca_pem())])?;
    files::sync_dir(&dir)?;
    Ok(if flags.finish {
        "the old CA is removed: client certificates that it signed are refused from now on\n\n".to_owned()
    } else {
        format!(
            "a new CA is created, and both CAs are trusted. Next: give every user a new kubeconfig (kubeconfig create), then run\n  \
             cluster-apiserver certs rotate-ca --finish --data-dir={}\n\n",
            data_dir.display()
        )
    })
}

/// Returns whether a server has the store of this data directory open.
fn is_running(data_dir: &Path) -> bool {
    engine::offline::Store::open(&log_dir(data_dir)).is_ok_and(|store| store.in_use())
}

fn report_of(dir: &Path) -> anyhow::Result<Report> {
    let list = std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut paths: Vec<PathBuf> = list.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "crt"));
    paths.sort();
    let mut described = Vec::new();
    for path in paths {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        described.push((file, Described::read(&path)?));
    }
    let certificates =
        described.iter().map(|(file, found)| certificate_of(file, found, &described)).collect();
    let rotating = described.iter().any(|(file, _)| file == "ca-old.crt");
    Ok(Report { directory: dir.to_owned(), rotating, certificates })
}

fn certificate_of(file: &str, found: &Described, all: &[(String, Described)]) -> Certificate {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let signer = all.iter().find(|(_, ca)| ca.is_ca && ca.key_id == found.issuer_key_id);
    let time =
        |seconds: i64| jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default();
    Certificate {
        file: file.to_owned(),
        subject: found.user.clone(),
        groups: found.groups.clone(),
        names: found.names.iter().map(ToString::to_string).collect(),
        is_ca: found.is_ca,
        signed_by: signer.map(|(file, _)| file.clone()).filter(|signer| signer != file),
        begins: time(found.begins),
        expires: time(found.expires),
        days_left: (found.expires - now).div_euclid(DAY_S),
    }
}

fn write_text(report: &Report, done: &str, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{done}")?;
    let heading = ["FILE", "SUBJECT", "SIGNED BY", "EXPIRES", "LEFT"].map(str::to_owned);
    let rows = report.certificates.iter().map(|certificate| {
        let groups = if certificate.groups.is_empty() {
            String::new()
        } else {
            format!(" ({})", certificate.groups.join(", "))
        };
        let left = match certificate.days_left {
            ..0 => "expired".to_owned(),
            days => report::count(days.unsigned_abs(), "day", "days"),
        };
        [
            certificate.file.clone(),
            certificate.subject.clone() + &groups,
            certificate.signed_by.clone().unwrap_or_else(|| "itself".to_owned()),
            certificate.expires.clone(),
            left,
        ]
    });
    let rows: Vec<_> = std::iter::once(heading).chain(rows).collect();
    table(out, [Align::Left, Align::Left, Align::Left, Align::Left, Align::Right], &rows)?;
    for certificate in report.certificates.iter().filter(|certificate| !certificate.names.is_empty()) {
        writeln!(out, "\nnames in {}: {}", certificate.file, certificate.names.join(", "))?;
    }
    if report.rotating && done.is_empty() {
        writeln!(out, "\na rotation of the CA has begun; `certs rotate-ca --finish` ends it")?;
    }
    Ok(())
}
