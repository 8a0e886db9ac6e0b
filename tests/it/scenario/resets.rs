//! Scenarios of managed fields that clients send: they are kept, replaced, or reset.

use super::scenarios;

scenarios! {
    an_update_without_managed_fields_keeps_them: r#"
one applies $core/configmaps/a
  {"data":{"a":"1"}}
= 201

two puts $core/configmaps/a
  {"data":{"a":"1","b":"2"}}
= 200
one Apply v1: .data.a
two Update v1: .data.b
"#;

    a_list_with_one_empty_entry_resets_managed_fields: r#"
one applies $core/configmaps/a
  {"data":{"a":"1"}}
= 201

two merges $core/configmaps/a
  {"metadata":{"managedFields":[{}]}}
= 200
none
"#;

    an_empty_list_resets_managed_fields: r#"
one applies $core/configmaps/a
  {"data":{"a":"1"}}
= 201

two merges $core/configmaps/a
  {"metadata":{"managedFields":[]}}
= 200
none

three applies $core/configmaps/b
  {"data":{"a":"1"}}
= 201

two patches $core/configmaps/b
  [{"op":"replace","path":"/metadata/managedFields","value":[]}]
= 200
none

three applies $core/configmaps/c
  {"data":{"a":"1"}}
= 201

two puts $core/configmaps/c
  {"metadata":{"managedFields":[]},"data":{"a":"1"}}
= 200
none
"#;

    after_a_reset_updates_are_not_tracked_until_the_next_apply: r#"
one applies $core/configmaps/a
  {"data":{"a":"1"}}
= 201

two merges $core/configmaps/a
  {"metadata":{"managedFields":[{}]},"data":{"b":"2"}}
= 200
? data.b "2"
none

two merges $core/configmaps/a
  {"data":{"c":"3"}}
= 200
none

three applies $core/configmaps/a
  {"data":{"d":"4"}}
= 200
three Apply v1: .data.d
before-first-apply Update v1: .data .data.a .data.b .data.c
"#;

    managed_fields_entries_can_be_removed_and_changed_by_an_update: r#"
one applies $core/configmaps/a
  {"data":{"a":"1"}}
= 201

two applies $core/configmaps/a
  {"data":{"b":"1"}}
= 200

admin patches $core/configmaps/a
  [{"op":"remove","path":"/metadata/managedFields/0"}]
= 200
two Apply v1: .data.b

admin patches $core/configmaps/a
  [{"op":"test","path":"/metadata/managedFields/0/fieldsV1/f:data/f:b","value":{}},{"op":"add","path":"/metadata/managedFields/0/fieldsV1/f:data/f:a","value":{}},{"op":"replace","path":"/metadata/managedFields/0/manager","value":"three"}]
= 200
three Apply v1: .data.a .data.b
"#;

    undecodable_managed_fields_entries_are_ignored: r#"
one applies $core/configmaps/a
  {"data":{"a":"1"}}
= 201

admin merges $core/configmaps/a
  {"metadata":{"managedFields":[{"manager":"x","operation":"Steal","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:a":{}}}}]}}
= 200 same
one Apply v1: .data.a

admin merges $core/configmaps/a
  {"metadata":{"managedFields":[{"manager":"x","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":"{\"f:data\":\"x\"}"}]}}
= 200 same
one Apply v1: .data.a

admin merges $core/configmaps/a
  {"metadata":{"managedFields":[{"manager":"x","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"data":{}}}]}}
= 200 same
one Apply v1: .data.a
"#;

    managed_fields_cannot_be_changed_through_a_subresource: r#"
one applies $core/pods/p
  {"spec":{"containers":[{"name":"c","image":"i"}]}}
= 201

two merges $core/pods/p/status
  {"metadata":{"managedFields":[{}]},"status":{"phase":"Running"}}
= 200
one Apply v1: .spec.containers[name="c"] .spec.containers[name="c"].image .spec.containers[name="c"].name
two Update v1/status: .status.phase
"#;

    the_eleventh_updater_merges_the_oldest_entries_into_ancient_changes: r#"
m01 creates $core/configmaps/a
  {"data":{"k01":"1"}}
= 201

m02 merges $core/configmaps/a
  {"data":{"k02":"1"}}
= 200

m03 merges $core/configmaps/a
  {"data":{"k03":"1"}}
= 200

m04 merges $core/configmaps/a
  {"data":{"k04":"1"}}
= 200

m05 merges $core/configmaps/a
  {"data":{"k05":"1"}}
= 200

m06 merges $core/configmaps/a
  {"data":{"k06":"1"}}
= 200

m07 merges $core/configmaps/a
  {"data":{"k07":"1"}}
= 200

m08 merges $core/configmaps/a
  {"data":{"k08":"1"}}
= 200

m09 merges $core/configmaps/a
  {"data":{"k09":"1"}}
= 200

m10 merges $core/configmaps/a
  {"data":{"k10":"1"}}
= 200

applier applies $core/configmaps/a
  {"data":{"applied":"1"}}
= 200

m11 merges $core/configmaps/a
  {"data":{"k11":"1","k01":"2"}}
= 200
? data.k11 "1"
"#;
}
