//! Scenarios of ownership in lists: keyed lists, sets, and atomic lists.

use super::scenarios;

scenarios! {
    two_managers_can_own_different_containers: r#"
app applies $apps/deployments/d
  {"spec":{"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"app","image":"a:1"}]}}}}
= 201

mesh applies $apps/deployments/d
  {"spec":{"template":{"spec":{"containers":[{"name":"proxy","image":"p:1"}]}}}}
= 200
? spec.template.spec.containers.0.name "app"
? spec.template.spec.containers.1.name "proxy"
app Apply apps/v1: .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="app"] .spec.template.spec.containers[name="app"].image .spec.template.spec.containers[name="app"].name
mesh Apply apps/v1: .spec.template.spec.containers[name="proxy"] .spec.template.spec.containers[name="proxy"].image .spec.template.spec.containers[name="proxy"].name

app applies $apps/deployments/d
  {"spec":{"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"app","image":"a:2"}]}}}}
= 200
? spec.template.spec.containers.0.image "a:2"
? spec.template.spec.containers.1.name "proxy"

mesh applies $apps/deployments/d
  {}
= 200
? spec.template.spec.containers.1 none
app Apply apps/v1: .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="app"] .spec.template.spec.containers[name="app"].image .spec.template.spec.containers[name="app"].name
"#;

    two_managers_can_own_fields_of_one_container: r#"
app applies $apps/deployments/d
  {"spec":{"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"app","image":"a:1"}]}}}}
= 201

tuner applies $apps/deployments/d
  {"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"2"}}}]}}}}
= 200
? spec.template.spec.containers.0.image "a:1"
app Apply apps/v1: .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="app"] .spec.template.spec.containers[name="app"].image .spec.template.spec.containers[name="app"].name
tuner Apply apps/v1: .spec.template.spec.containers[name="app"] .spec.template.spec.containers[name="app"].name .spec.template.spec.containers[name="app"].resources.limits.cpu

tuner applies $apps/deployments/d
  {}
= 200
? spec.template.spec.containers.0.image "a:1"
? spec.template.spec.containers.0.resources {}
"#;

    list_keys_are_completed_with_their_defaults: r#"
one applies $core/services/s
  {"spec":{"ports":[{"port":80,"name":"http"}]}}
= 201
? spec.ports.0.protocol "TCP"
one Apply v1: .spec.ports[port=80,protocol="TCP"] .spec.ports[port=80,protocol="TCP"].name .spec.ports[port=80,protocol="TCP"].port

two applies $core/services/s
  {"spec":{"ports":[{"port":80,"protocol":"UDP","name":"dns"}]}}
= 200
? spec.ports.0.name "http"
? spec.ports.1.name "dns"
one Apply v1: .spec.ports[port=80,protocol="TCP"] .spec.ports[port=80,protocol="TCP"].name .spec.ports[port=80,protocol="TCP"].port
two Apply v1: .spec.ports[port=80,protocol="UDP"] .spec.ports[port=80,protocol="UDP"].name .spec.ports[port=80,protocol="UDP"].port .spec.ports[port=80,protocol="UDP"].protocol
"#;

    a_repeated_list_key_is_refused: r#"
one applies $core/services/s
  {"spec":{"ports":[{"port":80},{"port":80,"protocol":"TCP"}]}}
= 500
! failed to create typed patch object (/s; /v1, Kind=Service): .spec.ports: duplicate entries for key [port=80,protocol="TCP"]
"#;

    set_lists_of_two_managers_are_joined: r#"
one applies $core/configmaps/a
  {"metadata":{"finalizers":["x.io/a","x.io/b"]}}
= 201

two applies $core/configmaps/a
  {"metadata":{"finalizers":["x.io/c","x.io/b"]}}
= 200
? metadata.finalizers ["x.io/a","x.io/c","x.io/b"]
one Apply v1: .metadata.finalizers[="x.io/a"] .metadata.finalizers[="x.io/b"]
two Apply v1: .metadata.finalizers[="x.io/b"] .metadata.finalizers[="x.io/c"]

one applies $core/configmaps/a
  {}
= 200
? metadata.finalizers ["x.io/c","x.io/b"]
two Apply v1: .metadata.finalizers[="x.io/b"] .metadata.finalizers[="x.io/c"]
"#;

    an_atomic_list_stays_with_its_owner_if_another_manager_omits_it: r#"
one applies $core/pods/p
  {"spec":{"containers":[{"name":"c","image":"i","command":["a"]}]}}
= 201

two forces $core/pods/p
  {"metadata":{"labels":{"x":"y"}},"spec":{"containers":[{"name":"c","image":"j"}]}}
= 200
? spec.containers.0.image "j"
? spec.containers.0.command ["a"]
one Apply v1: .spec.containers[name="c"] .spec.containers[name="c"].command .spec.containers[name="c"].name
two Apply v1: .metadata.labels.x .spec.containers[name="c"] .spec.containers[name="c"].image .spec.containers[name="c"].name
"#;

    a_merged_list_has_the_order_of_the_applied_configuration: r#"
one applies $core/services/s
  {"spec":{"ports":[{"port":1,"name":"a"},{"port":2,"name":"b"},{"port":3,"name":"c"}]}}
= 201

one applies $core/services/s
  {"spec":{"ports":[{"port":3,"name":"c"},{"port":1,"name":"a"}]}}
= 200
? spec.ports.0.port 3
? spec.ports.1.port 1
? spec.ports.2 none
"#;

    environment_variables_are_merged_by_name: r#"
one applies $apps/statefulsets/d
  {"spec":{"serviceName":"s","selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c","image":"i","env":[{"name":"A","value":"1"}]}]}}}}
= 201

two applies $apps/statefulsets/d
  {"spec":{"template":{"spec":{"containers":[{"name":"c","env":[{"name":"B","value":"2"},{"name":"A","value":"1"}]}]}}}}
= 200
? spec.template.spec.containers.0.env [{"name":"B","value":"2"},{"name":"A","value":"1"}]
one Apply apps/v1: .spec.selector .spec.serviceName .spec.template.metadata.labels.app .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].env[name="A"] .spec.template.spec.containers[name="c"].env[name="A"].name .spec.template.spec.containers[name="c"].env[name="A"].value .spec.template.spec.containers[name="c"].image .spec.template.spec.containers[name="c"].name
two Apply apps/v1: .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].env[name="A"] .spec.template.spec.containers[name="c"].env[name="A"].name .spec.template.spec.containers[name="c"].env[name="A"].value .spec.template.spec.containers[name="c"].env[name="B"] .spec.template.spec.containers[name="c"].env[name="B"].name .spec.template.spec.containers[name="c"].env[name="B"].value .spec.template.spec.containers[name="c"].name
"#;
}
