//! Scenarios of migrations from updates, and from client-side apply, to server-side apply.

use super::scenarios;

scenarios! {
    the_first_apply_shares_equal_fields_with_the_creator: r#"
kubectl-create creates $core/configmaps/a
  {"data":{"a":"1"}}
= 201

one applies $core/configmaps/a
  {"data":{"a":"1","b":"2"}}
= 200
one Apply v1: .data.a .data.b
kubectl-create Update v1: .data .data.a
"#;

    fields_equal_to_the_last_applied_configuration_do_not_conflict: r#"
kubectl-client-side-apply creates $core/configmaps/a
  {"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"},\"data\":{\"a\":\"1\",\"b\":\"1\"}}"}},"data":{"a":"1","b":"1"}}
= 201

# Another manager would conflict.
other applies $core/configmaps/a
  {"data":{"a":"2"}}
= 409 same
! Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.a

kubectl applies $core/configmaps/a
  {"data":{"a":"2","b":"1"}}
= 200
? data.a "2"
? metadata.annotations {"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"data\":{\"a\":\"2\",\"b\":\"1\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}\n"}
kubectl Apply v1: .data.a .data.b
kubectl-client-side-apply Update v1: .data .data.b .metadata.annotations .metadata.annotations.kubectl.kubernetes.io/last-applied-configuration
"#;

    fields_changed_since_the_last_apply_conflict: r#"
kubectl-client-side-apply creates $core/configmaps/a
  {"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"},\"data\":{\"a\":\"1\",\"b\":\"1\"}}"}},"data":{"a":"1","b":"1"}}
= 201

editor merges $core/configmaps/a
  {"data":{"b":"2"}}
= 200

kubectl applies $core/configmaps/a
  {"data":{"a":"9","b":"9"}}
= 409 same
! Apply failed with 1 conflict: conflict with "editor" using v1: .data.b
"#;

    an_annotation_of_another_version_is_ignored: r#"
kubectl-client-side-apply creates $core/configmaps/a
  {"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"v0\",\"kind\":\"ConfigMap\",\"data\":{\"a\":\"1\"}}"}},"data":{"a":"1"}}
= 201

kubectl applies $core/configmaps/a
  {"data":{"a":"2"}}
= 409 same
! Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.a
"#;

    an_applier_can_change_the_version_of_its_configuration: r#"
one applies $autoscaling/horizontalpodautoscalers/h
  {"spec":{"minReplicas":2,"maxReplicas":3,"scaleTargetRef":{"kind":"ReplicationController","name":"d"},"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}]}}
= 201
one Apply autoscaling/v2: .spec.maxReplicas .spec.metrics .spec.minReplicas .spec.scaleTargetRef.kind .spec.scaleTargetRef.name

# The same manager in another version: one entry, and omitted fields are removed.
one applies /apis/autoscaling/v1/namespaces/$ns/horizontalpodautoscalers/h
  {"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"ReplicationController","name":"d"},"targetCPUUtilizationPercentage":50}}
= 200
? spec.maxReplicas 3
? spec.minReplicas 1
one Apply autoscaling/v1: .spec.maxReplicas .spec.scaleTargetRef .spec.targetCPUUtilizationPercentage
"#;

    managers_of_two_versions_conflict_over_one_value: r#"
one applies $autoscaling/horizontalpodautoscalers/h
  {"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"ReplicationController","name":"d"}}}
= 201

two applies /apis/autoscaling/v1/namespaces/$ns/horizontalpodautoscalers/h
  {"spec":{"maxReplicas":4}}
= 409 same
! Apply failed with 1 conflict: conflict with "one": .spec.maxReplicas
"#;
}
