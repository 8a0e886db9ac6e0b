//! Tests of the status: from the responses of a server to the report.

use std::time::{Duration, Instant};

use serde_json::json;

use super::observation::Observation;
use super::page::MetricsPage;
use super::*;

const PAGE: &str = "\
apiserver_request_total{code=\"200\",verb=\"GET\"} TOTAL
apiserver_current_inflight_requests{request_kind=\"readOnly\"} 3
apiserver_longrunning_requests{verb=\"WATCH\",resource=\"pods\"} 4
apiserver_longrunning_requests{verb=\"CONNECT\",resource=\"pods\"} 9
apiserver_storage_objects{resource=\"pods\"} 2
apiserver_storage_objects{resource=\"deployments.apps\"} 5
apiserver_storage_objects{resource=\"jobs.batch\"} 0
apiserver_store_revision 70
apiserver_store_synced_revision 69
apiserver_store_oldest_revision 50
apiserver_store_keys 7
apiserver_store_versions 9
apiserver_store_segments 1
apiserver_store_record_bytes 4096
apiserver_store_live_bytes 1024
apiserver_store_retained_bytes 256
apiserver_store_dead_bytes 3072
apiserver_store_last_backup_timestamp_seconds 1899992800
apiserver_store_commits_total 10
apiserver_store_lost_revisions LOST
apiserver_certificate_expiration_timestamp_seconds{certificate=\"serving\"} 1900864000
apiserver_certificate_expiration_timestamp_seconds{certificate=\"admin\"} 1900000100
apiserver_request_memory_bytes 2048
process_start_time_seconds 1899999000.5
process_resident_memory_bytes 1048576
process_cpu_seconds_total TOTAL
";

fn observation(total: u32, lost: u32, at: Instant) -> Observation {
    let page = PAGE.replace("TOTAL", &total.to_string()).replace("LOST", &lost.to_string());
    Observation {
        version: json!({"gitVersion": "v1.36.0", "gitCommit": "abc"}),
        is_ready: lost == 0,
        checks: "[+]ping ok\n[-]store failed: reason withheld\nreadyz check failed\n".to_owned(),
        page: MetricsPage::read(&page),
        now_s: 1_900_000_000,
        at,
    }
}

#[test]
fn the_status_report_has_the_newest_numbers_and_rates_between_two_observations() {
    let begin = Instant::now();
    let last = observation(100, 0, begin);
    let now = observation(123, 0, begin + Duration::from_secs(10));
    let status = Status::between("https://a:1", &last, &now);
    let requests =
        RequestStatus { per_second: 2.0, writes_per_second: 0.0, total: 123, in_flight: 2, watches: 4 };
    assert_eq!(status.requests, requests);
    assert_eq!((status.uptime_seconds, status.memory.processors), (Some(1_000), Some(2.3)));
    let store = &status.store;
    assert_eq!((store.live_bytes, store.retained_bytes, store.dead_bytes), (768, 256, 3072));
    assert_eq!(store.seconds_since_backup, Some(7_200));
    let objects: Vec<_> = status.objects.iter().map(|object| (&*object.resource, object.count)).collect();
    assert_eq!(objects, [("deployments.apps", 5), ("pods", 2)]);
    let certificates: Vec<_> =
        status.certificates.iter().map(|certificate| (&*certificate.name, certificate.days_left)).collect();
    assert_eq!(certificates, [("admin", 0), ("serving", 10)]);
    let restarted = Status::between("https://a:1", &now, &last);
    assert_eq!(restarted.requests.per_second, 0.0);
}

#[test]
fn the_status_text_names_problems() {
    let begin = Instant::now();
    let text = |lost: u32| {
        let (last, now) = (observation(1, lost, begin), observation(4, lost, begin + Duration::from_secs(1)));
        let mut out = Vec::new();
        text::write(&Status::between("https://a:1", &last, &now), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let want = "\
server        https://a:1  v1.36.0
health        ready
up            16m 40s, since 2030-03-17T17:30:00Z
requests      0.0/s, 0.0 writes/s, 2 in flight
watches       4
memory        1.0 MiB, 2.0 KiB of it for requests, 300 % of one processor
revision      70, on disk up to 69
compaction    removed the history before revision 50; 2 older states of objects kept
store         4.0 KiB in 1 segment: 768 B live, 256 B retained, 3.0 KiB dead
backup        2h 0m ago, at 2030-03-17T15:46:40Z
damage        none
certificates  admin                   2030-03-17T17:48:20Z  EXPIRES IN 0 DAYS
              serving                 2030-03-27T17:46:40Z  EXPIRES IN 10 DAYS

OBJECTS  RESOURCE
      5  deployments.apps
      2  pods
      7  (total)
";
    assert_eq!(text(0), want);
    let damaged = text(3);
    assert!(damaged.contains("NOT READY: store\n"), "{damaged}");
    assert!(damaged.contains("DAMAGED: 3 lost revisions; "), "{damaged}");
}
