//! `schema/*.proto` → [`Schema`]: compiles the files and fills in all values that the files leave to a
//! convention.
//!
//! There are two passes, because types may refer to each other in any order. The first pass gives every
//! ordinary message its index, and the second pass translates fields. Special types (`option
//! (schema.special)`) become kinds and get no message.

use std::collections::HashMap;
use std::path::Path;

use prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, FieldDescriptor, FileDescriptor, Kind as Wire,
    MessageDescriptor,
};

use crate::model::{
    Field, Group, GroupVersion, Kind, List, Message, MessageId, Patch, Resource, Schema, Shape, Subresource,
    Union, Version,
};
use crate::options::{self, Options};

const STORED_VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Compiles all files in `directory`.
pub fn schema(directory: &Path) -> Schema {
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .expect("schema directory")
        .map(|entry| entry.expect("schema directory").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "proto"))
        .collect();
    files.sort();
    let mut compiler = protox::Compiler::new([directory]).expect("schema directory");
    compiler.include_imports(true).include_source_info(true);
    compiler.open_files(files).unwrap_or_else(|error| panic!("{error:?}"));
    let pool = compiler.descriptor_pool();
    let loader = Loader::new(&pool);
    let messages = loader.order.iter().map(|message| loader.message(message)).collect();
    Schema { messages, groups: loader.groups() }
}

struct Loader<'p> {
    options: Options<'p>,
    /// Ordinary messages, in the order of their indices.
    order: Vec<MessageDescriptor>,
    ids: HashMap<String, MessageId>,
    comments: HashMap<String, String>,
}

impl<'p> Loader<'p> {
    fn new(pool: &'p DescriptorPool) -> Self {
        let options = Options(pool);
        let mut loader = Loader { options, order: Vec::new(), ids: HashMap::new(), comments: HashMap::new() };
        for file in pool.files().filter(|file| !["schema", "google.protobuf"].contains(&file.package_name()))
        {
            loader.read_comments(&file);
            for message in file.messages() {
                if loader.special(&message).is_none() {
                    loader.ids.insert(message.full_name().to_owned(), loader.order.len());
                    loader.order.push(message);
                }
            }
        }
        loader
    }

    /// Records the comment before each message and field by its full name.
    fn read_comments(&mut self, file: &FileDescriptor) {
        let Some(info) = &file.file_descriptor_proto().source_code_info else { return };
        for location in &info.location {
            let Some(comment) = &location.leading_comments else { continue };
            let text = comment.lines().map(str::trim).collect::<Vec<_>>().join(" ").trim().to_owned();
            let message =
                |at: i32| file.messages().nth(usize::try_from(at).expect("index")).expect("message");
            match location.path[..] {
                [4, at] => self.comments.insert(message(at).full_name().to_owned(), text),
                [4, at, 2, field] => {
                    let message = message(at);
                    let field = &message.descriptor_proto().field[usize::try_from(field).expect("index")];
                    self.comments.insert(format!("{}.{}", message.full_name(), field.name()), text)
                }
                _ => None,
            };
        }
    }

    fn special(&self, message: &MessageDescriptor) -> Option<i32> {
        self.options.get(&message.options(), "special").and_then(|value| value.as_enum_number())
    }

    fn id(&self, name: &str) -> MessageId {
        *self.ids.get(name).unwrap_or_else(|| panic!("{name} is not a message"))
    }

    fn message(&self, message: &MessageDescriptor) -> Message {
        let (fields, inlined) = self.fields(message);
        let file = message.parent_file();
        Message {
            name: message.name().to_owned(),
            package: self
                .options
                .text(&file.options(), "openapi_package")
                .unwrap_or_else(|| file.package_name().to_owned()),
            description: self.comments.get(message.full_name()).cloned().unwrap_or_default(),
            union: self.union(message, &fields),
            published_union: self
                .options
                .message(&message.options(), "published_union")
                .map(|option| options::published_union(&option)),
            rule: self.options.text(&message.options(), "rule").unwrap_or_default(),
            checked_apart: self.options.flag(&message.options(), "checked_apart"),
            default_rule: self.options.text(&message.options(), "default_rule").unwrap_or_default(),
            fields,
            inlined,
            atomic: self.options.flag(&message.options(), "atomic_struct"),
            columns: self
                .options
                .messages(&message.options(), "columns")
                .iter()
                .map(options::column)
                .collect(),
        }
    }

    fn union(&self, message: &MessageDescriptor, fields: &[Field]) -> Option<Union> {
        let option = self.options.message(&message.options(), "union")?;
        let at = |name: &String| {
            let at = fields.iter().position(|field| field.name == *name);
            at.unwrap_or_else(|| panic!("{} has no field {name}", message.full_name()))
        };
        let except: Vec<_> = options::texts(&option, "except").iter().map(at).collect();
        let mut members: Vec<_> = options::texts(&option, "members").iter().map(at).collect();
        if members.is_empty() {
            members = (0..fields.len()).filter(|at| !except.contains(at)).collect();
        }
        let error_names = options::texts(&option, "shown").into_iter().map(|pair| {
            let (name, error_name) =
                pair.split_once('=').unwrap_or_else(|| panic!("{}: {pair} has no `=`", message.full_name()));
            (at(&name.to_owned()), error_name.to_owned())
        });
        let error_names = error_names.collect();
        let text = |name| options::text(&option, name);
        Some(Union { members, none: text("none"), several: text("several"), error_names })
    }

    /// Returns the fields that JSON has, and the structs whose fields were flattened.
    fn fields(&self, message: &MessageDescriptor) -> (Vec<Field>, Vec<(u32, MessageId)>) {
        let options = message.options();
        let mut fields = Vec::new();
        let mut inlined = Vec::new();
        if self.options.flag(&options, "object") || self.options.get(&options, "resource").is_some() {
            fields.extend(type_fields());
        }
        for proto in &message.descriptor_proto().field {
            let number = proto.number().try_into().expect("field numbers are positive");
            let field = message.get_field(number).expect("the field was just listed");
            if self.options.flag(&field.options(), "inline") {
                let Wire::Message(inner) = field.kind() else {
                    panic!("{} is not a struct", field.full_name())
                };
                let inner_fields = self.fields(&inner).0;
                fields.extend(inner_fields.into_iter().map(|f| Field { inlined: Some(inlined.len()), ..f }));
                inlined.push((number, self.id(inner.full_name())));
            } else {
                fields.push(self.field(&field, self.options.flag(&options, "json_only")));
            }
        }
        let mut names: Vec<_> = fields.iter().map(|field| &field.name).collect();
        names.sort();
        for pair in names.windows(2) {
            assert!(pair[0] != pair[1], "{} has two fields {}", message.full_name(), pair[0]);
        }
        (fields, inlined)
    }

    fn field(&self, field: &FieldDescriptor, json_only: bool) -> Field {
        let options = field.options();
        let flag = |name| self.options.flag(&options, name);
        let value_type = if field.is_map() {
            let Wire::Message(entry) = field.kind() else { unreachable!("maps are lists of entries") };
            entry.map_entry_value_field().kind()
        } else {
            field.kind()
        };
        let (kind, strings) = self.kind(&value_type);
        let shape = match (field.is_map(), field.cardinality() == Cardinality::Repeated, strings) {
            (true, _, false) => Shape::Map,
            (true, _, true) => Shape::MapOfLists,
            (false, true, false) => Shape::List,
            (false, false, true) => Shape::WrappedList,
            (false, false, false) => Shape::Single,
            (false, true, true) => panic!("{}: a list of lists", field.full_name()),
        };
        let required = flag("required");
        let omit_empty =
            self.options.get(&options, "omit_empty").map_or(!required, |value| value.as_bool() == Some(true));
        let pointer = field.field_descriptor_proto().proto3_optional();
        let usual_default = match kind {
            _ if shape != Shape::Single || pointer => None,
            Kind::Of("Message", _) => Some("{}"),
            Kind::Plain(name) if required && !omit_empty => zero(name),
            Kind::Plain(_) | Kind::Of(..) => None,
        };
        let list = match (flag("list_set"), self.options.message(&options, "list_map")) {
            (false, None) => List::Atomic,
            (true, None) => List::Set,
            (false, Some(map)) => List::Map(options::texts(&map, "keys")),
            (true, Some(_)) => panic!("{} is both a set and a map", field.full_name()),
        };
        assert!(list == List::Atomic || shape == Shape::List, "{} is not a list", field.full_name());
        let struct_atomic = match &value_type {
            Wire::Message(inner) if shape == Shape::Single => {
                self.options.flag(&inner.options(), "atomic_struct")
            }
            _ => false,
        };
        let enumeration = self.options.message(&options, "enum").map(|list| options::texts(&list, "values"));
        Field {
            name: self.options.text(&options, "json").unwrap_or_else(|| field.name().to_owned()),
            number: if json_only { 0 } else { field.number() },
            kind,
            shape,
            description: self.comments.get(field.full_name()).cloned().unwrap_or_default(),
            required,
            omit_empty,
            pointer,
            default: self.options.text(&options, "default").or(usual_default.map(str::to_owned)),
            assigned: self.options.text(&options, "assigned"),
            enumeration: enumeration.unwrap_or_default(),
            list,
            resource_list: flag("resource_list"),
            keeps_empty: flag("keeps_empty"),
            atomic: flag("atomic") || (struct_atomic && !flag("granular")),
            patch: self
                .options
                .message(&options, "patch")
                .map(|option| options::patch(&option))
                .unwrap_or_default(),
            inlined: None,
            check: self.options.message(&options, "check").map(|option| options::check(&option)),
            published: self
                .options
                .message(&options, "published")
                .map(|option| (options::text(&option, "name"), options::text(&option, "value"))),
        }
    }

    /// Returns the kind of a value, and whether it is a wrapped list of strings.
    fn kind(&self, wire: &Wire) -> (Kind, bool) {
        let plain = match wire {
            Wire::Bool => "Bool",
            Wire::Int32 => "Int32",
            Wire::Int64 => "Int64",
            Wire::Double => "Double",
            Wire::String => "String",
            Wire::Bytes => "Bytes",
            Wire::Message(message) => match self.special(message) {
                None => return (Kind::Of("Message", self.id(message.full_name())), false),
                Some(1) => "Time",
                Some(2) => "MicroTime",
                Some(3) => "Duration",
                Some(4) => "Quantity",
                Some(5) => "IntOrString",
                Some(6) => "RawExtension",
                Some(7) => "FieldsV1",
                Some(8) => "Json",
                Some(special @ 9..=11) => {
                    let name = ["SchemaOrArray", "SchemaOrBool", "SchemaOrStrings"][(special - 9) as usize];
                    let schema =
                        message.get_field_by_name("schema").expect("such types have a field `schema`");
                    let Wire::Message(schema) = schema.kind() else {
                        panic!("{} is not a struct", schema.full_name())
                    };
                    return (Kind::Of(name, self.id(schema.full_name())), false);
                }
                Some(12) => return (Kind::Plain("String"), true),
                Some(other) => panic!("{}: unknown special type {other}", message.full_name()),
            },
            other => panic!("type {other:?} has no kind"),
        };
        (Kind::Plain(plain), false)
    }

    fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for message in &self.order {
            let Some(option) = self.options.message(&message.options(), "resource") else { continue };
            let home = self.home(message);
            let resource = self.resource(message, &option, &home);
            let at = groups.iter().position(|group| group.stem == home.stem).unwrap_or_else(|| {
                let GroupVersion { stem, suffixed, priority, .. } = home.clone();
                groups.push(Group { stem, suffixed, priority, versions: Vec::new() });
                groups.len() - 1
            });
            let group = &mut groups[at];
            assert!(
                (group.suffixed, group.priority) == (home.suffixed, home.priority),
                "{} differs among the files of its group",
                home.stem
            );
            let at =
                group.versions.iter().position(|version| version.version == home.version).unwrap_or_else(
                    || {
                        let (version, priority) = (home.version.clone(), home.version_priority);
                        group.versions.push(Version { version, priority, resources: Vec::new() });
                        group.versions.len() - 1
                    },
                );
            group.versions[at].resources.push(resource);
        }
        groups.sort_by(|a, b| b.priority.cmp(&a.priority).then(a.stem.cmp(&b.stem)));
        for group in &mut groups {
            group.versions.sort_by_key(|version| std::cmp::Reverse(version.priority));
            for version in &mut group.versions {
                version.resources.sort_by(|a, b| a.plural.cmp(&b.plural));
            }
        }
        groups
    }

    /// Returns the group version of the file that contains `message`.
    fn home(&self, message: &MessageDescriptor) -> GroupVersion {
        let group = self.options.message(&message.parent_file().options(), "group");
        options::group_version(&group.unwrap_or_else(|| panic!("{} is in no group", message.full_name())))
    }

    fn resource(
        &self,
        message: &MessageDescriptor,
        option: &DynamicMessage,
        home: &GroupVersion,
    ) -> Resource {
        let flag = |name| options::flag(option, name);
        let plural = options::text(option, "plural");
        let singular = options::text(option, "singular");
        let is_virtual = flag("virtual");
        let usual_verbs: &[&str] = if is_virtual { &["create"] } else { &STORED_VERBS };
        let storage = options::member(option, "storage");
        let storage = (!is_virtual).then(|| {
            let group = storage.as_ref().and_then(|storage| options::member(storage, "group"));
            let resource = storage.map(|storage| options::text(&storage, "resource")).unwrap_or_default();
            (
                group.map_or_else(|| home.clone(), |group| options::group_version(&group)),
                if resource.is_empty() { plural.clone() } else { resource },
            )
        });
        let mut subresources: Vec<_> = options::members(option, "subresources")
            .iter()
            .map(|sub| self.subresource(message, sub))
            .collect();
        subresources.sort_by(|a, b| a.name.cmp(&b.name));
        Resource {
            singular: if singular.is_empty() { message.name().to_lowercase() } else { singular },
            kind: message.name().to_owned(),
            short: options::texts(option, "short"),
            categories: options::texts(option, "categories"),
            cluster_scoped: flag("cluster_scoped"),
            verbs: verbs(option, usual_verbs),
            message: self.id(message.full_name()),
            subresources,
            storage,
            columns: options::members(option, "columns").iter().map(options::column).collect(),
            selectable_refusal: options::member(option, "selectable")
                .map(|list| options::text(&list, "refusal"))
                .filter(|refusal| !refusal.is_empty())
                .unwrap_or_else(|| "field label not supported: ".to_owned()),
            selectable: options::member(option, "selectable")
                .map(|list| options::members(&list, "fields").iter().map(options::selectable).collect()),
            name: ["Subdomain", "Label", "PathSegment"][options::choice(option, "name") as usize],
            put_creates: flag("put_creates"),
            conditional_update: flag("conditional_update"),
            orphans_by_default: flag("orphans_by_default"),
            graceful_delete: flag("graceful_delete"),
            delete_returns_object: flag("delete_returns_object"),
            generation_on: options::texts(option, "generation_on"),
            status: options::member(option, "status").map(|status| options::status(&status)),
            immutable: options::texts(option, "immutable"),
            deprecated: options::text(option, "deprecated"),
            behavior: options::behavior(option),
            plural,
        }
    }

    fn subresource(&self, owner: &MessageDescriptor, option: &DynamicMessage) -> Subresource {
        let body = options::text(option, "type");
        let id = self.id(if body.is_empty() { owner.full_name() } else { &body });
        Subresource {
            name: options::text(option, "name"),
            body: self.home(&self.order[id]),
            message: id,
            verbs: verbs(option, &["get", "patch", "update"]),
            connect: options::flag(option, "connect"),
            update_rule: options::text(option, "update_rule"),
        }
    }
}

fn verbs(option: &DynamicMessage, usual: &[&str]) -> Vec<String> {
    let mut verbs = options::texts(option, "verbs");
    if verbs.is_empty() {
        verbs = usual.iter().map(|&verb| verb.to_owned()).collect();
    }
    verbs.sort();
    verbs
}

/// Returns the zero value of a scalar kind as JSON text; `None` for kinds whose zero value is not published.
fn zero(kind: &str) -> Option<&'static str> {
    match kind {
        "Bool" => Some("false"),
        "Int32" | "Int64" | "Double" => Some("0"),
        "String" => Some("\"\""),
        _ => None,
    }
}

/// Returns the fields `kind` and `apiVersion`, which every object has in JSON but not in protobuf.
fn type_fields() -> [Field; 2] {
    let field = |name: &str, description: &str| Field {
        name: name.to_owned(),
        number: 0,
        kind: Kind::Plain("String"),
        shape: Shape::Single,
        description: description.to_owned(),
        required: false,
        omit_empty: true,
        pointer: false,
        default: None,
        assigned: None,
        enumeration: Vec::new(),
        list: List::Atomic,
        atomic: false,
        resource_list: false,
        keeps_empty: false,
        patch: Patch::default(),
        inlined: None,
        check: None,
        published: None,
    };
    [
        field(
            "kind",
            "Kind is a string value that names the type of the object. The field may be omitted where the path of the request \
             implies it, and its value cannot change.",
        ),
        field(
            "apiVersion",
            "APIVersion defines the schema that the object is written in, as `<group>/<version>`, or as `<version>` for the \
             core group. The field may be omitted where the path of the request implies it. Responses have the version in \
             the path of the request.",
        ),
    ]
}
