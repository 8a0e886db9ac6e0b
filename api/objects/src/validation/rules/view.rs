//! Read access to a struct for rules. Returns members by name, and the zero value for absent members.

use quantity::Quantity;

use values::json::{Object, Value};

/// A struct that may be absent. A member that is absent, `null` or of another type is read as the zero value.
#[derive(Clone, Copy)]
pub struct StructView<'v>(Option<&'v Object>);

impl<'v> StructView<'v> {
    /// Returns the view of a struct that exists.
    pub fn from_object(object: &'v Object) -> Self {
        StructView(Some(object))
    }

    /// Returns the view of a value. If the value is not a struct, the view is absent.
    pub fn from(value: Option<&'v Value>) -> Self {
        StructView(value.and_then(Value::as_object))
    }

    /// Returns whether the struct exists.
    pub fn is_there(self) -> bool {
        self.0.is_some()
    }

    /// Returns the member; `None` if it is absent or `null`.
    pub fn get(self, name: &str) -> Option<&'v Value> {
        self.0.and_then(|object| object.get(name)).filter(|value| !value.is_null())
    }

    /// Returns whether the member is present and not `null`.
    pub fn has(self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns the struct in a member.
    pub fn child(self, name: &str) -> StructView<'v> {
        StructView::from(self.get(name))
    }

    /// Returns the string in a member.
    pub fn text(self, name: &str) -> &'v str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the integer in a member.
    pub fn int(self, name: &str) -> Option<i64> {
        self.get(name).and_then(Value::as_i64)
    }

    /// Returns the boolean in a member; `None` if the member is absent.
    pub fn flag(self, name: &str) -> Option<bool> {
        self.get(name).and_then(Value::as_bool)
    }

    /// Returns whether a member is `true`.
    pub fn is_true(self, name: &str) -> bool {
        self.flag(name) == Some(true)
    }

    /// Returns the elements of a list.
    pub fn items(self, name: &str) -> &'v [Value] {
        self.get(name).and_then(Value::as_array).unwrap_or_default()
    }

    /// Returns the elements of a list of structs.
    pub fn structs(self, name: &str) -> impl ExactSizeIterator<Item = StructView<'v>> + Clone + use<'v> {
        self.items(name).iter().map(|item| StructView::from(Some(item)))
    }

    /// Returns the elements of a list of strings.
    pub fn texts(self, name: &str) -> impl ExactSizeIterator<Item = &'v str> + Clone + use<'v> {
        self.items(name).iter().map(|item| item.as_str().unwrap_or_default())
    }

    /// Returns the members of a map, in order.
    pub fn map(self, name: &str) -> impl Iterator<Item = (&'v str, &'v Value)> + use<'v> {
        self.child(name).members()
    }

    /// Returns all members of the struct that are not `null`.
    pub fn members(self) -> impl Iterator<Item = (&'v str, &'v Value)> + use<'v> {
        self.0.into_iter().flat_map(Object::iter).filter(|(_, value)| !value.is_null())
    }

    /// Returns the quantity in a member.
    pub fn quantity(self, name: &str) -> Option<Quantity> {
        quantity(self.get(name)?)
    }

    /// Returns the struct as a value, for error messages.
    pub fn to_value(self) -> Value {
        self.0.map_or(Value::Null, |object| Value::Object(object.clone()))
    }

    /// Returns the struct itself.
    pub fn object(self) -> Option<&'v Object> {
        self.0
    }
}

/// Returns a value as a quantity.
pub fn quantity(value: &Value) -> Option<Quantity> {
    Quantity::parse(value.as_str()?).ok()
}
