//! The server's serving certificate, the CAs of client certificates and the administrator's kubeconfig. The
//! server creates or reads these files when it starts, and keeps them up to date while it runs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use api::state::allocation::Network;
use wire::metrics::Metrics;
use wire::server::ServingCertificate;

use crate::config::Config;
use crate::config::tls::{NamedFiles, ServingFiles, TlsFiles};
use crate::host::expiry;
use crate::host::files;
use crate::host::machine;
use crate::host::pki::{self, Name, PKI_DIR, PemPair, Pki};
use crate::host::reload::{self, FileGroup};
use crate::remote::kubeconfig::{Connection, KUBECONFIG_FILE};

/// Time between two expiry checks of the server's own certificates.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Credentials of a running server.
pub struct Credentials {
    config: Config,
    address: SocketAddr,
    /// The current serving certificate. A reload replaces the certificate.
    pub serving: Arc<ServingCertificate>,
    /// PEM bundle of the CAs of client certificates: the server's own CA and the configured CAs.
    pub client_cas: Vec<u8>,
    /// PEM of the CA of the serving certificate when the server started.
    pub root_ca: String,
    /// Path of the administrator's kubeconfig.
    pub kubeconfig: PathBuf,
}

/// PEM texts from one read of the files.
struct Texts {
    chain: Vec<u8>,
    key: Vec<u8>,
    /// The server's own CA.
    ca: Vec<u8>,
    /// The CA of `chain`: the server's own CA, or the configured chain itself.
    vouching: Vec<u8>,
    /// The administrator's certificate.
    admin: Vec<u8>,
}

impl Credentials {
    /// Reads or creates all credentials for a server at `address`, and writes the kubeconfig.
    pub fn prepare(config: &Config, address: SocketAddr) -> anyhow::Result<Self> {
        let Texts { chain, key, ca, vouching, .. } = texts(config, address)?;
        let serving = ServingCertificate::from_pem(&chain, &key).context("cannot serve the certificate")?;
        let named: anyhow::Result<Vec<_>> = config.tls.named.iter().map(NamedFiles::read).collect();
        serving.replace_named(named?);
        let file = config.authentication.client_ca.as_ref();
        let client_cas = joined(&ca, file.map(|file| file.bytes.as_slice()));
        Ok(Credentials {
            config: config.clone(),
            address,
            serving: Arc::new(serving),
            client_cas,
            root_ca: String::from_utf8_lossy(&vouching).into_owned(),
            kubeconfig: kubeconfig_path(config),
        })
    }

    /// Reads the certificates of the server's own CAs from disk (PEM).
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn own_cas(&self) -> anyhow::Result<String> {
        pki::bundle(&self.config.store.data_dir.join(PKI_DIR))
    }

    /// Reads the serving certificate from disk, uses it for new connections, and writes the matching kubeconfig.
    /// Returns the PEM of the CAs with which clients verify the certificate.
    ///
    /// # Errors
    /// A file cannot be read, or the certificate cannot be served.
    pub fn reload_serving(&self) -> anyhow::Result<String> {
        let texts = texts(&self.config, self.address)?;
        self.serving.replace(&texts.chain, &texts.key).context("cannot serve the certificate")?;
        Ok(String::from_utf8_lossy(&texts.vouching).into_owned())
    }

    /// Returns the PEM of the CAs of client certificates: the server's own CA and the CAs in the contents of
    /// a file.
    ///
    /// # Errors
    /// The server's own CA cannot be read.
    pub fn client_cas(&self, file: Option<&[u8]>) -> anyhow::Result<Vec<u8>> {
        Ok(joined(self.own_cas()?.as_bytes(), file))
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Keeps the serving certificate and the administrator's kubeconfig up to date: reloads a configured
    /// certificate when the file changes, renews the server's own certificates before they expire, and
    /// records the expiry of each certificate in the metrics.
    pub async fn follow(&self, metrics: &Metrics) {
        if let Ok(texts) = texts(&self.config, self.address) {
            texts.watch(metrics);
        }
        tokio::join!(self.follow_serving(metrics), self.follow_named());
    }

    /// Reloads the SNI certificates when their files change.
    async fn follow_named(&self) {
        let files = &self.config.tls.named;
        let paths = files.iter().flat_map(|files| [files.certificate.clone(), files.key.clone()]);
        let mut watched = FileGroup::new(paths.collect());
        while !files.is_empty() {
            tokio::time::sleep(reload::INTERVAL).await;
            if watched.changed().is_none() {
                continue;
            }
            match files.iter().map(NamedFiles::read).collect::<anyhow::Result<Vec<_>>>() {
                Ok(named) => {
                    let count = named.len();
                    self.serving.replace_named(named);
                    tracing::info!(count, "SNI certificates reloaded");
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(
                        error,
                        "SNI certificates not reloaded, the old ones stay in use: correct the files"
                    );
                }
            }
        }
    }

    async fn follow_serving(&self, metrics: &Metrics) {
        // The commands `certs` and `kubeconfig` may replace the server's own certificates.
        let own = self.config.store.data_dir.join(PKI_DIR).join(pki::SERVING).with_extension("crt");
        let paths = match &self.config.tls.files {
            Some(ServingFiles::Named(files)) => vec![files.certificate.clone(), files.key.clone()],
            Some(ServingFiles::InDirectory(files)) => vec![files.certificate.clone(), files.key.clone(), own],
            None => vec![own],
        };
        let mut watched = FileGroup::new(paths);
        let mut renewed = Instant::now();
        let served = |texts: &Texts| (texts.chain.clone(), texts.key.clone());
        let mut last = texts(&self.config, self.address).map(|texts| served(&texts)).unwrap_or_default();
        loop {
            tokio::time::sleep(reload::INTERVAL).await;
            let due = renewed.elapsed() >= RENEWAL_INTERVAL;
            if watched.changed().is_none() && !due {
                continue;
            }
            renewed = Instant::now();
            let replaced = texts(&self.config, self.address).and_then(|texts| {
                texts.watch(metrics);
                self.serving.replace(&texts.chain, &texts.key).context("cannot serve the certificate")?;
                Ok(served(&texts))
            });
            match replaced {
                Ok(now) if now == last => tracing::debug!("serving certificate is unchanged"),
                Ok(now) => {
                    let expires = expiry::expiry_text(&now.0);
                    tracing::info!(expires, "serving certificate reloaded");
                    last = now;
                }
                Err(error) => {
                    tracing::warn!(
                        error = %format!("{error:#}"),
                        "serving certificate not reloaded, the old one stays in use: correct the files"
                    )
                }
            }
        }
    }
}

/// Joins the server's own CA and the CAs of a file.
fn joined(own: &[u8], file: Option<&[u8]>) -> Vec<u8> {
    match file {
        Some(file) => [own, b"\n", file].concat(),
        None => own.to_vec(),
    }
}

impl Texts {
    fn watch(&self, metrics: &Metrics) {
        expiry::watch(metrics, "serving", &self.chain);
        expiry::watch(metrics, "ca", &self.ca);
        expiry::watch(metrics, "admin", &self.admin);
    }
}

fn kubeconfig_path(config: &Config) -> PathBuf {
    config.store.data_dir.join(KUBECONFIG_FILE)
}

/// Reads all files once. Renews the server's own certificates if they expire soon.
fn texts(config: &Config, address: SocketAddr) -> anyhow::Result<Texts> {
    let now = SystemTime::now();
    let dir = config.store.data_dir.join(PKI_DIR);
    let _lock = pki::lock(&dir)?;
    let pki = Pki::open(&dir, now)?;
    let local = machine::local_address(address);
    let (chain, key, vouching, server_name) = match configured_certificate(config, &pki)? {
        Some((chain, key)) => {
            // The CA of a configured chain is unknown here. Clients can trust the certificates of the chain
            // instead.
            let names = pki::names_in(&chain);
            let server_name = if names.contains(&Name::Ip(local.ip())) {
                None
            } else {
                names.into_iter().find_map(|name| match name {
                    Name::Dns(name) if !name.starts_with('*') => Some(name),
                    _ => None,
                })
            };
            (chain.clone(), key, chain, server_name)
        }
        None => {
            // Clients inside the cluster connect to the address of the server's own service, or to the
            // address that the service points to.
            let own = config.service.ranges.networks.iter().filter_map(Network::first);
            let inside: Vec<_> = own.chain(config.service.advertise_address).collect();
            let mut names = machine::serving_names(address.ip(), config.store.naming, &inside);
            names.extend(config.tls.extra_names.iter().cloned());
            names.extend(config.service.external_hostname.iter().filter_map(|name| pki::Name::read(name)));
            let pair = pki.serving(&names, now)?;
            publish(config, &pair)?;
            (pair.chain.into_bytes(), pair.key.into_bytes(), pki.ca_pem().into(), None)
        }
    };
    let client = pki.client(pki::ADMIN, pki::ADMINISTRATOR.0, pki::ADMINISTRATOR.1, now)?;
    let connection = Connection {
        profile: config.store.naming.profile,
        address: &local.to_string(),
        server_name: server_name.as_deref(),
        ca_pem: &vouching,
        client: &client,
    };
    let path = kubeconfig_path(config);
    // Keep a kubeconfig that still fits, because the operator may have added contexts or a namespace to it.
    let is_kept = files::read_if_there(&path)?
        .is_some_and(|bytes| std::str::from_utf8(&bytes).is_ok_and(|file| connection.fits(file)));
    if !is_kept && files::write_private(&path, connection.render().as_bytes())? {
        files::sync_dir(&dir)?;
        files::sync_dir(&config.store.data_dir)?;
    }
    Ok(Texts { chain, key, ca: pki.ca_pem().into(), vouching, admin: client.chain.into_bytes() })
}

/// Reads the configured serving certificate and its key (PEM); `None` if the server's own certificate is served.
fn configured_certificate(config: &Config, pki: &Pki) -> anyhow::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let Some(configured) = &config.tls.files else { return Ok(None) };
    let TlsFiles { certificate, key } = configured.paths();
    let pair = files::read_if_there(certificate)?.zip(files::read_if_there(key)?);
    match configured {
        ServingFiles::Named(_) => {
            let gone = || format!("{} or {} is gone", certificate.display(), key.display());
            pair.with_context(gone).map(Some)
        }
        ServingFiles::InDirectory(_) => Ok(pair.filter(|(chain, _)| !pki.is_own_serving(chain))),
    }
}

/// Writes the server's own certificate into `--cert-dir`, if this directory is configured.
fn publish(config: &Config, pair: &PemPair) -> anyhow::Result<()> {
    let Some(ServingFiles::InDirectory(TlsFiles { certificate, key })) = &config.tls.files else {
        return Ok(());
    };
    certificate.parent().map_or(Ok(()), files::private_dir)?;
    files::write_private(key, pair.key.as_bytes())?;
    files::write_private(certificate, pair.chain.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::line;
    use crate::host::files::scratch::Scratch;
    use base64::Engine;
    use std::ffi::OsString;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn config(arguments: &str) -> Config {
        let words = std::iter::once("cluster-apiserver").chain(arguments.split_whitespace());
        Config::from_flags(&line::parse(words.map(OsString::from)).unwrap().flags()).unwrap()
    }

    fn field(kubeconfig: &str, name: &str) -> String {
        let line = kubeconfig.lines().find(|line| line.trim_start().starts_with(name));
        line.map(|line| line.split_once(": ").unwrap().1.trim_matches('"').to_owned()).unwrap_or_default()
    }

    #[test]
    fn the_kubeconfig_changes_only_with_the_port() {
        let dir = Scratch::new();
        let config = config(&format!("--data-dir={}", dir.display()));
        let read = || fs::read_to_string(dir.join("admin.kubeconfig")).unwrap();
        let credentials = Credentials::prepare(&config, "0.0.0.0:7001".parse().unwrap()).unwrap();
        let first = read();
        assert_eq!(fs::metadata(&credentials.kubeconfig).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(field(&first, "server"), "https://127.0.0.1:7001");
        let ca =
            base64::engine::general_purpose::STANDARD.decode(field(&first, "certificate-authority-data"));
        assert_eq!(ca.unwrap(), fs::read(dir.join("pki/ca.crt")).unwrap());
        assert_eq!(credentials.client_cas, fs::read(dir.join("pki/ca.crt")).unwrap());
        Credentials::prepare(&config, "0.0.0.0:7001".parse().unwrap()).unwrap();
        assert_eq!(read(), first);
        Credentials::prepare(&config, "0.0.0.0:7002".parse().unwrap()).unwrap();
        assert_eq!(read(), first.replace("7001", "7002"));
    }

    #[test]
    fn a_certificate_directory_is_used_or_filled() {
        let dir = Scratch::new();
        let flags = "--data-dir=DIR/data --cert-dir=DIR/certs".replace("DIR", &dir.display().to_string());
        let prepare = || Credentials::prepare(&config(&flags), "127.0.0.1:7001".parse().unwrap()).unwrap();
        let read = |file: &str| fs::read(dir.join(file)).unwrap();
        files::private_dir(&dir.join("data")).unwrap();
        prepare();
        assert_eq!(read("certs/apiserver.crt"), read("data/pki/serving.crt"));
        assert_eq!(
            fs::metadata(dir.join("certs/apiserver.key")).unwrap().permissions().mode() & 0o777,
            0o600
        );
        // If the server creates a new certificate, it also writes that certificate to the directory.
        fs::remove_file(dir.join("data/pki/serving.crt")).unwrap();
        prepare();
        assert_eq!(read("certs/apiserver.crt"), read("data/pki/serving.crt"));
        // The server serves a certificate that the operator put into the directory, and does not overwrite
        // this certificate.
        let made = rcgen::generate_simple_self_signed(vec!["api.example".to_owned()]).unwrap();
        fs::write(dir.join("certs/apiserver.crt"), made.cert.pem()).unwrap();
        fs::write(dir.join("certs/apiserver.key"), made.signing_key.serialize_pem()).unwrap();
        assert_eq!(prepare().root_ca, made.cert.pem());
        assert_eq!(read("certs/apiserver.crt"), made.cert.pem().as_bytes());
    }

    #[test]
    fn with_a_given_certificate_the_kubeconfig_trusts_it_and_client_certificates_of_both_cas_work() {
        let dir = Scratch::new();
        let made = rcgen::generate_simple_self_signed(vec!["*.example".to_owned(), "api.example".to_owned()]);
        let made = made.unwrap();
        fs::write(dir.join("crt"), made.cert.pem()).unwrap();
        fs::write(dir.join("key"), made.signing_key.serialize_pem()).unwrap();
        let config = config(
            &"--data-dir=DIR/data --tls-cert-file=DIR/crt --tls-private-key-file=DIR/key --client-ca-file=DIR/crt"
                .replace("DIR", &dir.display().to_string()),
        );
        files::private_dir(&config.store.data_dir).unwrap();
        let credentials = Credentials::prepare(&config, "127.0.0.1:7001".parse().unwrap()).unwrap();
        let text = fs::read_to_string(&credentials.kubeconfig).unwrap();
        assert_eq!(field(&text, "tls-server-name"), "api.example");
        let ca = base64::engine::general_purpose::STANDARD.decode(field(&text, "certificate-authority-data"));
        assert_eq!(ca.unwrap(), made.cert.pem().as_bytes());
        let both = String::from_utf8(credentials.client_cas).unwrap();
        assert_eq!(both.matches("BEGIN CERTIFICATE").count(), 2);
    }
}
