//! Starts two servers with different configurations in one process, and checks that each server behaves by its
//! own configuration.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use super::identity::own_name;
use crate::state::debug::Debugging;
use crate::writes::write::server_fixture::TestServer;
use types::version::{Build, Releases, ServerVersion};
use values::naming::{CLUSTER, KUBERNETES, Naming};

/// A server, with the log level that its clients have set.
struct Configured {
    server: TestServer,
    level: Arc<AtomicI32>,
}

/// The settings in which the servers differ.
struct Settings {
    naming: &'static Naming,
    host: &'static str,
    version: ServerVersion,
    allows_privileged: bool,
}

fn start(settings: Settings) -> Configured {
    let level = Arc::new(AtomicI32::new(0));
    let set = level.clone();
    let set_level = Some(Arc::new(move |level| set.store(level, Ordering::Relaxed)) as _);
    let server = TestServer::configured(|server| {
        server.types.naming = settings.naming;
        server.types.allows_privileged = settings.allows_privileged;
        server.operations.host_name = settings.host.to_owned();
        server.operations.version = settings.version;
        server.operations.debugging = Debugging { set_level, profiles: None };
        server.access.edge.is_debugged = true;
    });
    Configured { server, level }
}

impl Configured {
    async fn code(&self, request: &str, body: &str) -> u16 {
        self.server.send(request, body).await.0
    }

    /// Returns the code of the response to a pod with a privileged container.
    async fn create_privileged_pod(&self) -> u16 {
        assert_eq!(self.code("POST /api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#).await, 201);
        let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[
            {"name":"c","image":"i","securityContext":{"privileged":true}}]}}"#;
        self.code("POST /api/v1/namespaces/n/pods", pod).await
    }
}

#[tokio::test]
async fn two_servers_in_one_process_do_not_share_their_configuration() {
    let one = start(Settings {
        naming: &KUBERNETES,
        host: "one",
        version: ServerVersion::default(),
        allows_privileged: false,
    });
    let other = start(Settings {
        naming: &CLUSTER,
        host: "other",
        version: ServerVersion {
            build: Build { commit: "abc", date: "2026-01-02T03:04:05Z" },
            reported: Some("v1.36.0-other".to_owned()),
            releases: Releases { emulated: 35, compatible: 34 },
        },
        allows_privileged: true,
    });

    // Compare the naming profiles.
    for (server, own, foreign) in [(&one, &KUBERNETES, &CLUSTER), (&other, &CLUSTER, &KUBERNETES)] {
        let get = |naming: &Naming| format!("GET /apis/{}", naming.group("rbac.authorization", true));
        assert_eq!(server.code(&get(own), "").await, 200);
        assert_eq!(server.code(&get(foreign), "").await, 404);
    }

    // Compare the versions.
    let shown = async |server: &Configured, member: &str| {
        let (_, _, version) = server.server.send("GET /version", "").await;
        version.str_at(&[member]).to_owned()
    };
    assert_eq!(shown(&other, "gitVersion").await, "v1.36.0-other");
    assert!(shown(&one, "gitVersion").await.starts_with("v1.36.0+cluster-apiserver."));
    assert_eq!([shown(&one, "gitCommit").await, shown(&other, "gitCommit").await], ["", "abc"]);
    assert_eq!([shown(&one, "emulationMinor").await, shown(&other, "emulationMinor").await], ["36", "35"]);
    let metrics = other.server.get("/metrics", "").await;
    assert!(metrics.contains("git_version=\"v1.36.0-other\"") && metrics.contains("emulation=\"1.35\""));

    // Compare the validation settings.
    assert_eq!([one.create_privileged_pod().await, other.create_privileged_pod().await], [422, 201]);

    // Compare the log levels.
    assert_eq!(other.code("PUT /debug/flags/v", "4").await, 200);
    assert_eq!([&one, &other].map(|server| server.level.load(Ordering::Relaxed)), [0, 4]);
    assert_eq!(one.code("PUT /debug/flags/v", "2").await, 200);
    assert_eq!([&one, &other].map(|server| server.level.load(Ordering::Relaxed)), [2, 4]);

    // Compare the names of the servers among the servers of a store.
    assert_ne!(own_name(&one.server), own_name(&other.server));
}
