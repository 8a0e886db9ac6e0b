//! Scenarios of appliers: ownership, sharing, conflicts, force, and release of fields.

use super::scenarios;

scenarios! {
    an_apply_creates_an_absent_object: r#"
kubectl applies $core/configmaps/a
  {"data":{"a":"1"}}
= 201
? data.a "1"
kubectl Apply v1: .data.a
"#;

    a_repeated_apply_changes_nothing: r#"
kubectl applies $core/configmaps/a
  {"metadata":{"labels":{"l":"1"}},"data":{"a":"1"}}
= 201

kubectl applies $core/configmaps/a
  {"metadata":{"labels":{"l":"1"}},"data":{"a":"1"}}
= 200 same
kubectl Apply v1: .data.a .metadata.labels.l
"#;

    fields_that_are_no_longer_applied_are_removed: r#"
kubectl applies $core/configmaps/a
  {"data":{"a":"1","b":"2"}}
= 201

kubectl applies $core/configmaps/a
  {"data":{"b":"2"}}
= 200
? data {"b":"2"}
kubectl Apply v1: .data.b
"#;

    fields_of_another_owner_are_not_removed: r#"
one applies $core/configmaps/a
  {"data":{"a":"1","b":"2"}}
= 201

two applies $core/configmaps/a
  {"data":{"a":"1"}}
= 200
two Apply v1 (no time): .data.a
one Apply v1: .data.a .data.b

one applies $core/configmaps/a
  {"data":{"b":"2"}}
= 200
? data {"a":"1","b":"2"}
two Apply v1 (no time): .data.a
one Apply v1: .data.b

two applies $core/configmaps/a
  {}
= 200
? data {"b":"2"}
one Apply v1: .data.b
"#;

    applying_another_value_of_an_owned_field_is_a_conflict: r#"
one applies $core/configmaps/a
  {"data":{"a":"1","b":"1"}}
= 201

two applies $core/configmaps/a
  {"data":{"a":"2"}}
= 409 same
! Apply failed with 1 conflict: conflict with "one": .data.a

two applies $core/configmaps/a
  {"data":{"a":"2","b":"2"}}
= 409 same
! Apply failed with 2 conflicts: conflicts with "one":
! - .data.a
! - .data.b
one Apply v1: .data.a .data.b
"#;

    a_conflict_with_an_updater_names_its_version: r#"
one creates $core/configmaps/a
  {"data":{"a":"1"}}
= 201

two applies $core/configmaps/a
  {"data":{"a":"2"}}
= 409 same
! Apply failed with 1 conflict: conflict with "one" using v1: .data.a
"#;

    a_forced_apply_takes_only_the_applied_fields: r#"
one applies $core/configmaps/a
  {"data":{"a":"1","b":"1"}}
= 201

two forces $core/configmaps/a
  {"data":{"a":"2"}}
= 200
? data {"a":"2","b":"1"}
one Apply v1: .data.b
two Apply v1: .data.a
"#;

    two_managers_that_apply_the_same_value_share_the_field: r#"
one applies $core/configmaps/a
  {"data":{"a":"1"}}
= 201

two applies $core/configmaps/a
  {"data":{"a":"1"}}
= 200
two Apply v1 (no time): .data.a
one Apply v1: .data.a

# Any later change by one of them conflicts with the other.
one applies $core/configmaps/a
  {"data":{"a":"2"}}
= 409 same
! Apply failed with 1 conflict: conflict with "two": .data.a
"#;

    a_shared_field_remains_when_one_owner_omits_it: r#"
one applies $core/configmaps/a
  {"data":{"a":"1"}}
= 201

two applies $core/configmaps/a
  {"data":{"a":"1"}}
= 200

one applies $core/configmaps/a
  {}
= 200
? data.a "1"
two Apply v1 (no time): .data.a
"#;

    an_update_takes_ownership_of_a_changed_field: r#"
one applies $core/configmaps/a
  {"data":{"a":"1","b":"1"}}
= 201

two merges $core/configmaps/a
  {"data":{"a":"2"}}
= 200
one Apply v1: .data.b
two Update v1: .data.a

one applies $core/configmaps/a
  {"data":{"a":"1","b":"1"}}
= 409 same
! Apply failed with 1 conflict: conflict with "two" using v1: .data.a

one applies $core/configmaps/a
  {"data":{"a":"2","b":"1"}}
= 200
one Apply v1: .data.a .data.b
two Update v1: .data.a
"#;

    an_apply_and_an_update_with_the_same_name_are_two_managers: r#"
one applies $core/configmaps/a
  {"data":{"a":"1"}}
= 201

one merges $core/configmaps/a
  {"data":{"b":"1"}}
= 200
one Apply v1: .data.a
one Update v1: .data.b

one applies $core/configmaps/a
  {"data":{"a":"1","b":"2"}}
= 409 same
! Apply failed with 1 conflict: conflict with "one" using v1: .data.b
"#;

    default_values_have_no_owner: r#"
kubectl applies $apps/deployments/d
  {"spec":{"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}
= 201
? spec.replicas 1
? spec.template.spec.restartPolicy "Always"
kubectl Apply apps/v1: .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].image .spec.template.spec.containers[name="c"].name

kubectl applies $apps/deployments/d
  {"spec":{"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}
= 200 same
"#;

    a_removed_field_gets_its_default_back: r#"
kubectl applies $apps/deployments/d
  {"spec":{"replicas":3,"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}
= 201
? spec.replicas 3

kubectl applies $apps/deployments/d
  {"spec":{"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}
= 200
? spec.replicas 1
kubectl Apply apps/v1: .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].image .spec.template.spec.containers[name="c"].name
"#;

    atomic_values_are_owned_as_a_whole: r#"
one applies $core/services/s
  {"spec":{"selector":{"a":"1"},"ports":[{"port":80}]}}
= 201
? spec.selector {"a":"1"}
one Apply v1: .spec.ports[port=80,protocol="TCP"] .spec.ports[port=80,protocol="TCP"].port .spec.selector

two applies $core/services/s
  {"spec":{"selector":{"b":"2"}}}
= 409 same
! Apply failed with 1 conflict: conflict with "one": .spec.selector

two forces $core/services/s
  {"spec":{"selector":{"b":"2"}}}
= 200
? spec.selector {"b":"2"}
one Apply v1: .spec.ports[port=80,protocol="TCP"] .spec.ports[port=80,protocol="TCP"].port
two Apply v1: .spec.selector
"#;

    an_empty_map_is_owned_as_a_field: r#"
one applies $core/configmaps/a
  {"data":{}}
= 201
one Apply v1: .data

one applies $core/configmaps/a
  {"data":{"a":"1"}}
= 200
one Apply v1: .data.a
"#;

    a_dry_run_of_an_apply_stores_nothing: r#"
one applies $core/configmaps/a
  {"data":{"a":"1"}}
= 201

two forces $core/configmaps/a?dryRun=All
  {"data":{"a":"2"}}
= 200 same
one Apply v1: .data.a
"#;

    invalid_apply_requests_are_refused: r#"
one applies $core/configmaps/a
  {"data":{"a":1}}
= 500
! failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data.a: expected string, got &value.valueUnstructured{Value:1}

one applies $core/configmaps/a
  {"dta":{"a":"1"}}
= 500
! failed to create typed patch object (/a; /v1, Kind=ConfigMap): .dta: field not declared in schema

one applies $core/configmaps/a
  {"kind":"Secret","data":{"a":"1"}}
= 400
! invalid object type: /v1, Kind=Secret

one applies $core/configmaps/a
  {"apiVersion":"a/b/c","data":{"a":"1"}}
= 400
! invalid object type: /, Kind=

one applies $core/configmaps/a
  {"binaryData":{"a":"!!"}}
= 500
! failed to convert new object (/a; /v1, Kind=ConfigMap) to proper version: unable to convert unstructured object to /v1, Kind=ConfigMap: error decoding from json: illegal base64 data at input byte 0

one applies $core/configmaps/a
  {"metadata":{"managedFields":[]},"data":{"a":"1"}}
= 400
! metadata.managedFields must be nil

one applies $core/configmaps/a
  {"metadata":{"name":"b"},"data":{"a":"1"}}
= 400
! the name of the object (b) does not match the name on the URL (a)

one applies $core/configmaps/a
  {"metadata":{"namespace":"other"},"data":{"a":"1"}}
= 400
! the namespace of the provided object does not match the namespace sent on the request
"#;

    an_apply_may_have_a_resource_version_as_precondition: r#"
one applies $core/configmaps/a
  {"data":{"a":"1"}}
= 201

one applies $core/configmaps/a
  {"metadata":{"resourceVersion":"1"},"data":{"a":"2"}}
= 409 same
"#;
}
