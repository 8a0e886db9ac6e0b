//! Named object types that a host declares.

use std::sync::Arc;

use cel::types::{Type, TypeProvider};
use hashbrown::HashMap;

/// Object types with their fields. A type may be declared after other types refer to it.
#[derive(Clone, Debug, Default)]
pub struct Types(HashMap<String, HashMap<String, Type>>);

impl Types {
    /// Declares an object type and returns the type of its values.
    pub fn declare<'f>(&mut self, name: &str, fields: impl IntoIterator<Item = (&'f str, Type)>) -> Type {
        let fields = fields.into_iter().map(|(field, of)| (field.to_owned(), of)).collect();
        self.0.insert(name.to_owned(), fields);
        Type::object(name)
    }

    /// Sets the type of one field of a declared type.
    pub fn set_field(&mut self, name: &str, field: &str, of: Type) {
        self.0.entry(name.to_owned()).or_default().insert(field.to_owned(), of);
    }

    /// Converts the types to the form in which an environment accepts them.
    pub fn shared(self) -> Arc<dyn TypeProvider> {
        Arc::new(self)
    }
}

impl TypeProvider for Types {
    fn has_type(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn field_type(&self, name: &str, field: &str) -> Option<Type> {
        self.0.get(name)?.get(field).cloned()
    }
}
