//! Tests of the tables of built-in kinds (docs/api/encodings.md#table-columns), on the real columns of the
//! schema.

use super::*;
use crate::schema::builtin;
use values::json::{self, Value};
use values::naming::{CLUSTER, KUBERNETES};

const NOW: &str = "2026-01-10T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// Returns the resource whose objects have this kind, in the stored version.
fn resource(kind: &str, naming: &'static Naming) -> &'static ResourceTable {
    builtin::groups(naming)
        .iter()
        .flat_map(|group| group.versions.iter().map(move |version| (group, version)))
        .flat_map(|(group, version)| version.resources.iter().map(move |it| (group, version, it)))
        .find(|(group, version, resource)| {
            let storage = resource.storage.as_ref();
            resource.kind == kind
                && storage.is_some_and(|it| (&it.group, &it.version) == (&group.stem, &version.version))
        })
        .unwrap_or_else(|| panic!("no {kind}"))
        .2
}

/// Returns the cells of one object as JSON, without the outer brackets. In the input and in the result, `'`
/// is written instead of `"`.
pub(super) fn cells_in(naming: &'static Naming, kind: &str, object: &str) -> String {
    let format = TableFormat::for_resource(resource(kind, naming), naming).unwrap();
    let mut writer = format.writer(MetaVersion::V1, naming, IncludeObject::None, now());
    let stored = naming.fill(object).replace('\'', "\"");
    let mut out = Vec::new();
    writer.row(stored.as_bytes(), b"", &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let end = text.find("],\"conditions\":").or_else(|| text.find("],\"object\":")).unwrap();
    let escapes = [("\"", "'"), ("\\u003c", "<"), ("\\u003e", ">"), ("\\u0026", "&")];
    escapes
        .into_iter()
        .fold(text["{\"cells\":[".len()..end].to_owned(), |cells, (escape, sign)| cells.replace(escape, sign))
}

fn check(kind: &str, cases: &[(&str, &str)]) {
    for (object, want) in cases {
        assert_eq!(cells_in(&KUBERNETES, kind, object), *want, "{kind} {object}");
    }
}

const META: &str = "'metadata':{'name':'n','creationTimestamp':'2026-01-10T11:00:00Z'}";

/// Checks the cells after the name for the object `{'metadata':…,<rest>}`.
fn check_rest(kind: &str, cases: &[(&str, &str)]) {
    for (rest, want) in cases {
        let object = format!("{{{META}{}{rest}}}", if rest.is_empty() { "" } else { "," });
        assert_eq!(cells_in(&KUBERNETES, kind, &object), format!("'n',{want}"), "{kind} {object}");
    }
}

#[test]
fn every_table_of_the_schema_has_cells_in_both_naming_profiles() {
    for naming in [&CLUSTER, &KUBERNETES] {
        let mut columns = 0;
        for group in builtin::groups(naming) {
            for resource in group.versions.iter().flat_map(|version| version.resources) {
                let format = TableFormat::for_resource(resource, naming)
                    .unwrap_or_else(|error| panic!("{} of {}: {error}", resource.kind, group.stem));
                columns += format.columns.len();
                for column in resource.columns.iter().filter(|column| !column.name.is_empty()) {
                    assert!(
                        !describe::description(&column.name).is_empty(),
                        "no description of {}",
                        column.name
                    );
                }
            }
        }
        assert!(columns > 200, "{columns} columns");
        assert!(!builtin::columns(builtin::SCALE).is_empty());
        TableFormat::for_columns(builtin::columns(builtin::SCALE), naming).unwrap();
    }
}

#[test]
fn every_column_of_the_reference_data_has_an_evaluator() {
    let Some(facts) = testkit::reference("facts/columns.json") else { return };
    let facts = json::parse(&std::fs::read(facts).unwrap()).unwrap();
    let mut columns = 0;
    for kind in facts.get("kinds").and_then(Value::as_array).unwrap() {
        for column in kind.get("columns").and_then(Value::as_array).unwrap() {
            let (name, text) = (column.str_at(&["name"]), column.str_at(&["cell"]));
            let cell = cells::parse(text, &KUBERNETES)
                .unwrap_or_else(|error| panic!("{} {name}: {error}", kind.str_at(&["kind"])));
            // A word that is neither a function nor a member of the kind would be parsed as a path without a
            // value.
            if let (Cell::Path(path), "integer" | "boolean" | "string") = (&cell, column.str_at(&["type"])) {
                assert!(!path.is_empty(), "{text}");
            }
            assert!(!describe::description(name).is_empty(), "no description of {name}");
            columns += 1;
        }
    }
    assert!(columns > 340, "{columns}");
    for helper in facts.get("helpers").and_then(Value::as_array).unwrap() {
        let name = helper.str_at(&["name"]);
        // Some helpers are not functions, and some functions have another name in cells.
        let known = match name {
            "a|b" | "custom resources" | "server side" => continue,
            "readyContainers/totalContainers" => "podReady",
            "quotaList" => "quotaRequests",
            name => name,
        };
        assert!(parse::find(known).is_some(), "helper {name}");
    }
}

#[test]
fn services_show_their_addresses() {
    let ports = "'ports':[{'port':80,'protocol':'TCP'},{'port':443,'nodePort':30443,'protocol':'TCP'}],'selector':{'b':'2','a':'1'}";
    check_rest(
        "Service",
        &[
            (
                &format!("'spec':{{'type':'ClusterIP','clusterIPs':['10.0.0.1'],{ports}}}"),
                "'ClusterIP','10.0.0.1','<none>','80/TCP,443:30443/TCP','60m','a=1,b=2'",
            ),
            (
                "'spec':{'type':'ClusterIP','clusterIPs':['None']}",
                "'ClusterIP','None','<none>','<none>','60m','<none>'",
            ),
            (
                "'spec':{'type':'NodePort','clusterIPs':['10.0.0.1'],'externalIPs':['1.1.1.1','2.2.2.2']}",
                "'NodePort','10.0.0.1','1.1.1.1,2.2.2.2','<none>','60m','<none>'",
            ),
            ("'spec':{'type':'LoadBalancer'}", "'LoadBalancer','<none>','<pending>','<none>','60m','<none>'"),
            (
                "'spec':{'type':'LoadBalancer','externalIPs':['0.0.0.9']},'status':{'loadBalancer':{'ingress':[{'ip':'9.9.9.9'},{'hostname':'lb.example'},{'ip':'9.9.9.9'},{'ip':'1.1.1.1'}]}}",
                "'LoadBalancer','<none>','1.1.1.1,9.9.9.9,lb.example,0.0.0.9','<none>','60m','<none>'",
            ),
            (
                "'spec':{'type':'ExternalName','externalName':'example.org'}",
                "'ExternalName','<none>','example.org','<none>','60m','<none>'",
            ),
        ],
    );
}

#[test]
fn endpoints_and_ingresses_show_the_first_three() {
    let three = "'addresses':[{'ip':'10.0.0.1'},{'ip':'10.0.0.2'}],'ports':[{'port':80},{'port':81}]";
    check_rest(
        "Endpoints",
        &[
            ("", "'<none>','60m'"),
            ("'subsets':[{'addresses':[{'ip':'10.0.0.1'}]}]", "'10.0.0.1','60m'"),
            (&format!("'subsets':[{{{three}}}]"), "'10.0.0.1:80,10.0.0.2:80,10.0.0.1:81 + 1 more...','60m'"),
            ("'subsets':[{'addresses':[{'ip':'fd00::1'}],'ports':[{'port':80}]}]", "'[fd00::1]:80','60m'"),
        ],
    );
    check_rest(
        "EndpointSlice",
        &[
            ("'addressType':'IPv4'", "'IPv4','<unset>','<unset>','60m'"),
            (
                "'addressType':'IPv4','ports':[{'name':'a','port':80},{'name':'b'},{}],'endpoints':[{'addresses':['10.0.0.1','10.0.0.2']},{'addresses':['10.0.0.3','10.0.0.4']}]",
                "'IPv4','80,b,*','10.0.0.1,10.0.0.2,10.0.0.3 + 1 more...','60m'",
            ),
            ("'addressType':'IPv4','ports':[{'name':''}]", "'IPv4','<unset>','<unset>','60m'"),
        ],
    );
    check_rest(
        "Ingress",
        &[
            ("'spec':{}", "'<none>','*','','80','60m'"),
            (
                "'spec':{'ingressClassName':'x','tls':[{}],'rules':[{'host':'a'},{'host':'b'},{'host':'c'},{'host':'d'}]},'status':{'loadBalancer':{'ingress':[{'hostname':'h'},{'ip':'1.1.1.1'}]}}",
                "'x','a,b,c + 1 more...','1.1.1.1,h','80, 443','60m'",
            ),
            ("'spec':{'rules':[{'host':'a'},{},{'host':'b'}]}", "'<none>','a,b','','80','60m'"),
        ],
    );
    check_rest(
        "IngressClass",
        &[(
            "'spec':{'controller':'a/b','parameters':{'kind':'K','apiGroup':'g.io','name':'x'}}",
            "'a/b','K.g.io/x','60m'",
        )],
    );
    check_rest("NetworkPolicy", &[("'spec':{'podSelector':{}}", "'<none>','60m'")]);
    check_rest(
        "IPAddress",
        &[(
            "'spec':{'parentRef':{'group':'Apps.io','resource':'services','namespace':'ns','name':'s'}}",
            "'services.apps.io/ns/s','60m'",
        )],
    );
}

#[test]
fn workloads_show_progress() {
    let template =
        "'template':{'spec':{'containers':[{'name':'a','image':'img:1'},{'name':'b','image':'img:2'}]}}";
    let selector = "'selector':{'matchLabels':{'app':'x'}}";
    check_rest(
        "Deployment",
        &[
            (
                &format!(
                    "'spec':{{'replicas':3,{selector},{template}}},'status':{{'readyReplicas':2,'updatedReplicas':3,'availableReplicas':1}}"
                ),
                "'2/3',3,1,'60m','a,b','img:1,img:2','app=x'",
            ),
            ("'spec':{'replicas':0},'status':{}", "'0/0',0,0,'60m','','',''"),
        ],
    );
    check_rest(
        "ReplicaSet",
        &[(
            &format!("'spec':{{'replicas':3,{selector},{template}}},'status':{{'replicas':2}}"),
            "3,2,0,'60m','a,b','img:1,img:2','app=x'",
        )],
    );
    check_rest("StatefulSet", &[("'spec':{'replicas':2},'status':{'readyReplicas':1}", "'1/2','60m','',''")]);
    check_rest(
        "DaemonSet",
        &[(
            "'spec':{'template':{'spec':{'nodeSelector':{'disk':'ssd'}}}},'status':{'desiredNumberScheduled':3,'currentNumberScheduled':2,'numberReady':1}",
            "3,2,1,0,0,'disk=ssd','60m','','','<none>'",
        )],
    );
    check_rest("ControllerRevision", &[("'revision':4", "'<none>',4,'60m'"), ("", "'<none>',0,'60m'")]);
    check(
        "ControllerRevision",
        &[(
            "{'metadata':{'name':'n','creationTimestamp':'2026-01-10T11:00:00Z','ownerReferences':[{'apiVersion':'apps/v1','kind':'DaemonSet','name':'d','controller':true}]},'revision':1}",
            "'n','daemonset.apps/d',1,'60m'",
        )],
    );
    check_rest(
        "Job",
        &[
            (
                "'spec':{'completions':3},'status':{'succeeded':1,'startTime':'2026-01-10T11:59:00Z'}",
                "'Running','1/3','60s','60m','','','<none>'",
            ),
            ("'spec':{'parallelism':4}", "'Running','0/1 of 4','','60m','','','<none>'"),
            (
                "'spec':{'parallelism':1},'status':{'succeeded':1,'startTime':'2026-01-10T11:00:00Z','completionTime':'2026-01-10T11:05:30Z','conditions':[{'type':'SuccessCriteriaMet','status':'True'},{'type':'Complete','status':'True'}]}",
                "'Complete','1/1','5m30s','60m','','','<none>'",
            ),
            (
                "'spec':{'completions':1},'status':{'conditions':[{'type':'Suspended','status':'True'}]}",
                "'Suspended','0/1','','60m','','','<none>'",
            ),
        ],
    );
    check_rest(
        "CronJob",
        &[
            (
                "'spec':{'schedule':'* * * * *','suspend':false},'status':{'active':[{},{}],'lastScheduleTime':'2026-01-10T11:59:10Z'}",
                "'* * * * *','<none>','False',2,'50s','60m','','','<none>'",
            ),
            (
                "'spec':{'schedule':'x','timeZone':'Etc/UTC','suspend':true}",
                "'x','Etc/UTC','True',0,'<none>','60m','','','<none>'",
            ),
        ],
    );
    check_rest(
        "PodDisruptionBudget",
        &[
            ("'spec':{'minAvailable':2},'status':{'disruptionsAllowed':1}", "'2','N/A',1,'60m'"),
            ("'spec':{'maxUnavailable':'25%'}", "'N/A','25%',0,'60m'"),
        ],
    );
}

#[test]
fn autoscalers_show_targets() {
    let reference = "'scaleTargetRef':{'kind':'Deployment','name':'web'},'maxReplicas':5";
    let resource = |name: &str, target: &str| {
        format!("{{'type':'Resource','resource':{{'name':'{name}','target':{{{target}}}}}}}")
    };
    let cpu = resource("cpu", "'type':'Utilization','averageUtilization':80");
    let memory = resource("memory", "'type':'AverageValue','averageValue':'1Gi'");
    for (metrics, status, want) in [
        (String::new(), "", "<none>"),
        (cpu.clone(), "", "cpu: <unknown>/80%"),
        (
            cpu.clone(),
            "{'type':'Resource','resource':{'name':'cpu','current':{'averageUtilization':12,'averageValue':'5m'}}}",
            "cpu: 12%/80%",
        ),
        (format!("{cpu},{memory}"), "", "cpu: <unknown>/80%, memory: <unknown>/1Gi"),
        (format!("{cpu},{memory},{cpu}"), "", "cpu: <unknown>/80%, memory: <unknown>/1Gi + 1 more..."),
        (resource("cpu", "'type':'Utilization'"), "", "cpu: <unknown>/<auto>"),
        (
            "{'type':'Pods','pods':{'metric':{'name':'q'},'target':{'type':'AverageValue','averageValue':'10'}}}".to_owned(),
            "{'type':'Pods','pods':{'current':{'averageValue':'7'}}}",
            "7/10",
        ),
        (
            "{'type':'Object','object':{'target':{'type':'Value','value':'10'}}}".to_owned(),
            "{'type':'Object','object':{'current':{'value':'3'}}}",
            "3/10",
        ),
        (
            "{'type':'External','external':{'target':{'type':'AverageValue','averageValue':'4'}}}".to_owned(),
            "",
            "<unknown>/4 (avg)",
        ),
        (
            "{'type':'External','external':{'target':{'type':'AverageValue','averageValue':'4'}}}".to_owned(),
            "{'type':'External','external':{'current':{'value':'3'}}}",
            "<unknown>/4 (avg)",
        ),
        (
            "{'type':'External','external':{'target':{'type':'Value','value':'4'}}}".to_owned(),
            "{'type':'External','external':{'current':{'averageValue':'3'}}}",
            "<nil>/4",
        ),
        (
            memory.clone(),
            "{'type':'Resource','resource':{'name':'memory','current':{'averageUtilization':5}}}",
            "memory: <nil>/1Gi",
        ),
        ("{'type':'Odd'}".to_owned(), "", "<unknown type>"),
    ] {
        let rest = format!(
            "'spec':{{{reference},'metrics':[{metrics}]}},'status':{{'currentMetrics':[{status}],'currentReplicas':2}}"
        );
        check_rest(
            "HorizontalPodAutoscaler",
            &[(&rest, &format!("'Deployment/web','{want}','<unset>',5,2,'60m'"))],
        );
    }
}

#[test]
fn nodes_show_readiness_and_roles() {
    let meta = |labels: &str| {
        format!(
            "{{'metadata':{{'name':'n','creationTimestamp':'2026-01-08T10:00:00Z','labels':{{{labels}}}}}"
        )
    };
    let info = "'nodeInfo':{'kubeletVersion':'v1','osImage':'os','kernelVersion':'6.1','architecture':'amd64','containerRuntimeVersion':'c://1'}";
    check(
        "Node",
        &[
            (
                &format!(
                    "{},'spec':{{}},'status':{{'conditions':[{{'type':'Ready','status':'True'}}],'addresses':[{{'type':'Hostname','address':'h'}},{{'type':'InternalIP','address':'10.0.0.1'}},{{'type':'InternalIP','address':'10.0.0.2'}}],{info}}}}}",
                    meta(
                        "'node-role.{domain}/worker':'','node-role.{domain}/control-plane':'','{domain}/role':'worker'"
                    )
                ),
                "'n','Ready','control-plane,worker','2d2h','v1','10.0.0.1','<none>','os','6.1 (amd64)','c://1'",
            ),
            (
                &format!(
                    "{},'spec':{{'unschedulable':true}},'status':{{'conditions':[{{'type':'Ready','status':'Unknown'}}]}}}}",
                    meta("")
                ),
                "'n','NotReady,SchedulingDisabled','<none>','2d2h','','<none>','<none>','<unknown>','<unknown>','<unknown>'",
            ),
            (
                &format!("{},'status':{{}}}}", meta("")),
                "'n','Unknown','<none>','2d2h','','<none>','<none>','<unknown>','<unknown>','<unknown>'",
            ),
        ],
    );
    // In the other naming profile, the same object has the labels of that profile.
    let labels = format!("'node-role.{{domain}}/worker':'','node-role.{}':''", KUBERNETES.label("x"));
    let object = format!("{}}}", meta(&labels));
    assert!(cells_in(&CLUSTER, "Node", &object).starts_with("'n','Unknown','worker',"));
}

#[test]
fn volumes_show_claims_and_classes() {
    check_rest(
        "PersistentVolume",
        &[(
            "'spec':{'capacity':{'storage':'10Gi'},'accessModes':['ReadWriteMany','ReadWriteOnce'],'persistentVolumeReclaimPolicy':'Retain','claimRef':{'namespace':'ns','name':'c'},'storageClassName':'fast','volumeMode':'Block'},'status':{'phase':'Bound'}",
            "'10Gi','RWO,RWX','Retain','Bound','ns/c','fast','<unset>','','60m','Block'",
        )],
    );
    check_rest(
        "PersistentVolumeClaim",
        &[
            (
                "'spec':{'volumeName':'pv','storageClassName':'fast'},'status':{'phase':'Bound','capacity':{'storage':'1Gi'},'accessModes':['ReadWriteOnce']}",
                "'Bound','pv','1Gi','RWO','fast','<unset>','60m','<unset>'",
            ),
            (
                "'spec':{},'status':{'phase':'Pending','capacity':{'storage':'1Gi'},'accessModes':['ReadWriteOnce']}",
                "'Pending','','','','','<unset>','60m','<unset>'",
            ),
            (
                "'spec':{'volumeName':'pv','volumeAttributesClassName':''},'status':{'phase':'Pending'}",
                "'Pending','pv','0','','','','60m','<unset>'",
            ),
        ],
    );
    check(
        "PersistentVolumeClaim",
        &[
            (
                "{'metadata':{'name':'n','deletionTimestamp':'2026-01-10T11:00:00Z','annotations':{'volume.beta.{domain}/storage-class':'old'}},'spec':{},'status':{'phase':'Bound'}}",
                "'n','Terminating','','','','old','<unset>','<unknown>','<unset>'",
            ),
            (
                "{'metadata':{'name':'n','annotations':{'volume.beta.{domain}/storage-class':''}},'spec':{'storageClassName':'fast'},'status':{'phase':'Bound'}}",
                "'n','Bound','','','','','<unset>','<unknown>','<unset>'",
            ),
        ],
    );
    check(
        "StorageClass",
        &[
            (
                "{'metadata':{'name':'n','annotations':{'storageclass.{domain}/is-default-class':'true'}},'provisioner':'p'}",
                "'n (default)','p','Delete','Immediate',false,'<unknown>'",
            ),
            (
                "{'metadata':{'name':'n','annotations':{'storageclass.{domain}/is-default-class':'false'}},'provisioner':'p','reclaimPolicy':'Retain','volumeBindingMode':'WaitForFirstConsumer','allowVolumeExpansion':true}",
                "'n','p','Retain','WaitForFirstConsumer',true,'<unknown>'",
            ),
        ],
    );
    check_rest(
        "CSIDriver",
        &[
            ("'spec':{}", "true,false,false,'<unset>',false,'<none>','60m'"),
            (
                "'spec':{'attachRequired':false,'podInfoOnMount':true,'tokenRequests':[{'audience':'a'},{'audience':'b'}],'volumeLifecycleModes':['Persistent','Ephemeral']}",
                "false,true,false,'a,b',false,'Persistent,Ephemeral','60m'",
            ),
        ],
    );
    check_rest(
        "VolumeAttachment",
        &[(
            "'spec':{'attacher':'a','nodeName':'x','source':{'persistentVolumeName':'pv'}},'status':{'attached':true}",
            "'a','pv','x',true,'60m'",
        )],
    );
}

#[test]
fn events_show_when_and_how_often() {
    let meta = "{'metadata':{'name':'e'},'type':'Normal','reason':'R','message':' m\\n',";
    for (rest, want) in [
        (
            "'involvedObject':{'kind':'Pod','name':'p','fieldPath':'spec'},'source':{'component':'kubelet','host':'h'},'firstTimestamp':'2026-01-10T11:00:00Z','lastTimestamp':'2026-01-10T11:59:00Z','count':7,'eventTime':null",
            "'60s','Normal','R','pod/p','spec','kubelet, h','m','60m',7,'e'",
        ),
        (
            "'involvedObject':{'kind':'Pod'},'source':{},'firstTimestamp':null,'lastTimestamp':null,'eventTime':'2026-01-10T11:58:00.000001Z','reportingComponent':'c','reportingInstance':'i'",
            "'119s','Normal','R','pod','','c, i','m','119s',1,'e'",
        ),
        (
            "'involvedObject':{'kind':'Pod','name':'p'},'source':{'component':'s'},'eventTime':'2026-01-10T11:50:00.000000Z','series':{'count':4,'lastObservedTime':'2026-01-10T11:59:55.000000Z'}",
            "'5s','Normal','R','pod/p','','s','m','10m',4,'e'",
        ),
        (
            "'involvedObject':{},'source':{'component':'s'},'reportingComponent':'c','reportingInstance':'i','count':-2",
            "'<unknown>','Normal','R','','','s, i','m','<unknown>',-2,'e'",
        ),
        (
            "'involvedObject':{},'source':{'host':'h'}",
            "'<unknown>','Normal','R','','',', h','m','<unknown>',1,'e'",
        ),
        ("'involvedObject':{}", "'<unknown>','Normal','R','','','','m','<unknown>',1,'e'"),
    ] {
        assert_eq!(cells_in(&KUBERNETES, "Event", &format!("{meta}{rest}}}")), want, "{rest}");
    }
}

#[test]
fn each_remaining_kind_shows_its_own_columns() {
    check_rest(
        "ConfigMap",
        &[("'data':{'a':'1','b':'2'},'binaryData':{'c':'eA=='}", "3,'60m'"), ("", "0,'60m'")],
    );
    check_rest("Secret", &[("'type':'Opaque','data':{'a':'MQ=='}", "'Opaque',1,'60m'")]);
    check_rest("Namespace", &[("'status':{'phase':'Active'}", "'Active','60m'")]);
    check_rest("ServiceAccount", &[("", "'60m'")]);
    check_rest("Role", &[("", "'2026-01-10T11:00:00Z'")]);
    check_rest("LimitRange", &[("", "'2026-01-10T11:00:00Z'")]);
    check_rest(
        "ResourceQuota",
        &[(
            "'status':{'hard':{'pods':'10','limits.cpu':'2','cpu':'1'},'used':{'pods':'3','limits.cpu':'1'}}",
            "'cpu: 0/1, pods: 3/10','limits.cpu: 1/2','60m'",
        )],
    );
    check_rest(
        "RoleBinding",
        &[(
            "'roleRef':{'kind':'ClusterRole','name':'view'},'subjects':[{'kind':'User','name':'a'},{'kind':'Group','name':'g'},{'kind':'ServiceAccount','name':'s','namespace':'ns'},{'kind':'User','name':'b'}]",
            "'ClusterRole/view','60m','a, b','g','ns/s'",
        )],
    );
    check_rest("Lease", &[("'spec':{'holderIdentity':'me'}", "'me','60m'"), ("'spec':{}", "'','60m'")]);
    check_rest(
        "CertificateSigningRequest",
        &[
            (
                "'spec':{'signerName':'s','username':'u','expirationSeconds':3600}",
                "'60m','s','u','60m','Pending'",
            ),
            (
                "'spec':{'signerName':'s','username':'u'},'status':{'conditions':[{'type':'Approved'}],'certificate':'QQ=='}",
                "'60m','s','u','<none>','Approved,Issued'",
            ),
            (
                "'spec':{'username':'u'},'status':{'conditions':[{'type':'Approved'},{'type':'Failed'},{'type':'Denied'}]}",
                "'60m','<none>','u','<none>','Denied,Failed'",
            ),
        ],
    );
    check_rest(
        "PriorityClass",
        &[
            ("'value':-5,'globalDefault':true,'preemptionPolicy':'Never'", "-5,true,'60m','Never'"),
            ("", "0,false,'60m',''"),
        ],
    );
    check_rest(
        "FlowSchema",
        &[(
            "'spec':{'priorityLevelConfiguration':{'name':'p'},'matchingPrecedence':9000,'distinguisherMethod':{'type':'ByUser'}},'status':{'conditions':[{'type':'Dangling','status':'False'}]}",
            "'p',9000,'ByUser','60m','False'",
        )],
    );
    check_rest(
        "PriorityLevelConfiguration",
        &[
            (
                "'spec':{'type':'Limited','limited':{'nominalConcurrencyShares':0,'limitResponse':{'queuing':{'queues':64,'handSize':6,'queueLengthLimit':50}}}}",
                "'Limited',0,64,6,50,'60m'",
            ),
            ("'spec':{'type':'Exempt'}", "'Exempt','<none>','<none>','<none>','<none>','60m'"),
        ],
    );
    check_rest(
        "APIService",
        &[
            (
                "'spec':{},'status':{'conditions':[{'type':'Available','status':'True','reason':'Local'}]}",
                "'Local','True','60m'",
            ),
            (
                "'spec':{'service':{'namespace':'ns','name':'s'}},'status':{'conditions':[{'type':'Available','status':'False','reason':'Gone'}]}",
                "'ns/s','False (Gone)','60m'",
            ),
            ("'spec':{}", "'Local','Unknown','60m'"),
        ],
    );
    check_rest(
        "ValidatingAdmissionPolicyBinding",
        &[
            ("'spec':{'policyName':'p'}", "'p','<unset>','60m'"),
            ("'spec':{'policyName':'p','paramRef':{'name':'x'}}", "'p','*/x','60m'"),
            ("'spec':{'policyName':'p','paramRef':{'name':'x','namespace':'ns'}}", "'p','ns/x','60m'"),
            (
                "'spec':{'policyName':'p','paramRef':{'selector':{'matchLabels':{'c':'d','a':'b'},'matchExpressions':[{'key':'k','operator':'In','values':['x','y']}]}}}",
                "'p','&LabelSelector{MatchLabels:map[string]string{a: b,c: d,},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}','60m'",
            ),
            (
                "'spec':{'policyName':'p','paramRef':{'selector':{}}}",
                "'p','&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{},}','60m'",
            ),
        ],
    );
    check_rest(
        "ValidatingAdmissionPolicy",
        &[(
            "'spec':{'validations':[{},{}],'paramKind':{'apiVersion':'v1','kind':'ConfigMap'}}",
            "2,'v1/ConfigMap','60m'",
        )],
    );
    check_rest("ValidatingWebhookConfiguration", &[("'webhooks':[{},{},{}]", "3,'60m'")]);
    check_rest(
        "ResourceClaim",
        &[
            ("'spec':{}", "'pending','60m'"),
            ("'status':{'allocation':{}}", "'allocated','60m'"),
            ("'status':{'allocation':{},'reservedFor':[{}]}", "'allocated,reserved','60m'"),
        ],
    );
    check_rest("RuntimeClass", &[("'handler':'h'", "'h','60m'")]);
}

#[test]
fn objects_of_an_unexpected_shape_still_make_table_rows() {
    for group in builtin::groups(&KUBERNETES) {
        for resource in group.versions.iter().flat_map(|version| version.resources) {
            let format = TableFormat::for_resource(resource, &KUBERNETES).unwrap();
            let columns = format.columns.len();
            let mut writer = format.writer(MetaVersion::V1, &KUBERNETES, IncludeObject::None, now());
            for stored in ["{}", "null", "[]", "{\"metadata\":3,\"spec\":[],\"status\":\"x\",\"data\":[1]}"] {
                let mut out = Vec::new();
                writer.head(&ListMeta::default(), Headers::Omitted, &mut out);
                out.clear();
                writer.row(stored.as_bytes(), b"", &mut out).unwrap();
                let row = json::parse(&out).unwrap();
                assert_eq!(
                    row.get("cells").and_then(Value::as_array).unwrap().len(),
                    columns,
                    "{}",
                    resource.kind
                );
            }
        }
    }
}
