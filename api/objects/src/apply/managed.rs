//! The managed fields of an object: its managers, their fields and times, and the text form
//! (docs/api/apply.md#managed-fields).
//!
//! ```text
//! metadata.managedFields ◄─► Managed ─ entries ─ Entry { manager, operation, apiVersion, subresource, time, fields }
//! ```
//!
//! Most writes leave most entries unchanged. Therefore an entry keeps its text, and the text is parsed to a
//! set only if the set is needed. Texts are borrowed from the object. Entries of requests are parsed
//! immediately, because only valid sets may be stored.

use std::borrow::Cow;

use super::text;
use types::schema::table::Message;
use values::field::{FieldSet, FieldsV1Error};
use values::json::{Key, Object, Value};

/// Maximum number of update entries before the oldest are merged (docs/api/apply.md#ownership-of-updates).
pub const UPDATERS_MAX: usize = 10;

/// Manager of the merged oldest entries.
const OLDEST: &str = "ancient-changes";

/// The only supported format of field sets.
const FIELDS_TYPE: &str = "FieldsV1";

/// Kind of write by which a manager owns fields.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ManagerOperation {
    /// Server-side apply of a configuration.
    Apply,
    /// Any write that is not an apply.
    Update,
}

impl ManagerOperation {
    /// Returns the name of the operation in managed fields.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// A manager, which is the identity of an entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Manager<'t> {
    /// Name under which the manager writes.
    pub name: Cow<'t, str>,
    /// Kind of write by which the manager owns its fields.
    pub operation: ManagerOperation,
    /// Version in which the manager writes. The version is part of the identity only for
    /// [`ManagerOperation::Update`].
    pub api_version: Cow<'t, str>,
    /// Subresource through which the manager writes; empty for the object itself.
    pub subresource: Cow<'t, str>,
}

impl Manager<'_> {
    /// Converts the manager into one without borrows.
    pub fn into_owned(self) -> Manager<'static> {
        Manager {
            name: self.name.into_owned().into(),
            operation: self.operation,
            api_version: self.api_version.into_owned().into(),
            subresource: self.subresource.into_owned().into(),
        }
    }

    /// Returns whether both managers have the same identity.
    pub fn is(&self, other: &Manager<'_>) -> bool {
        self.operation == other.operation
            && self.name == other.name
            && self.subresource == other.subresource
            && (self.operation == ManagerOperation::Apply || self.api_version == other.api_version)
    }

    /// Returns the identity as text, by which managers of the same time are sorted.
    pub fn identity(&self) -> String {
        let mut identity = Object::new();
        for (name, text) in [
            ("manager", &*self.name),
            ("operation", self.operation.as_str()),
            ("apiVersion", if self.operation == ManagerOperation::Apply { "" } else { &*self.api_version }),
            ("subresource", &*self.subresource),
        ] {
            if !text.is_empty() {
                identity.push(name, text.into());
            }
        }
        let mut text = Vec::new();
        values::json::write(&identity.into(), &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// The fields of one manager.
#[derive(Clone, Debug)]
pub struct Entry<'t> {
    /// Manager that owns the fields.
    pub manager: Manager<'t>,
    /// Time of the last change with second precision, as RFC 3339; empty if unknown.
    pub time: Cow<'t, str>,
    fields: Fields<'t>,
}

#[derive(Clone, Debug)]
enum Fields<'t> {
    /// Canonical, valid text.
    Text(&'t str),
    Set(FieldSet<'t>),
}

/// Reason why the managed fields of a request are refused. A single invalid entry causes all entries to be
/// refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ManagedError {
    /// The value is not a list of objects.
    #[error("managed fields must be a list of entries")]
    Shape,
    /// The operation is neither `Apply` nor `Update`.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// The entry has no version.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// The format of the field set is not supported.
    #[error("missing or invalid fieldsType in managed fields entry")]
    FieldsType,
    /// The field set of an entry is malformed.
    #[error("error decoding set")]
    Fields(#[from] FieldsV1Error),
}

impl<'t> Entry<'t> {
    /// Creates an entry of `manager` for `fields`.
    pub fn new(manager: Manager<'t>, time: Cow<'t, str>, fields: FieldSet<'t>) -> Self {
        Entry { manager, time, fields: Fields::Set(fields) }
    }

    /// Creates an entry of `manager` for the fields of `text`, which must be canonical.
    pub fn of_text(manager: Manager<'t>, time: Cow<'t, str>, text: &'t str) -> Self {
        Entry { manager, time, fields: Fields::Text(text) }
    }

    /// Returns the owned fields. Parses the text if the set was not built yet.
    pub fn set(&self) -> Cow<'_, FieldSet<'t>> {
        match &self.fields {
            Fields::Set(set) => Cow::Borrowed(set),
            // All texts were validated before; an entry with a damaged text owns no fields.
            Fields::Text(text) => Cow::Owned(FieldSet::parse(text).unwrap_or_default()),
        }
    }

    /// Returns whether the entry owns no fields.
    pub fn is_empty(&self) -> bool {
        match &self.fields {
            Fields::Set(set) => set.is_empty(),
            Fields::Text(text) => *text == "{}",
        }
    }

    /// Returns whether the entry owns any member of `set`.
    pub fn owns_any(&self, set: &FieldSet<'_>) -> bool {
        let common = match &self.fields {
            Fields::Text(written) => text::common(written, set),
            Fields::Set(_) => None,
        };
        common.map_or_else(|| self.set().intersects(set), |common| common > 0)
    }

    /// Returns whether the set certainly matches the current schema of `message`, so that
    /// [`reconcile`](super::reconcile::reconcile) would not change it.
    pub fn is_current(&self, message: &Message) -> bool {
        self.text().and_then(|text| text::is_current(text, message)) == Some(true)
    }

    /// Returns the text of the set, if the text has not been parsed.
    pub fn text(&self) -> Option<&'t str> {
        match self.fields {
            Fields::Text(text) => Some(text),
            Fields::Set(_) => None,
        }
    }

    /// Replaces the owned fields.
    pub fn set_fields(&mut self, fields: FieldSet<'t>) {
        self.fields = Fields::Set(fields);
    }

    fn read(value: &'t Value, known: &[&str]) -> Result<Self, ManagedError> {
        let Value::Object(entry) = value else { return Err(ManagedError::Shape) };
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => ManagerOperation::Apply,
            "Update" => ManagerOperation::Update,
            _ => return Err(ManagedError::Operation),
        };
        if text("apiVersion").is_empty() {
            return Err(ManagedError::ApiVersion);
        }
        if text("fieldsType") != FIELDS_TYPE {
            return Err(ManagedError::FieldsType);
        }
        let fields = match text("fieldsV1") {
            "" => Fields::Set(FieldSet::new()),
            written if known.contains(&written) => Fields::Text(written),
            given => Fields::Set(FieldSet::parse(given)?),
        };
        let manager = Manager {
            name: text("manager").into(),
            operation,
            api_version: text("apiVersion").into(),
            subresource: text("subresource").into(),
        };
        Ok(Entry { manager, time: text("time").into(), fields })
    }

    fn write(self) -> Value {
        let fields = match self.fields {
            Fields::Text(text) => text.to_owned(),
            Fields::Set(set) => set.text(),
        };
        let members = [
            ("manager", self.manager.name),
            ("operation", self.manager.operation.as_str().into()),
            ("apiVersion", self.manager.api_version),
            ("time", self.time),
            ("fieldsType", FIELDS_TYPE.into()),
            ("fieldsV1", fields.into()),
            ("subresource", self.manager.subresource),
        ];
        let members = members.into_iter().filter(|(_, text)| !text.is_empty());
        members
            .map(|(name, text)| (Key::Borrowed(name), Value::String(text.into_owned())))
            .collect::<Object>()
            .into()
    }
}

/// All managed fields entries of an object.
#[derive(Clone, Debug, Default)]
pub struct Managed<'t> {
    entries: Vec<Entry<'t>>,
}

/// Change of the managed fields that a request contains.
#[derive(Debug)]
pub enum Requested<'t> {
    /// The managed fields of the request are missing or malformed, so the stored managed fields are kept.
    Nothing,
    /// The request removes all ownership.
    Reset,
    /// The request replaces the stored managed fields with the contained managed fields.
    These(Managed<'t>),
}

impl<'t> Managed<'t> {
    /// Returns the stored entries of an object; empty if the entries are malformed.
    pub fn stored(object: &'t Object) -> Self {
        let value = object.get("metadata").and_then(|metadata| metadata.get("managedFields"));
        let items = value.and_then(Value::as_array).unwrap_or_default();
        let known: Vec<&str> = items.iter().map(|item| item.str_at(&["fieldsV1"])).collect();
        Managed::read(items, &known).unwrap_or_default()
    }

    /// Returns the change that the managed fields of a request describe. Texts that also occur in `stored`
    /// are not parsed again.
    pub fn requested(value: &'t Value, stored: &Managed<'_>) -> Requested<'t> {
        let Value::Array(items) = value else { return Requested::Nothing };
        if let [Value::Object(only)] = items.as_slice()
            && only.is_empty()
        {
            return Requested::Reset;
        }
        let known: Vec<&str> = stored
            .entries
            .iter()
            .filter_map(|entry| match &entry.fields {
                Fields::Text(text) => Some(*text),
                Fields::Set(_) => None,
            })
            .collect();
        match Managed::read(items, &known) {
            Ok(managed) if !managed.is_empty() => Requested::These(managed),
            _ => Requested::Nothing,
        }
    }

    fn read(items: &'t [Value], known: &[&str]) -> Result<Self, ManagedError> {
        let mut managed = Managed { entries: Vec::with_capacity(items.len() + 1) };
        for item in items {
            managed.put(Entry::read(item, known)?);
        }
        Ok(managed)
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the entries in no particular order.
    pub fn entries(&self) -> &[Entry<'t>] {
        &self.entries
    }

    /// Returns the entries for modification.
    pub fn entries_mut(&mut self) -> &mut Vec<Entry<'t>> {
        &mut self.entries
    }

    /// Returns the entry of a manager.
    pub fn get(&self, manager: &Manager<'_>) -> Option<&Entry<'t>> {
        self.entries.iter().find(|entry| entry.manager.is(manager))
    }

    /// Removes the entry of a manager and returns it.
    pub fn take(&mut self, manager: &Manager<'_>) -> Option<Entry<'t>> {
        let at = self.entries.iter().position(|entry| entry.manager.is(manager))?;
        Some(self.entries.swap_remove(at))
    }

    /// Adds an entry and replaces the old entry of its manager.
    pub fn put(&mut self, entry: Entry<'t>) {
        match self.entries.iter_mut().find(|other| other.manager.is(&entry.manager)) {
            Some(slot) => *slot = entry,
            None => self.entries.push(entry),
        }
    }

    /// Adds `fields` to the entry of `manager` and sets its time.
    pub fn give(&mut self, manager: Manager<'t>, time: Cow<'t, str>, fields: FieldSet<'t>) {
        let fields = match self.take(&manager) {
            Some(had) => fields.union(had.set().into_owned()),
            None => fields,
        };
        self.entries.push(Entry::new(manager, time, fields));
    }

    /// Sets the time of the entry of `manager`.
    pub fn renew(&mut self, manager: &Manager<'_>, time: Cow<'t, str>) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.manager.is(manager)) {
            entry.time = time;
        }
    }

    /// Merges the oldest update entries, into one entry per version, until at most `UPDATERS_MAX` are left
    /// (docs/api/apply.md#ownership-of-updates).
    pub fn cap(&mut self) {
        let mut updaters: Vec<Manager<'t>> = Vec::new();
        {
            let mut all: Vec<&Entry<'t>> = self
                .entries
                .iter()
                .filter(|entry| entry.manager.operation == ManagerOperation::Update)
                .collect();
            if all.len() <= UPDATERS_MAX {
                return;
            }
            all.sort_by_cached_key(|entry| (entry.time.to_string(), entry.manager.identity()));
            updaters.extend(all.into_iter().map(|entry| entry.manager.clone()));
        }
        let mut left = updaters.len();
        // The first entry of a version is renamed to the merged entry when a second entry of that version is
        // found.
        let mut first_of: Vec<Manager<'t>> = Vec::new();
        for manager in updaters {
            if left <= UPDATERS_MAX {
                return;
            }
            let Some(first) = first_of.iter().find(|first| first.api_version == manager.api_version).cloned()
            else {
                first_of.push(manager);
                continue;
            };
            let bucket = Manager {
                name: OLDEST.into(),
                operation: ManagerOperation::Update,
                api_version: manager.api_version.clone(),
                subresource: "".into(),
            };
            if self.get(&bucket).is_none()
                && let Some(first) = self.take(&first)
            {
                self.entries.push(Entry { manager: bucket.clone(), ..first });
            }
            if let Some(merged) = self.take(&manager) {
                let time = merged.time.clone();
                self.give(bucket, time, merged.set().into_owned());
                left -= 1;
            }
        }
    }

    /// Returns the value of the managed fields; `None` if there are no entries. Apply entries come first.
    /// Entries of the same operation are sorted by time, name, version and subresource.
    pub fn into_value(mut self) -> Option<Value> {
        self.entries.sort_by(|a, b| {
            let key = |entry: &Entry<'t>| entry.manager.operation;
            (key(a), &a.time, &a.manager.name, &a.manager.api_version, &a.manager.subresource).cmp(&(
                key(b),
                &b.time,
                &b.manager.name,
                &b.manager.api_version,
                &b.manager.subresource,
            ))
        });
        let entries: Vec<Value> = self.entries.into_iter().map(Entry::write).collect();
        (!entries.is_empty()).then_some(Value::Array(entries))
    }
}

/// Returns whether two values of managed fields are equal except for their times.
pub fn is_same_but_for_times(a: Option<&Value>, b: Option<&Value>) -> bool {
    fn items(value: Option<&Value>) -> &[Value] {
        value.and_then(Value::as_array).unwrap_or_default()
    }
    let members = ["manager", "operation", "apiVersion", "fieldsType", "fieldsV1", "subresource"];
    let (a, b) = (items(a), items(b));
    let same = |(a, b): (&Value, &Value)| members.iter().all(|name| a.get(name) == b.get(name));
    a.len() == b.len() && a.iter().zip(b).all(same)
}

#[cfg(test)]
#[path = "managed_test.rs"]
mod tests;
