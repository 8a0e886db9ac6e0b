//! Read access to a struct for rules: members by name, with absent members read as their zero value.

use quantity::Quantity;

use values::json::{Object, Value};

/// A struct that may be absent. Members that are absent, `null` or of another type read as zero.
#[derive(Clone, Copy)]
pub struct View<'v>(Option<&'v Object>);

impl<'v> View<'v> {
    /// A struct that is there.
    pub fn of(object: &'v Object) -> Self {
        View(Some(object))
    }

    /// The struct that a value is, absent if it is none.
    pub fn from(value: Option<&'v Value>) -> Self {
        View(value.and_then(Value::as_object))
    }

    /// Whether the struct is there.
    pub fn is_there(self) -> bool {
        self.0.is_some()
    }

    /// The member, if it is there and not `null`.
    pub fn get(self, name: &str) -> Option<&'v Value> {
        self.0.and_then(|object| object.get(name)).filter(|value| !value.is_null())
    }

    /// Whether the member is there.
    pub fn has(self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The struct at a member.
    pub fn child(self, name: &str) -> View<'v> {
        View::from(self.get(name))
    }

    /// The text at a member.
    pub fn text(self, name: &str) -> &'v str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// The number at a member.
    pub fn int(self, name: &str) -> Option<i64> {
        self.get(name).and_then(Value::as_i64)
    }

    /// The truth of a member, if it is there.
    pub fn flag(self, name: &str) -> Option<bool> {
        self.get(name).and_then(Value::as_bool)
    }

    /// Whether a member is `true`.
    pub fn is_true(self, name: &str) -> bool {
        self.flag(name) == Some(true)
    }

    /// The elements of a list.
    pub fn items(self, name: &str) -> &'v [Value] {
        self.get(name).and_then(Value::as_array).unwrap_or_default()
    }

    /// The elements of a list of structs.
    pub fn structs(self, name: &str) -> impl ExactSizeIterator<Item = View<'v>> + Clone + use<'v> {
        self.items(name).iter().map(|item| View::from(Some(item)))
    }

    /// The elements of a list of texts.
    pub fn texts(self, name: &str) -> impl ExactSizeIterator<Item = &'v str> + Clone + use<'v> {
        self.items(name).iter().map(|item| item.as_str().unwrap_or_default())
    }

    /// The members of a map, in their order.
    pub fn map(self, name: &str) -> impl Iterator<Item = (&'v str, &'v Value)> + use<'v> {
        self.child(name).members()
    }

    /// The own members, `null` ones left out.
    pub fn members(self) -> impl Iterator<Item = (&'v str, &'v Value)> + use<'v> {
        self.0.into_iter().flat_map(Object::iter).filter(|(_, value)| !value.is_null())
    }

    /// The quantity at a member.
    pub fn quantity(self, name: &str) -> Option<Quantity> {
        quantity(self.get(name)?)
    }

    /// The struct as a value, to print.
    pub fn to_value(self) -> Value {
        self.0.map_or(Value::Null, |object| Value::Object(object.clone()))
    }

    /// The struct itself.
    pub fn object(self) -> Option<&'v Object> {
        self.0
    }
}

/// A value as a quantity.
pub fn quantity(value: &Value) -> Option<Quantity> {
    Quantity::parse(value.as_str()?).ok()
}
