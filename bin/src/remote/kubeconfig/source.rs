//! Credentials that can change. The endpoint for the next call is built again when files have changed or the
//! credential of a program has expired.
//!
//! Files are checked at most once per second. If a file cannot be read, it is probably being replaced, so the
//! previous contents stay in use. Only one caller at a time runs the program, and other callers wait for the
//! result. After a response with code 401, the credential of a program is discarded before its expiry.

use std::time::{Duration, Instant};

use http::Uri;
use tokio::sync::Mutex;
use wire::outgoing::Endpoint;

use super::exec::Credential;
use super::settings::{Material, Settings, is_plain};

/// Minimum time between two checks of the files.
const INTERVAL: Duration = Duration::from_secs(1);

/// The credentials for one URL of a server.
pub struct Source {
    settings: Settings,
    url: Uri,
    state: Mutex<State>,
}

struct State {
    material: Material,
    looked: Instant,
    program_credential: Option<Credential>,
    /// The endpoint that was built from the current credentials, if any.
    endpoint: Option<Endpoint>,
}

impl Source {
    /// Creates a source of credentials for calls of `url`. Reads files, but does not run a program.
    ///
    /// # Errors
    /// A file is missing, or its contents are invalid.
    pub fn new(mut settings: Settings, url: Uri) -> anyhow::Result<Source> {
        if is_plain(&url) {
            settings.forget_credentials();
        }
        let material = settings.material()?;
        let endpoint = settings.endpoint(&url, &material, None)?;
        // If there is a program, the endpoint is built only after the first run of the program.
        let endpoint = settings.exec.is_none().then_some(endpoint);
        let state = State { material, looked: Instant::now(), program_credential: None, endpoint };
        Ok(Source { settings, url, state: Mutex::new(state) })
    }

    /// Returns the endpoint for the next call.
    ///
    /// # Errors
    /// The program failed, or the credentials are invalid.
    pub async fn endpoint(&self) -> anyhow::Result<Endpoint> {
        let mut state = self.state.lock().await;
        if state.looked.elapsed() >= INTERVAL {
            state.looked = Instant::now();
            match self.settings.material() {
                Ok(material) if material != state.material => {
                    state.material = material;
                    state.endpoint = None;
                }
                Ok(_) => {}
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(
                        error,
                        "credentials for another server not reloaded, the old ones stay in use: correct the kubeconfig"
                    );
                }
            }
        }
        if let Some(exec) = &self.settings.exec {
            let now = values::clock::now_seconds();
            let is_over = |credential: &Credential| credential.expires.is_some_and(|expires| now >= expires);
            if state.program_credential.as_ref().is_none_or(is_over) {
                state.program_credential = None;
                let credential = exec.run().await?;
                state.program_credential = Some(credential);
                state.endpoint = None;
            }
        }
        if let Some(endpoint) = &state.endpoint {
            return Ok(endpoint.clone());
        }
        let endpoint =
            self.settings.endpoint(&self.url, &state.material, state.program_credential.as_ref())?;
        state.endpoint = Some(endpoint.clone());
        Ok(endpoint)
    }

    /// Discards the credential of a program, because the server refused it. Returns whether the next call may
    /// have other credentials.
    pub async fn refused(&self) -> bool {
        if self.settings.exec.is_none() {
            return false;
        }
        let mut state = self.state.lock().await;
        state.endpoint = None;
        state.program_credential.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::host::files::scratch::Scratch;

    /// A program that counts its runs, and prints a token with the number of the run.
    const PROGRAM: &str = r#"#!/bin/sh
echo run >> "$COUNT"
printf '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t%s","expirationTimestamp":"%s"}}' "$(wc -l < "$COUNT" | tr -d ' ')" "$END"
"#;

    #[tokio::test]
    async fn an_exec_plugin_runs_again_when_its_credential_expired_or_was_refused() {
        for (end, runs) in [("2999-01-01T00:00:00Z", [1, 1, 2]), ("2001-01-01T00:00:00Z", [1, 2, 3])] {
            let dir = Scratch::new();
            let count = dir.join("count");
            fs::write(dir.join("program"), PROGRAM).unwrap();
            fs::set_permissions(dir.join("program"), fs::Permissions::from_mode(0o700)).unwrap();
            let config = format!(
                "current-context: a\ncontexts: [{{name: a, context: {{cluster: c, user: u}}}}]\nclusters: [{{name: c, \
                 cluster: {{server: 'https://a.example', insecure-skip-tls-verify: true}}}}]\nusers: [{{name: u, user: \
                 {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: ./program, interactiveMode: Never, env: \
                 [{{name: COUNT, value: '{}'}}, {{name: END, value: '{end}'}}]}}}}}}]\n",
                count.display()
            );
            fs::write(dir.join("config"), config).unwrap();
            let settings = Settings::read(&dir.join("config")).unwrap();
            let source = Source::new(settings, "https://a.example".parse().unwrap()).unwrap();
            let ran = || fs::read_to_string(&count).unwrap_or_default().lines().count();
            assert_eq!(ran(), 0, "not before a call");
            source.endpoint().await.unwrap();
            assert_eq!(ran(), runs[0]);
            source.endpoint().await.unwrap();
            assert_eq!(ran(), runs[1], "until {end}");
            assert!(source.refused().await);
            assert!(!source.refused().await, "there is none left");
            source.endpoint().await.unwrap();
            assert_eq!(ran(), runs[2], "after a refusal");
        }
    }

    #[tokio::test]
    async fn credentials_are_not_sent_over_plain_http() {
        let dir = Scratch::new();
        let config = "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: [{name: c, \
                      cluster: {server: 'http://a.example:81/x'}}]\nusers: [{name: u, user: {tokenFile: gone}}]\n";
        fs::write(dir.join("config"), config).unwrap();
        let settings = Settings::read(&dir.join("config")).unwrap();
        let source = Source::new(settings, "http://a.example:81/x?timeout=1s".parse().unwrap()).unwrap();
        let endpoint = source.endpoint().await.unwrap();
        assert_eq!(endpoint.url().to_string(), "http://a.example:81/x?timeout=1s");
    }

    #[tokio::test]
    async fn changed_credential_files_are_read_again_and_missing_ones_keep_their_content() {
        let dir = Scratch::new();
        let config = "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: [{name: c, \
                      cluster: {server: 'https://a.example', insecure-skip-tls-verify: true}}]\nusers: [{name: u, user: \
                      {tokenFile: token}}]\n";
        fs::write(dir.join("config"), config).unwrap();
        fs::write(dir.join("token"), "one\n").unwrap();
        let settings = Settings::read(&dir.join("config")).unwrap();
        let source = Source::new(settings, "https://a.example".parse().unwrap()).unwrap();
        let token = async || {
            source.state.lock().await.looked = Instant::now() - INTERVAL;
            source.endpoint().await.unwrap();
            source.state.lock().await.material.identity.token.clone().unwrap()
        };
        assert_eq!(token().await, "one");
        fs::write(dir.join("token"), "two\n").unwrap();
        assert_eq!(token().await, "two");
        fs::remove_file(dir.join("token")).unwrap();
        assert_eq!(token().await, "two");
        assert!(!source.refused().await, "there is nothing else");
    }
}
