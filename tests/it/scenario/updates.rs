//! Scenarios of updates: a writer owns the fields that it changes.

use super::scenarios;

scenarios! {
    a_creator_owns_everything_it_sets: r#"
kubectl-create creates $core/configmaps/a
  {"metadata":{"labels":{"app":"x"},"annotations":{"note":"n"}},"data":{"a":"1","b":"2"}}
= 201
kubectl-create Update v1: .data .data.a .data.b .metadata.annotations .metadata.annotations.note .metadata.labels .metadata.labels.app
"#;

    an_update_owns_changed_fields_and_releases_deleted_ones: r#"
one creates $core/configmaps/a
  {"data":{"a":"1","b":"2","c":"3"}}
= 201

two puts $core/configmaps/a
  {"data":{"a":"1","b":"9","d":"4"}}
= 200
one Update v1: .data .data.a
two Update v1: .data.b .data.d
"#;

    a_no_op_update_is_not_stored: r#"
one creates $core/configmaps/a
  {"data":{"a":"1"}}
= 201

two puts $core/configmaps/a
  {"data":{"a":"1"}}
= 200 same
one Update v1: .data .data.a

two merges $core/configmaps/a
  {"data":{"a":"1"}}
= 200 same
"#;

    the_first_update_of_a_claim_stores_the_status_that_decoding_adds: r#"
one creates $core/persistentvolumeclaims/a
  {"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}
= 201

one merges $core/persistentvolumeclaims/a/status
  {"status":{}}
= 200

one merges $core/persistentvolumeclaims/a/status
  {"status":{}}
= 200 same
"#;

    a_manager_without_fields_loses_its_entry: r#"
one creates $core/configmaps/a
  {"data":{"a":"1"}}
= 201

two merges $core/configmaps/a
  {"data":{"b":"1"}}
= 200

three merges $core/configmaps/a
  {"data":{"b":"2"}}
= 200
one Update v1: .data .data.a
three Update v1: .data.b
"#;

    every_patch_type_except_apply_is_an_update: r#"
one creates $core/configmaps/a
  {"data":{"a":"1"}}
= 201

json patches $core/configmaps/a
  [{"op":"add","path":"/data/j","value":"1"}]
= 200

merge merges $core/configmaps/a
  {"data":{"m":"1"}}
= 200

strategic strategic $core/configmaps/a
  {"data":{"s":"1"}}
= 200
json Update v1: .data.j
merge Update v1: .data.m
one Update v1: .data .data.a
strategic Update v1: .data.s
"#;

    containers_ports_and_variables_of_a_pod_are_owned_one_by_one: r#"
kubelet-test creates $core/pods/p
  {"spec":{"containers":[{"name":"web","image":"nginx","ports":[{"containerPort":80}],"env":[{"name":"A","value":"1"}],"command":["a","b"]}],"nodeSelector":{"disk":"ssd"},"tolerations":[{"key":"k","operator":"Exists"}]}}
= 201
kubelet-test Update v1: .spec.containers[name="web"] .spec.containers[name="web"].command .spec.containers[name="web"].env .spec.containers[name="web"].env[name="A"] .spec.containers[name="web"].env[name="A"].name .spec.containers[name="web"].env[name="A"].value .spec.containers[name="web"].image .spec.containers[name="web"].imagePullPolicy .spec.containers[name="web"].name .spec.containers[name="web"].ports .spec.containers[name="web"].ports[containerPort=80,protocol="TCP"] .spec.containers[name="web"].ports[containerPort=80,protocol="TCP"].containerPort .spec.containers[name="web"].ports[containerPort=80,protocol="TCP"].protocol .spec.containers[name="web"].resources .spec.containers[name="web"].terminationMessagePath .spec.containers[name="web"].terminationMessagePolicy .spec.dnsPolicy .spec.enableServiceLinks .spec.nodeSelector .spec.restartPolicy .spec.schedulerName .spec.securityContext .spec.terminationGracePeriodSeconds .spec.tolerations
"#;

    string_data_is_owned_as_stored_data: r#"
one creates $core/secrets/s
  {"stringData":{"a":"1"}}
= 201
one Update v1: .data .data.a .type

two merges $core/secrets/s
  {"stringData":{"b":"2"}}
= 200
one Update v1: .data .data.a .type
two Update v1: .data.b
"#;

    a_dry_run_returns_managed_fields_and_stores_nothing: r#"
one creates $core/configmaps/a
  {"data":{"a":"1"}}
= 201

two merges $core/configmaps/a?dryRun=All
  {"data":{"a":"2"}}
= 200 same
one Update v1: .data .data.a
"#;

    finalizers_are_owned_one_by_one: r#"
one creates $core/configmaps/a
  {"metadata":{"finalizers":["x.io/one"]}}
= 201
one Update v1: .metadata.finalizers .metadata.finalizers[="x.io/one"]

two patches $core/configmaps/a
  [{"op":"add","path":"/metadata/finalizers/-","value":"x.io/two"}]
= 200
one Update v1: .metadata.finalizers .metadata.finalizers[="x.io/one"]
two Update v1: .metadata.finalizers[="x.io/two"]

one merges $core/configmaps/a
  {"metadata":{"finalizers":["x.io/two"]}}
= 200
? metadata.finalizers ["x.io/two"]
one Update v1: .metadata.finalizers
two Update v1: .metadata.finalizers[="x.io/two"]
"#;

    owner_references_are_owned_by_uid: r#"
one creates $core/configmaps/a
  {"metadata":{"ownerReferences":[{"apiVersion":"example.com/v1","kind":"Thing","name":"n","uid":"u1"}]}}
= 201
one Update v1: .metadata.ownerReferences .metadata.ownerReferences[uid="u1"]
"#;

    each_version_of_a_kind_has_its_own_entry: r#"
one creates $autoscaling/horizontalpodautoscalers/h
  {"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"ReplicationController","name":"d"},"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}]}}
= 201
one Update autoscaling/v2: .spec.maxReplicas .spec.metrics .spec.minReplicas .spec.scaleTargetRef.kind .spec.scaleTargetRef.name

two merges /apis/autoscaling/v1/namespaces/$ns/horizontalpodautoscalers/h
  {"spec":{"targetCPUUtilizationPercentage":60}}
= 200
one Update autoscaling/v2: .spec.maxReplicas .spec.minReplicas .spec.scaleTargetRef.kind .spec.scaleTargetRef.name
two Update autoscaling/v1: .spec.targetCPUUtilizationPercentage
"#;
}
