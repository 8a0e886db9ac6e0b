//! Tests of a pod's row: its status reason and the other cells (docs/api/encodings.md#table-columns).

use super::kinds_test::cells_in;
use values::naming::KUBERNETES;

/// Returns a pod with one container `c`; the arguments are further members of spec, status and metadata.
fn pod(spec: &str, status: &str, meta: &str) -> String {
    format!(
        "{{'kind':'Pod','apiVersion':'v1','metadata':{{'name':'p','creationTimestamp':'2026-01-10T11:55:00Z'{meta}}},\
         'spec':{{'containers':[{{'name':'c'}}]{spec}}},'status':{{{status}}}}}"
    )
}

#[test]
fn pods_show_their_status_reason() {
    let running =
        "{'name':'c','ready':true,'restartCount':0,'state':{'running':{'startedAt':'2026-01-10T11:56:00Z'}}}";
    let init = ",'initContainers':[{'name':'i1'},{'name':'i2'}]";
    let sidecar = ",'initContainers':[{'name':'s','restartPolicy':'Always'}]";
    for (what, object, want) in [
        ("just made", pod("", "'phase':'Pending'", ""), "'0/1','Pending','0','5m'"),
        (
            "gated",
            pod(
                "",
                "'phase':'Pending','conditions':[{'type':'PodScheduled','status':'False','reason':'SchedulingGated'}]",
                "",
            ),
            "'0/1','SchedulingGated','0','5m'",
        ),
        (
            "being made",
            pod(
                "",
                "'phase':'Pending','containerStatuses':[{'name':'c','ready':false,'restartCount':0,'state':{'waiting':{'reason':'ContainerCreating'}}}]",
                "",
            ),
            "'0/1','ContainerCreating','0','5m'",
        ),
        (
            "running",
            pod("", &format!("'phase':'Running','containerStatuses':[{running}]"), ""),
            "'1/1','Running','0','5m'",
        ),
        (
            "crashing",
            pod(
                "",
                "'phase':'Running','containerStatuses':[{'name':'c','ready':false,'restartCount':4,'state':{'waiting':{'reason':'CrashLoopBackOff'}},'lastState':{'terminated':{'exitCode':1,'reason':'Error','finishedAt':'2026-01-10T11:58:30Z'}}}]",
                "",
            ),
            "'0/1','CrashLoopBackOff','4 (90s ago)','5m'",
        ),
        (
            "killed by a signal",
            pod(
                "",
                "'phase':'Failed','containerStatuses':[{'name':'c','ready':false,'restartCount':0,'state':{'terminated':{'exitCode':137,'signal':9}}}]",
                "",
            ),
            "'0/1','Signal:9','0','5m'",
        ),
        (
            "ended without a reason",
            pod(
                "",
                "'phase':'Failed','containerStatuses':[{'name':'c','ready':false,'restartCount':0,'state':{'terminated':{'exitCode':3}}}]",
                "",
            ),
            "'0/1','ExitCode:3','0','5m'",
        ),
        (
            "completed",
            pod(
                "",
                "'phase':'Succeeded','containerStatuses':[{'name':'c','ready':false,'restartCount':0,'state':{'terminated':{'exitCode':0,'reason':'Completed'}}}]",
                "",
            ),
            "'0/1','Completed','0','5m'",
        ),
        (
            "one completed, one running and the pod ready",
            pod(
                "",
                &format!(
                    "'phase':'Running','conditions':[{{'type':'Ready','status':'True'}}],'containerStatuses':[{{'name':'a','ready':false,'restartCount':0,'state':{{'terminated':{{'exitCode':0,'reason':'Completed'}}}}}},{running}]"
                ),
                "",
            ),
            "'1/1','Running','0','5m'",
        ),
        (
            "one completed, one running and the pod not ready",
            pod(
                "",
                &format!(
                    "'phase':'Running','containerStatuses':[{{'name':'a','ready':false,'restartCount':0,'state':{{'terminated':{{'exitCode':0,'reason':'Completed'}}}}}},{running}]"
                ),
                "",
            ),
            "'1/1','NotReady','0','5m'",
        ),
        (
            "one completed, one failed",
            pod(
                "",
                "'phase':'Failed','containerStatuses':[{'name':'a','ready':false,'restartCount':0,'state':{'terminated':{'exitCode':0,'reason':'Completed'}}},{'name':'b','ready':false,'restartCount':0,'state':{'terminated':{'exitCode':1,'reason':'Error'}}}]",
                "",
            ),
            "'0/1','Error','0','5m'",
        ),
        ("evicted", pod("", "'phase':'Failed','reason':'Evicted'", ""), "'0/1','Evicted','0','5m'"),
        (
            "terminating",
            pod(
                "",
                &format!("'phase':'Running','containerStatuses':[{running}]"),
                ",'deletionTimestamp':'2026-01-10T12:00:10Z'",
            ),
            "'1/1','Terminating','0','5m'",
        ),
        (
            "finished and terminating",
            pod("", "'phase':'Succeeded'", ",'deletionTimestamp':'2026-01-10T12:00:10Z'"),
            "'0/1','Succeeded','0','5m'",
        ),
        (
            "on a lost node",
            pod("", "'phase':'Running','reason':'NodeLost'", ",'deletionTimestamp':'2026-01-10T12:00:10Z'"),
            "'0/1','Unknown','0','5m'",
        ),
        (
            "first init container running",
            pod(
                init,
                "'phase':'Pending','initContainerStatuses':[{'name':'i1','ready':false,'restartCount':0,'state':{'running':{}}},{'name':'i2','ready':false,'restartCount':0,'state':{'waiting':{'reason':'PodInitializing'}}}]",
                "",
            ),
            "'0/1','Init:0/2','0','5m'",
        ),
        (
            "second init container crashing",
            pod(
                init,
                "'phase':'Pending','initContainerStatuses':[{'name':'i1','ready':true,'restartCount':1,'state':{'terminated':{'exitCode':0}}},{'name':'i2','ready':false,'restartCount':2,'state':{'waiting':{'reason':'CrashLoopBackOff'}},'lastState':{'terminated':{'exitCode':1,'finishedAt':'2026-01-10T11:59:00Z'}}}]",
                "",
            ),
            "'0/1','Init:CrashLoopBackOff','3 (60s ago)','5m'",
        ),
        (
            "init container failed",
            pod(
                init,
                "'phase':'Failed','initContainerStatuses':[{'name':'i1','ready':false,'restartCount':0,'state':{'terminated':{'exitCode':7}}}]",
                "",
            ),
            "'0/1','Init:ExitCode:7','0','5m'",
        ),
        (
            "init containers done",
            pod(
                init,
                &format!(
                    "'phase':'Running','initContainerStatuses':[{{'name':'i1','ready':true,'restartCount':5,'state':{{'terminated':{{'exitCode':0,'reason':'Completed'}}}}}},{{'name':'i2','ready':true,'restartCount':0,'state':{{'terminated':{{'exitCode':0,'reason':'Completed'}}}}}}],'containerStatuses':[{running}]"
                ),
                "",
            ),
            "'1/1','Running','0','5m'",
        ),
        (
            "with a sidecar",
            pod(
                sidecar,
                &format!(
                    "'phase':'Running','initContainerStatuses':[{{'name':'s','ready':true,'started':true,'restartCount':1,'state':{{'running':{{}}}}}}],'containerStatuses':[{running}]"
                ),
                "",
            ),
            "'2/2','Running','1','5m'",
        ),
        (
            "waiting for the sidecar to start",
            pod(
                sidecar,
                "'phase':'Pending','initContainerStatuses':[{'name':'s','ready':false,'started':false,'restartCount':0,'state':{'running':{}}}]",
                "",
            ),
            "'0/2','Init:0/1','0','5m'",
        ),
    ] {
        let want = format!("'p',{want},'<none>','<none>','<none>','<none>'");
        assert_eq!(cells_in(&KUBERNETES, "Pod", &object), want, "{what}");
    }
    let wide = pod(
        ",'nodeName':'node-1','readinessGates':[{'conditionType':'a/x'},{'conditionType':'a/y'}]",
        "'phase':'Running','podIPs':[{'ip':'10.0.0.1'},{'ip':'fd00::1'}],'nominatedNodeName':'node-2','conditions':[{'type':'a/y','status':'True'}]",
        "",
    );
    assert_eq!(
        cells_in(&KUBERNETES, "Pod", &wide),
        "'p','0/1','Running','0','5m','10.0.0.1','node-1','node-2','1/2'"
    );
}
