//! Values of the libraries' own types.

use std::sync::Arc;

use crate::error::EvalError;
use crate::value::{Opaque, Value};

/// Creates a value of a library's own type.
pub(crate) fn value<'v>(value: impl Opaque + 'static) -> Value<'v> {
    Value::Opaque(Arc::new(value))
}

/// Returns the value of a library's own type `T` in `value`; `None` if the type is different.
pub(crate) fn get<'a, T: 'static>(value: &'a Value<'_>) -> Option<&'a T> {
    match value {
        Value::Opaque(opaque) => opaque.as_any().downcast_ref(),
        _ => None,
    }
}

/// Returns the value of a library's own type `T` in `value`.
///
/// # Errors
/// The error about an argument of another type.
pub(crate) fn expect<'a, T: 'static>(value: &'a Value<'_>) -> Result<&'a T, EvalError> {
    get(value).ok_or_else(EvalError::no_such_overload)
}

/// Implements `Opaque` for a type. `$of` returns the type in expressions, and `$size` computes the size of a
/// value. Values are compared with `PartialEq`.
macro_rules! opaque_type {
    ($name:ty, $of:path) => {
        opaque_type!($name, $of, |_| 1);
    };
    ($name:ty, $of:path, $size:expr) => {
        impl crate::value::Opaque for $name {
            fn type_of(&self) -> crate::types::Type {
                $of()
            }

            fn equals(&self, other: &dyn crate::value::Opaque) -> bool {
                other.as_any().downcast_ref::<Self>() == Some(self)
            }

            fn size(&self) -> u64 {
                let size: fn(&Self) -> u64 = $size;
                size(self)
            }

            fn as_any(&self) -> &dyn std::any::Any {
                self
            }
        }
    };
}
pub(crate) use opaque_type;
