//! [`Schema`] → Rust source: one `static` per message, one list of groups per naming profile.
//!
//! Messages refer to each other by `&'static`, so cycles are allowed. A message exists once if neither the
//! message nor the messages to which it refers contain a vendor name. All other messages exist once per
//! naming profile, so that no name is composed at run time. The source of a field contains only the differences from
//! the empty `FIELD`, because the compiler reads the result on every build.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use crate::code::{self, Use};
use crate::model::{
    Behavior, Check, Column, Field, Group, Kind, List, Message, MessageId, PublishedUnion, Resource, Schema,
    Shape, Status, Subresource,
};
use crate::naming::Naming;

const PLACEHOLDERS: [&str; 4] = ["{word}", "{domain}", "{suffix}", "{system}"];

/// Returns the text of `tables.rs`.
pub fn tables(schema: &Schema, vocabularies: &[&Naming]) -> String {
    let dependent = dependent(schema);
    let mut out = String::new();
    for (at, naming) in vocabularies.iter().enumerate() {
        let emitter = Emitter { schema, naming, at, dependent: &dependent };
        for id in 0..schema.messages.len() {
            if at == 0 || dependent.contains(&id) {
                emitter.message(&mut out, id);
            }
        }
        emitter.groups(&mut out);
        emitter.index(&mut out);
        if at == 0 {
            emitter.other_columns(&mut out);
        }
    }
    out.push_str("static VOCABULARIES: &[Vocabulary] = &[");
    for (at, naming) in vocabularies.iter().enumerate() {
        let profile = naming.profile;
        write!(out, "Vocabulary{{profile:{profile:?},groups:GROUPS_{at},messages:MESSAGES_{at}}},")
            .expect(STRING);
    }
    out.push_str("];\n");
    out
}

const STRING: &str = "strings can be written to";

/// Returns the messages whose tables differ among naming profiles: they contain a placeholder, or refer to a
/// message that contains a placeholder.
fn dependent(schema: &Schema) -> HashSet<MessageId> {
    let mut users: BTreeMap<MessageId, Vec<MessageId>> = BTreeMap::new();
    let mut pending = Vec::new();
    for (id, message) in schema.messages.iter().enumerate() {
        for (_, used) in &message.inlined {
            users.entry(*used).or_default().push(id);
        }
        for field in &message.fields {
            if let Kind::Of(_, used) = field.kind {
                users.entry(used).or_default().push(id);
            }
        }
        let texts = message.fields.iter().flat_map(|field| {
            [&field.name, &field.description]
                .into_iter()
                .chain(&field.default)
                .chain(&field.assigned)
                .chain(&field.enumeration)
        });
        if [&message.package, &message.description].into_iter().chain(texts).any(|text| has_placeholder(text))
        {
            pending.push(id);
        }
    }
    let mut dependent = HashSet::new();
    while let Some(id) = pending.pop() {
        if dependent.insert(id) {
            pending.extend(users.get(&id).into_iter().flatten());
        }
    }
    dependent
}

fn has_placeholder(text: &str) -> bool {
    PLACEHOLDERS.iter().any(|placeholder| text.contains(placeholder))
}

struct Emitter<'a> {
    schema: &'a Schema,
    naming: &'a Naming,
    /// Number of the naming profile.
    at: usize,
    dependent: &'a HashSet<MessageId>,
}

impl Emitter<'_> {
    /// Returns the name of the static of a message: `API_CORE_V1_POD`, with the number of the naming profile,
    /// except for the first profile.
    fn symbol(&self, id: MessageId) -> String {
        let Message { package, name, .. } = &self.schema.messages[id];
        let mut last: Vec<_> = package.rsplit(['.', '-', '}']).take(2).collect();
        last.reverse();
        let symbol = format!("{}_{name}", last.join("_")).to_uppercase();
        if self.at > 0 && self.dependent.contains(&id) { format!("{symbol}_{}", self.at) } else { symbol }
    }

    fn plain_text(&self, text: &str) -> String {
        format!("{:?}", self.naming.fill(text))
    }

    fn plain_texts(&self, texts: &[String]) -> String {
        let texts: Vec<_> = texts.iter().map(|text| self.plain_text(text)).collect();
        format!("&[{}]", texts.join(","))
    }

    fn text(&self, text: &str) -> String {
        format!("B({})", self.plain_text(text))
    }

    fn texts(&self, texts: &[String]) -> String {
        let texts: Vec<_> = texts.iter().map(|text| self.text(text)).collect();
        format!("B(&[{}])", texts.join(","))
    }

    fn message(&self, out: &mut String, id: MessageId) {
        let message = &self.schema.messages[id];
        writeln!(
            out,
            "static {}:Message=Message{{name:{},package:{},description:{},atomic:{},fields:B(&[",
            self.symbol(id),
            self.text(&message.name),
            self.text(&message.package),
            self.text(&message.description),
            message.atomic
        )
        .expect(STRING);
        for field in &message.fields {
            self.field(out, field);
        }
        out.push_str(
            "]),unknown:Unknown::Prune,embedded:false,custom:false,limits:None,compiled:Compiled::new(),inlined:B(&[",
        );
        for (number, inner) in &message.inlined {
            write!(out, "Inlined{{number:{number},message:S(&{})}},", self.symbol(*inner)).expect(STRING);
        }
        out.push_str("]),wire:B(&[");
        let own = message.fields.iter().enumerate().filter(|(_, field)| field.inlined.is_none());
        let own = own.map(|(at, field)| (field.number, format!("WireMeaning::Field({at})")));
        let nested = message.inlined.iter().enumerate();
        let nested = nested.map(|(at, (number, _))| (*number, format!("WireMeaning::Inlined({at})")));
        let mut wire: Vec<_> = own.chain(nested).filter(|(number, _)| *number > 0).collect();
        wire.sort();
        for (number, place) in wire {
            write!(out, "WireField{{number:{number},place:{place}}},").expect(STRING);
        }
        out.push_str("]),union:");
        match &message.union {
            None => out.push_str("None"),
            Some(union) => write!(
                out,
                "Some(Union{{members:&{:?},none:{:?},several:{:?},error_names:&{:?}}})",
                union.members, union.none, union.several, union.error_names
            )
            .expect(STRING),
        }
        if let Some(PublishedUnion { discriminator, members }) = &message.published_union {
            write!(
                out,
                ",published_union:Some(&PublishedUnion{{discriminator:{discriminator:?},members:&{members:?}}})"
            )
            .expect(STRING);
        } else {
            out.push_str(",published_union:None");
        }
        let rule = code::number(self.schema, Use::Rule, &message.rule);
        let default_rule = code::number(self.schema, Use::DefaultRule, &message.default_rule);
        writeln!(out, ",rule:{rule},checked_apart:{},default_rule:{default_rule}}};", message.checked_apart)
            .expect(STRING);
    }

    fn field(&self, out: &mut String, field: &Field) {
        write!(out, "Field{{name:{},number:{},", self.text(&field.name), field.number).expect(STRING);
        let kind = self.kind(field);
        if kind != "Kind::String" {
            write!(out, "kind:{kind},").expect(STRING);
        }
        if !field.description.is_empty() {
            write!(out, "description:{},", self.text(&field.description)).expect(STRING);
        }
        for (name, value, usual) in [
            ("required", field.required, false),
            ("omit_empty", field.omit_empty, true),
            ("pointer", field.pointer, false),
            ("resource_list", field.resource_list, false),
            ("atomic", field.atomic && field.shape == Shape::Single, false),
        ] {
            if value != usual {
                write!(out, "{name}:{value},").expect(STRING);
            }
        }
        if field.keeps_empty {
            out.push_str("empty:Empty::Kept,");
        }
        for (name, value) in [("default", &field.default), ("assigned", &field.assigned)] {
            if let Some(value) = value {
                write!(out, "{name}:Some({}),", self.text(value)).expect(STRING);
            }
        }
        if !field.enumeration.is_empty() {
            write!(out, "enumeration:{},", self.texts(&field.enumeration)).expect(STRING);
        }
        let patch = &field.patch;
        if patch.merge || patch.retain_keys || patch.replace || !patch.merge_key.is_empty() {
            let key = (!patch.merge_key.is_empty()).then_some(&patch.merge_key);
            write!(
                out,
                "patch:PatchStrategy{{merge:{},retain_keys:{},replace:{},merge_key:{key:?}}},",
                patch.merge, patch.retain_keys, patch.replace
            )
            .expect(STRING);
        }
        if let Some(inlined) = field.inlined {
            write!(out, "inlined:Some({inlined}),").expect(STRING);
        }
        if let Some(check) = &field.check {
            self.check(out, check);
        }
        if let Some((name, value)) = &field.published {
            write!(out, "published:Some(&Extension{{name:{name:?},value:{value:?}}}),").expect(STRING);
        }
        out.push_str("..FIELD},\n");
    }

    /// Returns the kind of a field's whole value.
    fn kind(&self, field: &Field) -> String {
        let one = match field.kind {
            Kind::Plain(kind) => format!("Kind::{kind}"),
            Kind::Of(kind, id) => format!("Kind::{kind}(S(&{}))", self.symbol(id)),
        };
        let element = |kind: &str| format!("Element{{kind:{kind},..ELEMENT}}");
        let list = |merge: &str, wrapped: bool| {
            let item = element(&one);
            format!("Kind::List(S(&List{{item:{item},merge:ListType::{merge},wrapped:{wrapped}}}))")
        };
        let map =
            |value: &str| format!("Kind::Map(S(&Map{{value:{},atomic:{}}}))", element(value), field.atomic);
        let merge = match &field.list {
            List::Atomic => "Atomic".to_owned(),
            List::Set => "Set".to_owned(),
            List::Map(keys) => format!("Map({})", self.texts(keys)),
        };
        match field.shape {
            Shape::Single => one,
            Shape::List => list(&merge, false),
            Shape::WrappedList => list(&merge, true),
            Shape::Map => map(&one),
            Shape::MapOfLists => map(&list("Atomic", true)),
        }
    }

    fn check(&self, out: &mut String, check: &Check) {
        write!(out, "check:Some(&Check{{presence:Presence::{},", check.presence).expect(STRING);
        for (name, form) in [("form", &check.form), ("keys", &check.keys)] {
            if !form.is_empty() {
                write!(out, "{name}:Some(ValueFormat::{form}),").expect(STRING);
            }
        }
        for (name, text) in
            [("required_detail", &check.required_detail), ("range_detail", &check.range_detail)]
        {
            if !text.is_empty() {
                write!(out, "{name}:{},", self.plain_text(text)).expect(STRING);
            }
        }
        write!(out, "min:{:?},max:{:?},", check.min, check.max).expect(STRING);
        for (name, most) in [("items_max", check.items_max), ("bytes_max", check.bytes_max)] {
            if most > 0 {
                write!(out, "{name}:{most},").expect(STRING);
            }
        }
        for (name, value) in [
            ("unique", check.unique),
            ("set_in_code", check.set_in_code),
            ("empty_is_refused", check.empty_is_refused),
            ("unseen", check.unseen),
        ] {
            if value {
                write!(out, "{name}:true,").expect(STRING);
            }
        }
        if !check.reported.is_empty() {
            write!(out, "reported:{},", self.plain_texts(&check.reported)).expect(STRING);
        }
        out.push_str("..CHECK}),");
    }

    /// Writes the index of all messages by package and name.
    fn index(&self, out: &mut String) {
        let mut ids: Vec<_> = (0..self.schema.messages.len()).collect();
        ids.sort_by_key(|&id| {
            let message = &self.schema.messages[id];
            (self.naming.fill(&message.package), &message.name)
        });
        write!(out, "static MESSAGES_{}:&[&Message]=&[", self.at).expect(STRING);
        for id in ids {
            write!(out, "&{},", self.symbol(id)).expect(STRING);
        }
        out.push_str("];\n");
    }

    /// Writes the columns of messages that are not resources.
    fn other_columns(&self, out: &mut String) {
        out.push_str("static COLUMNS:&[(&Message,Slice<Column>)]=&[");
        for (id, message) in self.schema.messages.iter().enumerate() {
            if !message.columns.is_empty() {
                write!(out, "(&{},", self.symbol(id)).expect(STRING);
                self.columns(out, &message.columns);
                out.push_str("),\n");
            }
        }
        out.push_str("];\n");
    }

    fn columns(&self, out: &mut String, columns: &[Column]) {
        out.push_str("B(&[");
        for column in columns {
            writeln!(
                out,
                "Column{{name:{},kind:{},format:{},priority:{},cell:{},description:B(\"\")}},",
                self.text(&column.name),
                self.text(&column.kind),
                self.text(&column.format),
                i32::from(column.wide),
                self.text(&column.cell)
            )
            .expect(STRING);
        }
        out.push_str("])");
    }

    fn groups(&self, out: &mut String) {
        let versions = self.schema.groups.iter().flat_map(|group| &group.versions);
        for (at, resource) in versions.flat_map(|version| &version.resources).enumerate() {
            write!(out, "static RESOURCE_{}_{at}:ResourceTable=", self.at).expect(STRING);
            self.resource(out, resource);
        }
        let mut next = 0;
        write!(out, "static GROUPS_{}:&[GroupTable]=&[", self.at).expect(STRING);
        for Group { stem, suffixed, priority, versions } in &self.schema.groups {
            write!(out, "GroupTable{{stem:B({stem:?}),suffixed:{suffixed},priority:{priority},versions:&[")
                .expect(STRING);
            for version in versions {
                let (name, priority) = (&version.version, version.priority);
                writeln!(out, "VersionTable{{version:B({name:?}),priority:{priority},resources:&[")
                    .expect(STRING);
                for _ in &version.resources {
                    write!(out, "&RESOURCE_{}_{next},", self.at).expect(STRING);
                    next += 1;
                }
                out.push_str("]},");
            }
            out.push_str("]},\n");
        }
        out.push_str("];\n");
    }

    fn resource(&self, out: &mut String, r: &Resource) {
        let scope = if r.cluster_scoped { "Cluster" } else { "Namespaced" };
        writeln!(
            out,
            "ResourceTable{{plural:{},singular:{},kind:{},list_kind:{},short_names:{},categories:{},\
             scope:Scope::{scope},verbs:{},message:S(&{}),",
            self.text(&r.plural),
            self.text(&r.singular),
            self.text(&r.kind),
            self.text(&format!("{}List", r.kind)),
            self.texts(&r.short),
            self.texts(&r.categories),
            self.plain_texts(&r.verbs),
            self.symbol(r.message)
        )
        .expect(STRING);
        out.push_str("subresources:B(&[");
        r.subresources.iter().for_each(|subresource| self.subresource(out, subresource));
        out.push_str("]),storage:");
        match &r.storage {
            None => out.push_str("None"),
            Some((home, resource)) => write!(
                out,
                "Some(StorageTable{{group:B({:?}),group_suffixed:{},version:B({:?}),resource:B({resource:?})}})",
                home.stem, home.suffixed, home.version
            )
            .expect(STRING),
        }
        out.push_str(",columns:");
        self.columns(out, &r.columns);
        out.push_str(",selectable:B(&[");
        for field in r.selectable.iter().flatten() {
            write!(
                out,
                "Selectable{{label:B({:?}),path:B({:?}),absent:B({:?})}},",
                field.label, field.path, field.absent
            )
            .expect(STRING);
        }
        writeln!(
            out,
            "]),format:Slot::new(),rules:None,form:None,selectable_refusal:{},name_rule:NameRule::{},put_creates:{},unconditional_update:{},\
             orphans_by_default:{},graceful_delete:{},delete_returns_object:{},generation_on:{},immutable:{},\
             deprecated:B({:?}),status:",
            r.selectable.as_ref().map_or_else(
                || "None".to_owned(),
                |_| format!("Some({})", self.text(&r.selectable_refusal))
            ),
            r.name,
            r.put_creates,
            !r.conditional_update,
            r.orphans_by_default,
            r.graceful_delete,
            r.delete_returns_object,
            self.texts(&r.generation_on),
            self.plain_texts(&r.immutable),
            r.deprecated
        )
        .expect(STRING);
        self.status(out, r.status.as_ref());
        self.behavior(out, &r.behavior);
        out.push_str("};\n");
    }

    fn subresource(&self, out: &mut String, sub: &Subresource) {
        writeln!(
            out,
            "SubresourceTable{{name:{:?},group:B({:?}),group_suffixed:{},version:B({:?}),kind:B({:?}),verbs:{},\
             message:S(&{}),connect:{},update_rule:{},scale:None}},",
            sub.name,
            sub.body.stem,
            sub.body.suffixed,
            sub.body.version,
            self.schema.messages[sub.message].name,
            self.plain_texts(&sub.verbs),
            self.symbol(sub.message),
            sub.connect,
            code::number(self.schema, Use::UpdateRule, &sub.update_rule)
        )
        .expect(STRING);
    }

    fn status(&self, out: &mut String, status: Option<&Status>) {
        match status {
            None => out.push_str("None"),
            Some(status) => write!(
                out,
                "Some(StatusRules{{kept_by_main:{},kept_by_status:{},reset_by_main:{},reset_by_status:{},\
                 kept_on_create:{}}})",
                self.texts(&status.kept_by_main),
                self.texts(&status.kept_by_status),
                self.texts(&status.reset_by_main),
                self.texts(&status.reset_by_status),
                status.kept_on_create
            )
            .expect(STRING),
        }
    }

    fn behavior(&self, out: &mut String, behavior: &Behavior) {
        out.push_str(",behavior:&Behavior{");
        for (name, used, code) in [
            ("strategy", Use::Strategy, &behavior.strategy),
            ("normalization", Use::Normalization, &behavior.normalization),
            ("update_rule", Use::UpdateRule, &behavior.update_rule),
            ("conversion", Use::Conversion, &behavior.conversion),
        ] {
            if !code.is_empty() {
                write!(out, "{name}:{},", code::number(self.schema, used, code)).expect(STRING);
            }
        }
        for (name, value) in &behavior.flags {
            if *value {
                write!(out, "{name}:true,").expect(STRING);
            }
        }
        for (name, text) in [
            ("replacement", &behavior.replacement),
            ("removed", &behavior.removed),
            ("delete_warning", &behavior.delete_warning),
            ("undeletable_detail", &behavior.undeletable_detail),
            ("hashed_version", &behavior.hashed_version),
            ("rows_sorted_by", &behavior.rows_sorted_by),
        ] {
            if !text.is_empty() {
                write!(out, "{name}:{},", self.plain_text(text)).expect(STRING);
            }
        }
        if !behavior.undeletable.is_empty() {
            write!(out, "undeletable:{},", self.plain_texts(&behavior.undeletable)).expect(STRING);
        }
        if !behavior.refusals.is_empty() {
            out.push_str("refusals:&[");
            for (path, detail) in &behavior.refusals {
                write!(out, "({path:?},{detail:?}),").expect(STRING);
            }
            out.push_str("],");
        }
        out.push_str("..Behavior::PLAIN}");
    }
}
