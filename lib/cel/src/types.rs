//! Types of the checker, and how hosts describe their object types.
//!
//! `Display` uses the notation of the checker's messages: `list(string)`, `map(string, dyn)`, `wrapper(int)`,
//! `optional_type(int)`, `timestamp`.

use std::fmt;
use std::sync::Arc;

use crate::name::Name;

/// A type of the language. Cloning is cheap.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Type {
    /// The type of the value `null`.
    Null,
    /// The type of `true` and `false`.
    Bool,
    /// 64-bit signed integers.
    Int,
    /// 64-bit unsigned integers.
    Uint,
    /// 64-bit floating point numbers.
    Double,
    /// Unicode text, called `string`.
    String,
    /// Sequences of bytes, called `bytes`.
    Bytes,
    /// Spans of time, `google.protobuf.Duration`.
    Duration,
    /// Points in time, `google.protobuf.Timestamp`.
    Timestamp,
    /// Any value; its type is checked at run time.
    Dyn,
    /// `google.protobuf.Any`, which the checker treats like [`Type::Dyn`].
    Any,
    /// The type of an expression with an error. The type is assignable to every type, so that each error is
    /// reported once.
    Error,
    /// The type of a type that is used as a value. `None` is the type `type` itself.
    Type(Option<Arc<Type>>),
    /// A primitive that may be `null`.
    Wrapper(Primitive),
    /// A list type `list(T)`.
    List(Arc<Type>),
    /// A map type `map(K, V)`.
    Map(Arc<(Type, Type)>),
    /// An optional type `optional_type(T)`.
    Optional(Arc<Type>),
    /// A type of a library, identified by its name: `net.IP`, `kubernetes.Quantity`.
    Opaque(Name),
    /// An object type, resolved by a [`TypeProvider`].
    Object(Name),
    /// A type parameter of a declaration, or a type variable of the checker.
    Param(Name),
}

/// The primitive types that have a wrapper type.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Primitive {
    /// The wrapper `google.protobuf.BoolValue` of bool.
    Bool,
    /// The wrapper `google.protobuf.Int64Value` of int.
    Int,
    /// The wrapper `google.protobuf.UInt64Value` of uint.
    Uint,
    /// The wrapper `google.protobuf.DoubleValue` of double.
    Double,
    /// The wrapper `google.protobuf.StringValue` of string.
    String,
    /// The wrapper `google.protobuf.BytesValue` of bytes.
    Bytes,
}

impl Type {
    /// Creates the type `list(element)`.
    pub fn list(element: Type) -> Self {
        Self::List(Arc::new(element))
    }

    /// Creates the type `map(key, value)`.
    pub fn map(key: Type, value: Type) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    /// Creates the type `optional_type(value)`.
    pub fn optional(value: Type) -> Self {
        Self::Optional(Arc::new(value))
    }

    /// Creates the type `type(of)`.
    pub fn type_of(of: Type) -> Self {
        Self::Type(Some(Arc::new(of)))
    }

    /// Creates a type of a library.
    pub fn opaque(name: &str) -> Self {
        Self::Opaque(name.into())
    }

    /// Creates an object type of the host.
    pub fn object(name: &str) -> Self {
        Self::Object(name.into())
    }

    /// Creates a type parameter with this name.
    pub fn param(name: &str) -> Self {
        Self::Param(name.into())
    }

    /// Returns the name of the type as a value, as `type(x)` prints it and run-time errors show it.
    pub fn runtime_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Dyn => "dyn",
            Self::Any => "google.protobuf.Any",
            Self::Error => "*error*",
            Self::Type(_) => "type",
            Self::Wrapper(primitive) => primitive.wrapper_name(),
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Opaque(name) | Self::Object(name) | Self::Param(name) => name,
        }
    }

    /// Returns the protobuf message name that struct literals of a well-known type use.
    pub fn message_name(&self) -> Option<&'static str> {
        Some(match self {
            Self::Any => "google.protobuf.Any",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Dyn => "google.protobuf.Value",
            Self::Null => "google.protobuf.NullValue",
            Self::Wrapper(primitive) => primitive.wrapper_name(),
            Self::List(element) if **element == Self::Dyn => "google.protobuf.ListValue",
            Self::Map(entry) if **entry == (Self::String, Self::Dyn) => "google.protobuf.Struct",
            _ => return None,
        })
    }

    /// Returns whether the types are the same. A wrapper is the same as its primitive.
    pub fn is_exactly(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Wrapper(a), b) | (b, Self::Wrapper(a)) => match b {
                Self::Wrapper(b) => a == b,
                b => a.unwrapped() == *b,
            },
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => {
                Arc::ptr_eq(a, b) || a.is_exactly(b)
            }
            (Self::Map(a), Self::Map(b)) => Arc::ptr_eq(a, b) || a.0.is_exactly(&b.0) && a.1.is_exactly(&b.1),
            (Self::Type(Some(a)), Self::Type(Some(b))) => a.is_exactly(b),
            (a, b) => a == b,
        }
    }

    /// Returns whether the type has more than `max` components, counting repeated components each time.
    pub fn exceeds(&self, max: usize) -> bool {
        fn count(of: &Type, left: &mut usize) -> bool {
            if *left == 0 {
                return false;
            }
            *left -= 1;
            match of {
                Type::List(part) | Type::Optional(part) | Type::Type(Some(part)) => count(part, left),
                Type::Map(entry) => count(&entry.0, left) && count(&entry.1, left),
                _ => true,
            }
        }
        !count(self, &mut { max })
    }

    /// Returns whether values of this type are only checked at run time.
    pub fn is_dynamic(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }
}

impl Primitive {
    /// Returns the primitive type of a wrapper, which excludes `null`.
    pub fn unwrapped(self) -> Type {
        match self {
            Self::Bool => Type::Bool,
            Self::Int => Type::Int,
            Self::Uint => Type::Uint,
            Self::Double => Type::Double,
            Self::String => Type::String,
            Self::Bytes => Type::Bytes,
        }
    }

    /// Returns the name of the protobuf wrapper message.
    pub fn wrapper_name(self) -> &'static str {
        match self {
            Self::Bool => "google.protobuf.BoolValue",
            Self::Int => "google.protobuf.Int64Value",
            Self::Uint => "google.protobuf.UInt64Value",
            Self::Double => "google.protobuf.DoubleValue",
            Self::String => "google.protobuf.StringValue",
            Self::Bytes => "google.protobuf.BytesValue",
        }
    }
}

/// A type in the notation of declarations, which uses protobuf names such as `google.protobuf.Timestamp`
/// instead of the short names in messages.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'t>(&'t Type);

impl Type {
    /// Returns the type in the notation of declarations.
    pub fn declared(&self) -> Declared<'_> {
        Declared(self)
    }
}

impl fmt::Display for Declared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Type::Type(Some(of)) => write!(f, "type({})", Declared(of)),
            Type::List(element) => write!(f, "list({})", Declared(element)),
            Type::Map(entry) => write!(f, "map({}, {})", Declared(&entry.0), Declared(&entry.1)),
            Type::Optional(value) => write!(f, "optional_type({})", Declared(value)),
            Type::Wrapper(_) => self.0.fmt(f),
            simple => f.write_str(simple.runtime_name()),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Any => f.write_str("any"),
            Self::Error => f.write_str("!error!"),
            Self::Type(Some(of)) => write!(f, "type({of})"),
            Self::Wrapper(primitive) => write!(f, "wrapper({})", primitive.unwrapped()),
            Self::List(element) => write!(f, "list({element})"),
            Self::Map(entry) => write!(f, "map({}, {})", entry.0, entry.1),
            Self::Optional(value) => write!(f, "optional_type({value})"),
            simple => f.write_str(simple.runtime_name()),
        }
    }
}

/// The object types of a host.
pub trait TypeProvider: Send + Sync {
    /// Returns whether `name` is an object type.
    fn has_type(&self, name: &str) -> bool;

    /// Returns the type of `field` in the object type `name`; `None` if the field does not exist.
    fn field_type(&self, name: &str, field: &str) -> Option<Type>;
}
