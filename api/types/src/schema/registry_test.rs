use super::*;
use crate::schema::table::Kind;
use values::naming;

#[test]
fn every_naming_profile_has_a_registry_that_finds_resources_by_name_and_kind() {
    for naming in naming::ALL {
        let registry = Registry::new(naming);
        assert_eq!(registry.resources().count(), 87);
        for resource in registry.resources() {
            let Resource { group, version, table, .. } = &**resource;
            assert!(Arc::ptr_eq(resource, registry.resource(group, version, &table.plural).unwrap()));
            assert!(Arc::ptr_eq(resource, registry.by_kind(group, version, &table.kind).unwrap()));
            assert_eq!(
                resource.storage.is_none(),
                !table.verbs.contains(&"update"),
                "{}",
                resource.qualified()
            );
            for subresource in &resource.subresources {
                assert!(resource.subresource(subresource.table.name).is_some());
            }
        }
    }
}

#[test]
fn group_names_follow_the_naming_profile_and_storage_keys_do_not() {
    for naming in naming::ALL {
        let registry = Registry::new(naming);
        let group = format!("networking{}", naming.group_suffix);
        let ingresses = registry.resource(&group, "v1", "ingresses").unwrap();
        assert_eq!(ingresses.api_version, format!("{group}/v1"));
        assert_eq!(ingresses.qualified(), format!("ingresses.{group}"));
        assert_eq!(ingresses.storage.as_ref().unwrap().key_prefix, "/networking/ingresses/");
        let token = registry.resource("", "v1", "serviceaccounts").unwrap().subresource("token").unwrap();
        assert_eq!(token.api_version, naming.api_version("authentication", true, "v1"));
    }
}

#[test]
fn two_groups_or_versions_can_share_one_stored_form() {
    let registry = Registry::new(&naming::KUBERNETES);
    for (group, version, plural, stored, prefix) in [
        ("", "v1", "events", "v1", "/core/events/"),
        ("events{suffix}", "v1", "events", "v1", "/core/events/"),
        (
            "autoscaling",
            "v1",
            "horizontalpodautoscalers",
            "autoscaling/v2",
            "/autoscaling/horizontalpodautoscalers/",
        ),
    ] {
        let resource = registry.resource(&naming::KUBERNETES.fill(group), version, plural).unwrap();
        let storage = resource.storage.as_ref().unwrap();
        assert_eq!((storage.api_version.as_str(), storage.key_prefix.as_str()), (stored, prefix));
        assert_eq!(storage.kind, resource.table.kind);
    }
    let regarding = registry.resource(&naming::KUBERNETES.group("events", true), "v1", "events").unwrap();
    assert!(regarding.table.message.field("regarding").is_some());
    assert!(regarding.storage.as_ref().unwrap().message.field("involvedObject").is_some());
}

#[test]
fn discovery_order_is_priority_then_name_then_version_priority() {
    // Groups are sorted by priority, then by name; versions by their own priority.
    let registry = Registry::new(&naming::KUBERNETES);
    let order: Vec<_> = registry.groups().iter().map(|group| group.name.as_str()).collect();
    let group = |stem| naming::KUBERNETES.group(stem, true);
    assert_eq!(order[..4], [&group("apiregistration"), "", "apps", &group("events")]);
    assert_eq!(order.last(), Some(&&*group("flowcontrol.apiserver")));
    let autoscaling = registry.group("autoscaling").unwrap();
    let versions: Vec<_> = autoscaling.versions.iter().map(|version| &*version.version).collect();
    assert_eq!(versions, ["v2", "v1"]);
    assert!(registry.group("core").is_none());
    assert!(registry.version("apps", "v2").is_none());
    assert!(registry.resource("apps", "v1", "pods").is_none());
}

/// Returns whether a dotted path leads through single structs to a declared field; maps and scalars end the
/// path.
fn leads_somewhere(message: &Message, path: &str) -> bool {
    let (head, rest) = path.split_once('.').unwrap_or((path, ""));
    let Some(field) = message.field(head) else { return false };
    match &field.kind {
        _ if rest.is_empty() => true,
        Kind::Message(inner) => leads_somewhere(inner, rest),
        _ => false,
    }
}

#[test]
fn every_path_in_the_rules_names_a_field() {
    let registry = Registry::new(&naming::CLUSTER);
    for resource in registry.resources() {
        let table = &resource.table;
        let status = table.status.as_ref();
        let kept = status.map_or([&[] as &[_]; 4], |status| {
            [&status.kept_by_main, &status.kept_by_status, &status.reset_by_main, &status.reset_by_status]
        });
        let kept = kept.into_iter().flatten().chain(&*table.generation_on).map(|path| &**path);
        for path in kept.chain(table.immutable.iter().copied()) {
            assert!(leads_somewhere(&table.message, path), "{}: {path}", resource.qualified());
        }
        let Some(storage) = &resource.storage else { continue };
        for path in table.selectable.iter().flat_map(|field| field.path.split('|')).filter(|p| !p.is_empty())
        {
            assert!(leads_somewhere(&storage.message, path), "{}: {path}", resource.qualified());
        }
        let has_status = table.subresources.iter().any(|subresource| subresource.name == "status");
        assert_eq!(has_status, table.status.is_some(), "{}", resource.qualified());
    }
}
