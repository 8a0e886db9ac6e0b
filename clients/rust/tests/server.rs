//! Tests of the test kit with a real server.

use std::time::{Duration, Instant};

use cluster_apiserver_testkit::{
    Fault, FaultEffect, RequestPattern, Settings, StartError, TestServer, WatchEffect,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};

fn server() -> TestServer {
    let program = Some(tests::server::binary().to_owned());
    TestServer::start_with(Settings { program, ..Settings::default() }).unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

#[tokio::test]
async fn a_server_serves_its_client_and_leaves_nothing_behind() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client().await.unwrap());
    maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    let directory = server.directory().to_owned();
    assert!(directory.exists());
    // The server queues its log lines.
    let deadline = Instant::now() + Duration::from_secs(120);
    while !server.log().contains("test features enabled") {
        assert!(Instant::now() < deadline, "{}", server.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let process = format!("/proc/{}", server.pid());
    drop(server);
    assert!(!directory.exists() && !std::path::Path::new(&process).exists());
}

#[tokio::test]
async fn the_test_client_gives_access_to_the_test_features_of_the_server() {
    let server = server();
    let client = server.client().await.unwrap();
    let features = server.features(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let creates = || RequestPattern { verbs: vec!["create".to_owned()], ..RequestPattern::default() };

    let mark = features.mark().await.unwrap();
    let fault = features.add_fault(&Fault::error(409).on(creates()).times(1)).await.unwrap();
    assert!(maps.create(&PostParams::default(), &config_map("a")).await.is_err());
    maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    features.remove_fault(fault).await.unwrap();
    let requests = features.requests_since(mark).await.unwrap();
    let codes: Vec<_> = requests.iter().filter(|request| request.verb == "create").map(|r| r.code).collect();
    assert_eq!(codes, [409, 201]);

    features.set_time("2031-02-03T04:05:06Z").await.unwrap();
    features.freeze(true).await.unwrap();
    assert_eq!(
        features.advance(Duration::from_secs(1)).await.unwrap().time.get(..16),
        Some("2031-02-03T04:05")
    );
    let clock = features.reset_clock().await.unwrap();
    assert_eq!((clock.frozen, &*clock.ahead), (false, "0s"));

    features.save("clean").await.unwrap();
    maps.create(&PostParams::default(), &config_map("b")).await.unwrap();
    assert!(features.restore("clean").await.unwrap().writes >= 1);
    assert!(maps.get_opt("b").await.unwrap().is_none());
    features.quiesce(Duration::from_millis(50), Duration::from_secs(10)).await.unwrap();
    let slow = Fault::new(FaultEffect::Delay).delayed(Duration::from_millis(1)).after(5);
    features.add_fault(&slow).await.unwrap();
    features.clear_faults().await.unwrap();
    assert_eq!(
        features
            .disturb_watches(&RequestPattern { names: vec!["x".to_owned()], ..creates() }, WatchEffect::Stall)
            .await
            .unwrap(),
        0
    );
}

#[tokio::test]
async fn a_start_that_fails_says_why() {
    let program = Some(tests::server::binary().to_owned());
    let wrong = Settings { program, flags: vec!["--no-such-flag".into()], ..Settings::default() };
    match TestServer::start_with(wrong) {
        Err(StartError::NotReady { log, .. }) => assert!(log.contains("no-such-flag"), "{log}"),
        other => panic!("{:?}", other.err()),
    }
    let absent = Settings { program: Some("/absent/cluster-apiserver".into()), ..Settings::default() };
    let error = TestServer::start_with(absent).err().unwrap().to_string();
    assert!(error.contains("/absent/cluster-apiserver") && error.contains("CLUSTER_APISERVER"), "{error}");
}
