//! Scenarios of ownership through subresources. A write of a status or scale makes the manager the owner of the fields
//! that the subresource contains, and of no other fields.

use super::scenarios;

scenarios! {
    the_status_is_owned_through_its_subresource: r#"
kubectl creates $core/pods/p
  {"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i","imagePullPolicy":"Always","terminationMessagePath":"/x","terminationMessagePolicy":"File"}],"restartPolicy":"Always","dnsPolicy":"Default"},"status":{"phase":"Running"}}
= 201
? status.phase "Pending"
kubectl Update v1: .metadata.labels .metadata.labels.a .spec.containers[name="c"] .spec.containers[name="c"].image .spec.containers[name="c"].imagePullPolicy .spec.containers[name="c"].name .spec.containers[name="c"].resources .spec.containers[name="c"].terminationMessagePath .spec.containers[name="c"].terminationMessagePolicy .spec.dnsPolicy .spec.enableServiceLinks .spec.restartPolicy .spec.schedulerName .spec.securityContext .spec.terminationGracePeriodSeconds

kubelet merges $core/pods/p/status
  {"spec":{"nodeName":"ignored"},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],"podIPs":[{"ip":"10.0.0.1"}],"podIP":"10.0.0.1"}}
= 200
? status.phase "Running"
? spec.nodeName none
kubectl Update v1: .metadata.labels .metadata.labels.a .spec.containers[name="c"] .spec.containers[name="c"].image .spec.containers[name="c"].imagePullPolicy .spec.containers[name="c"].name .spec.containers[name="c"].resources .spec.containers[name="c"].terminationMessagePath .spec.containers[name="c"].terminationMessagePolicy .spec.dnsPolicy .spec.enableServiceLinks .spec.restartPolicy .spec.schedulerName .spec.securityContext .spec.terminationGracePeriodSeconds
kubelet Update v1/status: .status.conditions .status.conditions[type="Ready"] .status.conditions[type="Ready"].lastProbeTime .status.conditions[type="Ready"].lastTransitionTime .status.conditions[type="Ready"].status .status.conditions[type="Ready"].type .status.phase .status.podIP .status.podIPs .status.podIPs[ip="10.0.0.1"] .status.podIPs[ip="10.0.0.1"].ip
"#;

    an_update_of_the_object_keeps_the_owners_of_the_status: r#"
kubectl applies $apps/deployments/d
  {"spec":{"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}
= 201

controller merges $apps/deployments/d/status
  {"status":{"replicas":1,"observedGeneration":1}}
= 200

# A configuration may contain the status; through this endpoint no manager owns it, and it is not written.
kubectl applies $apps/deployments/d
  {"spec":{"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}},"status":{"replicas":7}}
= 200 same
? status.replicas 1
kubectl Apply apps/v1: .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].image .spec.template.spec.containers[name="c"].name
controller Update apps/v1/status: .status.observedGeneration .status.replicas
"#;

    a_value_copied_by_a_patch_is_stored_in_the_form_of_its_new_field: r#"
kubectl applies $apps/deployments/d
  {"spec":{"replicas":3,"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}
= 201

controller patches $apps/deployments/d/status
  [{"op":"copy","from":"/spec","path":"/status"}]
= 200
? spec.replicas 3
? status {"replicas":3}
kubectl Apply apps/v1: .spec.replicas .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].image .spec.template.spec.containers[name="c"].name
controller Update apps/v1/status: .status.replicas
"#;

    a_status_can_be_applied: r#"
kubectl applies $apps/deployments/d
  {"spec":{"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}
= 201

one applies $apps/deployments/d/status
  {"status":{"replicas":1,"conditions":[{"type":"Available","status":"True"}]}}
= 200
? status.replicas 1
kubectl Apply apps/v1: .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].image .spec.template.spec.containers[name="c"].name
one Apply apps/v1/status: .status.conditions[type="Available"] .status.conditions[type="Available"].status .status.conditions[type="Available"].type .status.replicas

two applies $apps/deployments/d/status
  {"status":{"replicas":2,"conditions":[{"type":"Progressing","status":"True"}]}}
= 409 same
! Apply failed with 1 conflict: conflict with "one" with subresource "status": .status.replicas

two applies $apps/deployments/d/status
  {"status":{"conditions":[{"type":"Progressing","status":"True"}]}}
= 200
? status.conditions.0.type "Available"
? status.conditions.1.type "Progressing"

one applies $apps/deployments/d/status
  {"status":{"replicas":1}}
= 200
? status.conditions.0.type "Progressing"
? status.conditions.1 none
"#;

    a_manager_has_one_entry_for_each_subresource: r#"
one applies $apps/deployments/d
  {"spec":{"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}
= 201

one applies $apps/deployments/d/status
  {"status":{"replicas":1}}
= 200
one Apply apps/v1: .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].image .spec.template.spec.containers[name="c"].name
one Apply apps/v1/status: .status.replicas
"#;

    applying_a_subresource_of_an_absent_object_is_refused: r#"
one applies $apps/deployments/d/status
  {"status":{"replicas":1}}
= 404

one applies $apps/deployments/d/scale
  {"spec":{"replicas":1}}
= 404
"#;

    the_ephemeral_containers_subresource_owns_only_ephemeral_containers: r#"
kubectl creates $core/configmaps/unrelated
  {}
= 201
none

kubectl applies $core/pods/p
  {"spec":{"containers":[{"name":"c","image":"i"}]}}
= 201

debugger strategic $core/pods/p/ephemeralcontainers
  {"metadata":{"labels":{"not":"taken"}},"spec":{"ephemeralContainers":[{"name":"d","image":"e","imagePullPolicy":"Always","terminationMessagePath":"/x","terminationMessagePolicy":"File"}]}}
= 200
? metadata.labels none
kubectl Apply v1: .spec.containers[name="c"] .spec.containers[name="c"].image .spec.containers[name="c"].name
debugger Update v1/ephemeralcontainers: .spec.ephemeralContainers .spec.ephemeralContainers[name="d"] .spec.ephemeralContainers[name="d"].image .spec.ephemeralContainers[name="d"].imagePullPolicy .spec.ephemeralContainers[name="d"].name .spec.ephemeralContainers[name="d"].resources .spec.ephemeralContainers[name="d"].terminationMessagePath .spec.ephemeralContainers[name="d"].terminationMessagePolicy
"#;

    a_resize_owns_only_resources: r#"
kubectl applies $core/pods/p
  {"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1"}}}]}}
= 201

resizer strategic $core/pods/p/resize
  {"metadata":{"labels":{"not":"taken"}},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}}
= 200
? metadata.labels none
? spec.containers.0.resources.requests.cpu "2"
kubectl Apply v1: .spec.containers[name="c"] .spec.containers[name="c"].image .spec.containers[name="c"].name
resizer Update v1/resize: .metadata.labels .metadata.labels.not .spec.containers[name="c"].resources.requests.cpu
"#;
}
