//! Reads the custom options of `schema/options.proto` from descriptors.

use prost_reflect::{DescriptorPool, DynamicMessage, Value};

use crate::model::{Behavior, Check, Column, GroupVersion, Patch, PublishedUnion, Selectable, Status};

/// Access to the options by name.
pub struct Options<'p>(pub &'p DescriptorPool);

impl Options<'_> {
    /// Returns the value of option `name`, if it is set.
    pub fn get(&self, options: &DynamicMessage, name: &str) -> Option<Value> {
        let extension = self.0.get_extension_by_name(&format!("schema.{name}"));
        let extension = extension.unwrap_or_else(|| panic!("options.proto has no option {name}"));
        options.has_extension(&extension).then(|| options.get_extension(&extension).into_owned())
    }

    /// Returns whether the boolean option `name` is set and true.
    pub fn flag(&self, options: &DynamicMessage, name: &str) -> bool {
        self.get(options, name).and_then(|value| value.as_bool()).unwrap_or(false)
    }

    /// Returns the string option `name`, if it is set.
    pub fn text(&self, options: &DynamicMessage, name: &str) -> Option<String> {
        self.get(options, name).and_then(|value| value.as_str().map(str::to_owned))
    }

    /// Returns the message option `name`, if it is set.
    pub fn message(&self, options: &DynamicMessage, name: &str) -> Option<DynamicMessage> {
        self.get(options, name).and_then(|value| value.as_message().cloned())
    }

    /// Returns the messages of the list option `name`.
    pub fn messages(&self, options: &DynamicMessage, name: &str) -> Vec<DynamicMessage> {
        let list = self.get(options, name);
        let list = list.as_ref().and_then(Value::as_list).unwrap_or_default();
        list.iter().filter_map(|message| message.as_message().cloned()).collect()
    }
}

fn value(message: &DynamicMessage, name: &str) -> Value {
    let value = message.get_field_by_name(name);
    value.unwrap_or_else(|| panic!("{} has no {name}", message_name(message))).into_owned()
}

fn message_name(message: &DynamicMessage) -> String {
    use prost_reflect::ReflectMessage;
    message.descriptor().full_name().to_owned()
}

/// Returns the boolean member `name`.
pub fn flag(message: &DynamicMessage, name: &str) -> bool {
    value(message, name).as_bool().unwrap_or(false)
}

/// Returns the string member `name`; empty if it is not set.
pub fn text(message: &DynamicMessage, name: &str) -> String {
    value(message, name).as_str().unwrap_or_default().to_owned()
}

/// Returns the number member `name`.
pub fn number(message: &DynamicMessage, name: &str) -> u32 {
    value(message, name).as_u32().unwrap_or(0)
}

/// Returns the enum member `name`, as its number.
pub fn choice(message: &DynamicMessage, name: &str) -> i32 {
    value(message, name).as_enum_number().unwrap_or(0)
}

/// Returns the message member `name`, if it is set.
pub fn member(message: &DynamicMessage, name: &str) -> Option<DynamicMessage> {
    message.has_field_by_name(name).then(|| value(message, name).as_message().cloned()).flatten()
}

/// Returns the string list member `name`.
pub fn texts(message: &DynamicMessage, name: &str) -> Vec<String> {
    let list = value(message, name);
    let list = list.as_list().unwrap_or_default();
    list.iter().map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
}

/// Returns the message list member `name`.
pub fn members(message: &DynamicMessage, name: &str) -> Vec<DynamicMessage> {
    let list = value(message, name);
    list.as_list().unwrap_or_default().iter().filter_map(|member| member.as_message().cloned()).collect()
}

fn texts_or(message: &DynamicMessage, name: &str, usual: &[String]) -> Vec<String> {
    let texts = texts(message, name);
    if texts.is_empty() { usual.to_vec() } else { texts }
}

pub fn group_version(option: &DynamicMessage) -> GroupVersion {
    GroupVersion {
        stem: text(option, "stem"),
        suffixed: flag(option, "suffixed"),
        version: text(option, "version"),
        priority: number(option, "priority"),
        version_priority: number(option, "version_priority"),
    }
}

pub fn patch(option: &DynamicMessage) -> Patch {
    Patch {
        merge: flag(option, "merge"),
        retain_keys: flag(option, "retain_keys"),
        replace: flag(option, "replace"),
        merge_key: text(option, "key"),
    }
}

pub fn published_union(option: &DynamicMessage) -> PublishedUnion {
    PublishedUnion { discriminator: text(option, "discriminator"), members: texts(option, "members") }
}

pub fn status(option: &DynamicMessage) -> Status {
    let kept_by_main = texts_or(option, "kept_by_main", &["status".to_owned()]);
    let kept_by_status = texts_or(option, "kept_by_status", &["spec".to_owned()]);
    Status {
        reset_by_main: texts_or(option, "reset_by_main", &kept_by_main),
        reset_by_status: texts_or(option, "reset_by_status", &kept_by_status),
        kept_by_main,
        kept_by_status,
        kept_on_create: flag(option, "kept_on_create"),
    }
}

/// Reads the behavior of a resource from its option: the code of the kind, and the flags for generic code.
pub fn behavior(option: &DynamicMessage) -> Behavior {
    let flags = [
        "spec_finalizers",
        "allocated",
        "namespace_may_be_missing",
        "expires",
        "uncollected",
        "deleted_first",
        "marks_finished",
        "essential",
        "metadata_again",
        "plain_finalizers",
        "checked_twice",
    ];
    let refusals = members(option, "refusals");
    Behavior {
        strategy: text(option, "strategy"),
        normalization: text(option, "normalization"),
        update_rule: text(option, "update_rule"),
        conversion: text(option, "conversion"),
        flags: flags.into_iter().map(|name| (name, flag(option, name))).collect(),
        undeletable: texts(option, "undeletable"),
        undeletable_detail: text(option, "undeletable_detail"),
        refusals: refusals.iter().map(|refusal| (text(refusal, "path"), text(refusal, "detail"))).collect(),
        delete_warning: text(option, "delete_warning"),
        replacement: text(option, "replacement"),
        removed: text(option, "removed"),
        hashed_version: text(option, "hashed_version"),
        rows_sorted_by: text(option, "rows_sorted_by"),
    }
}

/// Returns the number member `name`, if it is set.
fn optional_number(message: &DynamicMessage, name: &str) -> Option<i64> {
    message.has_field_by_name(name).then(|| value(message, name).as_i64()).flatten()
}

/// Returns the enum member `name` as a Rust variant: `PORT_OR_NAME` → `PortOrName`.
fn variant(message: &DynamicMessage, name: &str) -> String {
    use prost_reflect::{Kind, ReflectMessage};
    let field = message.descriptor().get_field_by_name(name).expect("the member was named here");
    let Kind::Enum(choices) = field.kind() else { panic!("{name} is not an enum") };
    let choice = choices.get_value(choice(message, name)).expect("the compiler knows the value");
    let words = choice.name().split('_');
    words.map(|word| format!("{}{}", &word[..1], word[1..].to_lowercase())).collect()
}

pub fn check(option: &DynamicMessage) -> Check {
    let form = |name| Some(variant(option, name)).filter(|form| form != "Any").unwrap_or_default();
    Check {
        presence: ["Published", "Taken", "Needed", "NotZero", "AsEmpty"][choice(option, "presence") as usize],
        required_detail: text(option, "required_detail"),
        form: form("form"),
        keys: form("keys"),
        min: optional_number(option, "min"),
        max: optional_number(option, "max"),
        range_detail: text(option, "range_detail"),
        items_max: number(option, "items_max"),
        bytes_max: number(option, "bytes_max"),
        unique: flag(option, "unique"),
        reported: texts(option, "reported"),
        set_in_code: flag(option, "set_in_code"),
        empty_is_refused: flag(option, "empty_is_refused"),
        unseen: flag(option, "unseen"),
    }
}

pub fn column(option: &DynamicMessage) -> Column {
    let name = text(option, "name");
    let kind = text(option, "type");
    let usual_format = if name == "Name" { "name" } else { "" };
    Column {
        cell: text(option, "cell"),
        kind: if kind.is_empty() { "string".to_owned() } else { kind },
        format: if option.has_field_by_name("format") {
            text(option, "format")
        } else {
            usual_format.to_owned()
        },
        wide: flag(option, "wide"),
        name,
    }
}

pub fn selectable(option: &DynamicMessage) -> Selectable {
    let label = text(option, "label");
    Selectable {
        path: if option.has_field_by_name("path") { text(option, "path") } else { label.clone() },
        absent: text(option, "absent"),
        label,
    }
}
