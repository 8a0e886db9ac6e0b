//! The text that a server prints after its first start on a terminal, instead of the log line `serving`.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use crate::host::logging::LogFormat;

/// The facts about a server in the text.
pub struct Welcome<'w> {
    /// URL of the server.
    pub url: &'w str,
    /// The data directory of the server.
    pub data_dir: &'w Path,
    /// Path of the kubeconfig of the administrator.
    pub kubeconfig: &'w Path,
    /// The naming profile of the store.
    pub profile: &'w str,
    /// Release of Kubernetes whose API the server serves.
    pub version: &'w str,
}

/// Returns whether this start prints the text. The data directory must be new, and a person must read the
/// log: text on a terminal.
pub fn is_due(data_dir: &Path, format: LogFormat) -> bool {
    let is_new = std::fs::read_dir(data_dir).map_or(true, |mut entries| entries.next().is_none());
    is_new && format == LogFormat::Text && io::stderr().is_terminal()
}

impl Welcome<'_> {
    /// Prints the text on standard error, like the log.
    pub fn print(&self) {
        // Ignore errors, so that a closed terminal does not end the server.
        let _ = io::stderr().write_all(self.text().as_bytes());
    }

    fn text(&self) -> String {
        let Welcome { url, data_dir, kubeconfig, profile, version } = self;
        let (dir, kubeconfig) = (data_dir.display(), kubeconfig.display());
        let tools = match *profile {
            "kubernetes" => "kubectl, helm, client-go and all other tools of Kubernetes work",
            _ => {
                "for programs that use its group names; kubectl get, apply and delete work.\n           \
                 For helm, client-go and other tools, start with --naming=kubernetes in a new --data-dir"
            }
        };
        format!(
            "\n\
             cluster-apiserver is ready on {url} ({version})\n\n\
             created    {dir}: the store, certificates, and a kubeconfig of the administrator\n\
             connect    export KUBECONFIG={kubeconfig}\n           kubectl get namespaces\n\
             naming     {profile}: {tools}\n\
             look       cluster-apiserver status --data-dir={dir}\n\
             stop       Ctrl-C; the next start with the same flags serves the same objects\n\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::scratch::Scratch;

    #[test]
    fn the_welcome_text_explains_how_to_connect_and_stop() {
        let welcome = |profile| Welcome {
            url: "https://127.0.0.1:6443",
            data_dir: Path::new("/data"),
            kubeconfig: Path::new("/data/admin.kubeconfig"),
            profile,
            version: "v1.36.0",
        };
        let text = welcome("cluster").text();
        for part in ["export KUBECONFIG=/data/admin.kubeconfig\n", "--naming=kubernetes", "Ctrl-C"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!welcome("kubernetes").text().contains("--naming"));
        assert!(text.lines().count() <= 12 && text.lines().all(|line| line.chars().count() <= 110), "{text}");
    }

    #[test]
    fn the_welcome_text_is_written_only_for_a_new_data_directory() {
        let dir = Scratch::new();
        std::fs::write(dir.join("file"), "").unwrap();
        assert!(!is_due(&dir, LogFormat::Text));
        assert!(!is_due(&dir.join("none"), LogFormat::Json));
    }
}
