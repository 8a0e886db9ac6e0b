//! The built-in types: the tables that the build generates from `schema/*.proto`.
//!
//! All tables are static. The naming profile selects one of two sets of tables. Both sets share every message
//! that contains no name of a profile. Strings in a table are therefore complete, except for group stems (see
//! `registry`).

// The generated code uses these names.
use std::borrow::Cow::Borrowed as B;

use super::compiled::Compiled;
use super::handle::Ref::Static as S;
use super::table::{
    Behavior, Check, Column, Element, Empty, Extension, Field, GroupTable, Inlined, Kind, List, ListType,
    Map, Message, NameRule, PatchStrategy, Presence, PublishedUnion, ResourceTable, Scope, Selectable, Slice,
    Slot, StatusRules, StorageTable, SubresourceTable, Union, Unknown, ValueFormat, VersionTable, WireField,
    WireMeaning,
};
use values::naming::Naming;

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// Default values of a field's table entry.
pub const FIELD: Field = Field {
    name: B(""),
    number: 0,
    kind: Kind::String,
    empty: Empty::Absent,
    description: B(""),
    required: false,
    omit_empty: true,
    pointer: false,
    default: None,
    assigned: None,
    enumeration: B(&[]),
    format: B(""),
    atomic: false,
    resource_list: false,
    patch: PatchStrategy { merge: false, retain_keys: false, replace: false, merge_key: None },
    inlined: None,
    check: None,
    limits: None,
    published: None,
};

/// Default values of an element's table entry.
pub const ELEMENT: Element = Element { kind: Kind::String, empty: Empty::Absent, limits: None };

/// Default validation rules of a field's table entry.
const CHECK: Check = Check {
    presence: Presence::Published,
    required_detail: "",
    form: None,
    keys: None,
    min: None,
    max: None,
    range_detail: "",
    items_max: 0,
    bytes_max: 0,
    unique: false,
    reported: &[],
    set_in_code: false,
    empty_is_refused: false,
    unseen: false,
};

/// The tables of one naming profile.
struct Vocabulary {
    profile: &'static str,
    groups: &'static [GroupTable],
    messages: &'static [&'static Message],
}

fn vocabulary(naming: &Naming) -> &'static Vocabulary {
    VOCABULARIES
        .iter()
        .find(|vocabulary| vocabulary.profile == naming.profile)
        .expect("the build writes tables for every naming profile")
}

/// Returns the built-in groups, highest priority first.
pub fn groups(naming: &Naming) -> &'static [GroupTable] {
    vocabulary(naming).groups
}

/// Returns all built-in messages, sorted by package and name.
pub fn messages(naming: &Naming) -> &'static [&'static Message] {
    vocabulary(naming).messages
}

/// Returns the message with this OpenAPI name, written without the root of the naming profile, as in
/// `api.core.v1.Pod`.
pub fn message(naming: &Naming, openapi_stem: &str) -> Option<&'static Message> {
    let (package, name) = openapi_stem.rsplit_once('.')?;
    let messages = messages(naming);
    let at = messages
        .binary_search_by_key(&(package, name), |message| (&*message.package, &*message.name))
        .ok()?;
    messages.get(at).copied()
}

/// Returns the table columns of a kind that is the body of an operation rather than a resource (`Scale`,
/// `Status`); empty for every other message.
pub fn columns(message: &Message) -> &'static [Column] {
    let of = COLUMNS.iter().find(|(of, _)| std::ptr::eq(*of, message));
    of.map_or(&[], |(_, columns)| columns)
}

macro_rules! shared {
    ($($handle:ident = $table:ident, $doc:literal;)*) => {$(
        #[doc = $doc]
        pub static $handle: &Message = &$table;
    )*};
}

shared! {
    OBJECT_META = META_V1_OBJECTMETA, "Metadata of an object.";
    LIST_META = META_V1_LISTMETA, "Metadata of a list.";
    OWNER_REFERENCE = META_V1_OWNERREFERENCE, "A reference to an owner.";
    MANAGED_FIELDS_ENTRY = META_V1_MANAGEDFIELDSENTRY, "An entry of the managed fields.";
    LABEL_SELECTOR = META_V1_LABELSELECTOR, "A label selector.";
    CONDITION = META_V1_CONDITION, "A condition.";
    STATUS = META_V1_STATUS, "The answer that is not an object.";
    STATUS_DETAILS = META_V1_STATUSDETAILS, "Details of a status.";
    DELETE_OPTIONS = META_V1_DELETEOPTIONS, "Options of a delete.";
    CREATE_OPTIONS = META_V1_CREATEOPTIONS, "Options of a create.";
    UPDATE_OPTIONS = META_V1_UPDATEOPTIONS, "Options of an update.";
    PATCH_OPTIONS = META_V1_PATCHOPTIONS, "Options of a patch.";
    LIST_OPTIONS = META_V1_LISTOPTIONS, "Options of a list or watch.";
    GET_OPTIONS = META_V1_GETOPTIONS, "Options of a get.";
    WATCH_EVENT = META_V1_WATCHEVENT, "One frame of a watch.";
    TABLE = META_V1_TABLE, "A table.";
    TABLE_ROW = META_V1_TABLEROW, "A row of a table.";
    PARTIAL_OBJECT_METADATA = META_V1_PARTIALOBJECTMETADATA, "An object reduced to its metadata.";
    PARTIAL_OBJECT_METADATA_LIST = META_V1_PARTIALOBJECTMETADATALIST, "A list of objects reduced to their metadata.";
    API_VERSIONS = META_V1_APIVERSIONS, "Versions of the core group.";
    API_GROUP_LIST = META_V1_APIGROUPLIST, "All groups but the core.";
    API_GROUP = META_V1_APIGROUP, "A group and its versions.";
    API_RESOURCE_LIST = META_V1_APIRESOURCELIST, "Resources of a group version.";
    API_GROUP_DISCOVERY_LIST = APIDISCOVERY_V2_APIGROUPDISCOVERYLIST, "Aggregated discovery.";
    SCALE = AUTOSCALING_V1_SCALE, "Body of `/scale`.";
    EVICTION = POLICY_V1_EVICTION, "Body of `/eviction`.";
    BINDING = CORE_V1_BINDING, "Body of `/binding`.";
    TOKEN_REQUEST = AUTHENTICATION_V1_TOKENREQUEST, "Body of `/token`.";
    POD = CORE_V1_POD, "A pod.";
    VERSION_INFO = PKG_VERSION_INFO, "What `/version` answers.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json::names::Names;
    use values::naming::{self, CLUSTER, KUBERNETES};

    #[test]
    fn every_message_and_every_field_is_found_by_name() {
        for naming in naming::ALL {
            assert!(messages(naming).len() > 500);
            for &expected in messages(naming) {
                let stem = format!("{}.{}", expected.package, expected.name);
                assert!(std::ptr::eq(message(naming, &stem).unwrap(), expected), "{stem}");
                for field in &*expected.fields {
                    assert!(
                        std::ptr::eq(expected.field(&field.name).unwrap(), field),
                        "{stem}.{}",
                        field.name
                    );
                }
                assert!(expected.field("no-such-field").is_none());
            }
            assert!(message(naming, "api.core.v1.NoSuchKind").is_none());
            assert!(message(naming, "Pod").is_none());
        }
    }

    #[test]
    fn every_field_name_is_found_in_the_name_table_of_its_type() {
        for message in messages(&KUBERNETES) {
            let fields = message.fields.iter().map(|field| &*field.name);
            let names = Names::new(fields.clone()).unwrap_or_else(|| panic!("{} has a table", message.name));
            for (at, name) in (0..).zip(fields) {
                assert_eq!(names.candidate(name.as_bytes()), Some(at), "{}.{name}", message.name);
            }
        }
    }

    #[test]
    fn naming_profiles_share_messages_that_contain_no_vendor_name() {
        let pod = |naming| message(naming, "api.core.v1.Pod").unwrap();
        assert!(std::ptr::eq(pod(&CLUSTER), pod(&KUBERNETES)) && std::ptr::eq(pod(&CLUSTER), POD));
        for (naming, member, aggregator) in [
            (&CLUSTER, "x-cluster-list-type", "cluster-aggregator"),
            (&KUBERNETES, "x-kubernetes-list-type", "kube-aggregator"),
        ] {
            let schemas = "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
            assert!(message(naming, schemas).unwrap().field(member).is_some());
            assert!(
                message(naming, &format!("{aggregator}.pkg.apis.apiregistration.v1.APIService")).is_some()
            );
        }
    }

    #[test]
    fn schema_files_contain_no_vendor_names_outside_placeholders() {
        let schemas = concat!(env!("CARGO_MANIFEST_DIR"), "/../schema");
        for file in std::fs::read_dir(schemas).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap().to_lowercase();
            for naming in naming::ALL {
                let (domain, suffix) = (naming.domain, naming.group_suffix);
                for word in [domain, suffix, naming.openapi_root, naming.protobuf_media_type] {
                    assert!(!text.contains(word), "{} mentions {word}", path.display());
                }
            }
            assert!(!text.contains(KUBERNETES.word), "{} mentions {}", path.display(), KUBERNETES.word);
        }
        for naming in naming::ALL {
            let unfilled = |text: &str| naming.fill(text) != text;
            for message in messages(naming) {
                let texts = message.fields.iter().flat_map(|field| [&field.name, &field.description]);
                for text in texts.chain([&message.package, &message.description]) {
                    assert!(!unfilled(text), "{}: {text}", message.name);
                }
            }
        }
    }

    /// Fields that the published documents describe only by their type.
    const UNDESCRIBED: [(&str, &str); 6] = [
        ("JSONSchemaProps", "items"),
        ("JSONSchemaProps", "not"),
        ("JSONSchemaProps", "additionalProperties"),
        ("JSONSchemaProps", "additionalItems"),
        ("JSONSchemaProps", "externalDocs"),
        ("JSONSchemaProps", "example"),
    ];

    #[test]
    fn every_type_and_every_field_is_described() {
        for message in messages(&CLUSTER) {
            assert!(!message.description.is_empty(), "{}", message.name);
            for field in
                message.fields.iter().filter(|field| !UNDESCRIBED.contains(&(&message.name, &field.name)))
            {
                assert!(!field.description.is_empty(), "{}.{}", message.name, field.name);
            }
        }
    }

    #[test]
    fn scale_and_status_have_table_columns() {
        let headers = |message| columns(message).iter().map(|column| &*column.name).collect::<Vec<_>>();
        assert_eq!(headers(SCALE), ["Name", "Desired", "Available", "Age"]);
        assert_eq!(headers(STATUS), ["Status", "Reason", "Message"]);
        assert!(columns(POD).is_empty(), "a resource's columns are in its table");
    }
}
