//! Scenarios with kubectl, a controller and an autoscaler on one deployment: ownership of the replica count.

use super::scenarios;

scenarios! {
    a_scale_update_takes_ownership_of_the_replica_count: r#"
kubectl-create creates $core/replicationcontrollers/d
  {"spec":{"replicas":1,"selector":{"app":"d"},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"i","imagePullPolicy":"Always","terminationMessagePath":"/x","terminationMessagePolicy":"File"}]}}}}
= 201

hpa merges $core/replicationcontrollers/d/scale
  {"spec":{"replicas":3}}
= 200
? spec.replicas 3
hpa Update v1/scale (no time): .spec.replicas
kubectl-create Update v1: .metadata.labels .metadata.labels.app .spec.selector .spec.template .spec.template.metadata .spec.template.metadata.labels .spec.template.metadata.labels.app .spec.template.spec .spec.template.spec.containers .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].image .spec.template.spec.containers[name="c"].imagePullPolicy .spec.template.spec.containers[name="c"].name .spec.template.spec.containers[name="c"].resources .spec.template.spec.containers[name="c"].terminationMessagePath .spec.template.spec.containers[name="c"].terminationMessagePolicy .spec.template.spec.dnsPolicy .spec.template.spec.restartPolicy .spec.template.spec.schedulerName .spec.template.spec.securityContext .spec.template.spec.terminationGracePeriodSeconds
"#;

    a_scale_with_the_same_count_changes_nothing: r#"
kubectl applies $apps/deployments/d
  {"spec":{"replicas":2,"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}
= 201

hpa puts $apps/deployments/d/scale
  with {"spec":{"replicas":2}}
= 200 same
kubectl Apply apps/v1: .spec.replicas .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].image .spec.template.spec.containers[name="c"].name
"#;

    kubectl_and_the_autoscaler_conflict_until_kubectl_omits_the_count: r#"
kubectl applies $apps/deployments/d
  {"spec":{"replicas":1,"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}
= 201

hpa puts $apps/deployments/d/scale
  with {"spec":{"replicas":5}}
= 200
kubectl Apply apps/v1: .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].image .spec.template.spec.containers[name="c"].name
hpa Update apps/v1/scale (no time): .spec.replicas

kubectl applies $apps/deployments/d
  {"spec":{"replicas":1,"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}
= 409 same
! Apply failed with 1 conflict: conflict with "hpa" with subresource "scale" using apps/v1: .spec.replicas

kubectl applies $apps/deployments/d
  {"spec":{"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"j"}]}}}}
= 200
? spec.replicas 5
? spec.template.spec.containers.0.image "j"
"#;

    kubectl_hands_over_the_replica_count_without_a_reset: r#"
kubectl applies $apps/deployments/d
  {"spec":{"replicas":3,"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}
= 201

# The next owner is named before the first one releases the field.
handover applies $apps/deployments/d
  {"spec":{"replicas":3}}
= 200

kubectl applies $apps/deployments/d
  {"spec":{"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}
= 200
? spec.replicas 3
handover Apply apps/v1 (no time): .spec.replicas
kubectl Apply apps/v1: .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].image .spec.template.spec.containers[name="c"].name
"#;

    a_scale_can_be_applied: r#"
kubectl applies $apps/deployments/d
  {"spec":{"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}
= 201

# The default belongs to no manager, and so to the previous owner.
scaler applies $apps/deployments/d/scale
  {"spec":{"replicas":4}}
= 409 same
! Apply failed with 1 conflict: conflict with "before-first-apply" with subresource "scale" using autoscaling/v1: .spec.replicas

scaler forces $apps/deployments/d/scale
  {"spec":{"replicas":4}}
= 200
? spec.replicas 4
scaler Apply apps/v1/scale (no time): .spec.replicas
kubectl Apply apps/v1: .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].image .spec.template.spec.containers[name="c"].name

scaler applies $apps/deployments/d/scale
  {"spec":{"replicas":4}}
= 200 same

other applies $apps/deployments/d/scale
  {"spec":{"replicas":1}}
= 409 same
! Apply failed with 1 conflict: conflict with "scaler" with subresource "scale": .spec.replicas

other forces $apps/deployments/d/scale
  {"spec":{"replicas":1}}
= 200
? spec.replicas 1
other Apply apps/v1/scale (no time): .spec.replicas
kubectl Apply apps/v1: .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].image .spec.template.spec.containers[name="c"].name
"#;
}
