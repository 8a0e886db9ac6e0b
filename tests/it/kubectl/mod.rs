//! Tests of the installed kubectl: commands and their exact output.
//!
//! ```text
//! output     get, explain, wait, output in every format
//! custom     definitions, and objects of them
//! changed    create, patch, edit, apply, delete
//! identity   certificates, tokens, permissions, impersonation, credential programs
//! manifests  all user manifests
//! workloads  the life cycle of the workloads among them
//! ```
//!
//! Expected texts are kubectl's output against kube-apiserver; ages are masked. Without kubectl, and without
//! the manifests that some tests read, the tests print `skipped: …` and pass.

mod changed;
mod custom;
mod identity;
mod manifests;
mod output;
mod workloads;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tests::server::TempDir;
use tests::{PATIENCE, Server};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// A kubectl with its own home directory, so that its cache contains the data of only one server.
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: TempDir,
}

/// The result of a command.
#[derive(Debug)]
pub struct Ran {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Text on standard output.
    pub out: String,
    /// Text on standard error.
    pub err: String,
}

impl Kubectl {
    /// Returns kubectl for `server`; without kubectl, prints a line and returns `None`.
    pub async fn find(server: &Server) -> Option<Kubectl> {
        let version = Command::new("kubectl").args(["version", "--client"]).output().await;
        if !version.is_ok_and(|output| output.status.success()) {
            testkit::skip("kubectl not found");
            return None;
        }
        Some(Kubectl::for_server("kubectl".into(), server))
    }

    fn for_server(program: PathBuf, server: &Server) -> Kubectl {
        Kubectl { program, kubeconfig: server.kubeconfig(), home: TempDir::new() }
    }

    /// Returns this kubectl with another kubeconfig.
    pub fn with_kubeconfig(self, kubeconfig: PathBuf) -> Kubectl {
        Kubectl { kubeconfig, ..self }
    }

    /// Returns the oldest and the newest available release of kubectl ([`Kubectl::spread_releases`]).
    pub async fn releases(server: &Server) -> Vec<Kubectl> {
        Kubectl::spread_releases(server, 2).await
    }

    /// Returns `count` (at least two) of the available releases of kubectl: the oldest, the newest, and others at equal
    /// distances between these. The programs are the files that `KUBECTLS` names, separated by colons, or else the
    /// files `kubectl.<release>` next to the installed kubectl. Returns all releases if fewer are available, and an
    /// empty list without kubectl.
    pub async fn spread_releases(server: &Server, count: usize) -> Vec<Kubectl> {
        let named = std::env::var("KUBECTLS").unwrap_or_default();
        let mut programs: Vec<PathBuf> =
            named.split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect();
        if programs.is_empty() {
            programs = other_kubectls();
        }
        if programs.len() > count {
            let newest = programs.len() - 1;
            programs = (0..count).map(|n| programs[n * newest / (count - 1)].clone()).collect();
        }
        if programs.is_empty() {
            return Kubectl::find(server).await.into_iter().collect();
        }
        programs.into_iter().map(|program| Kubectl::for_server(program, server)).collect()
    }

    /// Returns the path of the program, for messages of failed tests.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Returns the words that start a command in a shell.
    pub fn line(&self, arguments: &str) -> String {
        format!("{} {arguments}", self.program.display())
    }

    /// Returns a command that is not started yet.
    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words(arguments));
        self.prepared(command)
    }

    /// Prepares a program that starts kubectl, with the same environment and kubeconfig.
    pub fn prepared(&self, mut command: Command) -> Command {
        command.env("KUBECONFIG", &self.kubeconfig).env("HOME", self.home.path());
        command
            .env("KUBECACHEDIR", self.home.path().join("cache"))
            .env_remove("KUBE_EDITOR")
            .kill_on_drop(true);
        command
    }

    /// Runs a command with the given standard input.
    pub async fn run(&self, arguments: &str, stdin: &str) -> Ran {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command, stdin).await.unwrap_or_else(|| panic!("kubectl {arguments} does not end"))
    }

    /// Returns the standard output of a successful command.
    pub async fn ok(&self, arguments: &str) -> String {
        self.ok_with(arguments, "").await
    }

    /// Like [`Kubectl::ok`], for a command that reads standard input.
    pub async fn ok_with(&self, arguments: &str, stdin: &str) -> String {
        let ran = self.run(arguments, stdin).await;
        assert_eq!(ran.code, Some(0), "kubectl {arguments}: {}{}", ran.out, ran.err);
        ran.out
    }

    /// Runs commands and compares their output exactly, whether they succeed or not.
    pub async fn says(&self, cases: &[(&str, &str)]) {
        for (arguments, expected) in cases {
            let ran = self.run(arguments, "").await;
            let said = format!("{}{}", ran.out, ran.err);
            assert_eq!(said.trim_end(), *expected, "kubectl {arguments} ended with {:?}", ran.code);
        }
    }
}

/// Returns the programs `kubectl.<major>.<minor>` next to the installed kubectl, by release.
fn other_kubectls() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed =
        std::env::split_paths(&path).map(|folder| folder.join("kubectl")).find(|file| file.exists());
    let folder =
        installed.and_then(|file| file.canonicalize().ok()).and_then(|file| Some(file.parent()?.to_owned()));
    let files = folder.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let release = |file: &Path| -> Option<(u32, u32)> {
        let (major, minor) = file.file_name()?.to_str()?.strip_prefix("kubectl.")?.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let mut found: Vec<_> = files.filter_map(|file| Some((release(&file.path())?, file.path()))).collect();
    found.sort();
    found.into_iter().map(|(_, file)| file).collect()
}

/// Runs a command with piped input and output; `None` if it does not end.
pub async fn finish(mut command: Command, stdin: &str) -> Option<Ran> {
    let mut child = command.spawn().expect("kubectl runs");
    let mut input = child.stdin.take().expect("the input is a pipe");
    let stdin = stdin.to_owned();
    let feed = tokio::spawn(async move {
        // A command that does not read its input closes the pipe.
        let _ = input.write_all(stdin.as_bytes()).await;
    });
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output())
        .await
        .ok()?
        .expect("kubectl can be waited for");
    let _ = feed.await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("kubectl prints text");
    Some(Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) })
}

/// Splits a line at spaces outside single quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, part) in line.split('\'').enumerate() {
        if i % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// Returns the cells of each line, joined by single spaces; ages become `*`.
fn cells(text: &str) -> Vec<String> {
    let is_age = |cell: &str| {
        cell.len() > 1
            && cell.starts_with(|c: char| c.is_ascii_digit())
            && cell.ends_with(['s', 'm', 'h', 'd'])
            && cell.chars().all(|c| c.is_ascii_digit() || "smhd".contains(c))
    };
    let line = |line: &str| {
        let cells = line.split_whitespace().map(|cell| if is_age(cell) { "*" } else { cell });
        cells.collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).filter(|line| !line.is_empty()).collect()
}

/// Objects of many kinds, one of each kind.
const MANY: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {node-role.kubernetes.io/control-plane: ""}}
---
apiVersion: v1
kind: Pod
metadata: {name: busy, labels: {app: busy}}
spec: {nodeName: node-1, containers: [{name: c, image: i}, {name: d, image: j}]}
---
apiVersion: v1
kind: Pod
metadata: {name: new}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {a: b, c: d}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {password: x}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "web:1"}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: db, image: "db:1"}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: agent, image: "agent:1"}]}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: door}
spec:
  rules:
  - host: a.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: example.com/disk
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: lead}
spec: {holderIdentity: me, leaseDurationSeconds: 15}
"#;
