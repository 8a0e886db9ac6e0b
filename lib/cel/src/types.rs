//! Types of the checker, and how hosts describe their object types.
//!
//! `Display` writes the notation of the checker's messages: `list(string)`, `map(string, dyn)`, `wrapper(int)`,
//! `optional_type(int)`, `timestamp`.

use std::fmt;
use std::sync::Arc;

use crate::ast::Name;

/// A type. Cloning shares the parts.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Type {
    /// The type of `null`.
    Null,
    /// `true` and `false`.
    Bool,
    /// 64-bit signed integers.
    Int,
    /// 64-bit unsigned integers.
    Uint,
    /// 64-bit floating point numbers.
    Double,
    /// Unicode text.
    String,
    /// Byte sequences.
    Bytes,
    /// `google.protobuf.Duration`.
    Duration,
    /// `google.protobuf.Timestamp`.
    Timestamp,
    /// Any value; checked at run time.
    Dyn,
    /// `google.protobuf.Any`; the checker treats it like [`Type::Dyn`].
    Any,
    /// The type of an expression with an error; fits everywhere, so that one error is reported once.
    Error,
    /// The type of types: `type` itself when there is no parameter.
    Type(Option<Arc<Type>>),
    /// A primitive or `null`.
    Wrapper(Primitive),
    /// `list(T)`.
    List(Arc<Type>),
    /// `map(K, V)`.
    Map(Arc<(Type, Type)>),
    /// `optional_type(T)`.
    Optional(Arc<Type>),
    /// A type of a library, known by its name alone: `net.IP`, `kubernetes.Quantity`.
    Opaque(Name),
    /// An object type, resolved by a [`TypeProvider`].
    Object(Name),
    /// A type parameter of a declaration, or a type variable of the checker.
    Param(Name),
}

/// The primitives that have a wrapper type.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Primitive {
    /// `google.protobuf.BoolValue`
    Bool,
    /// `google.protobuf.Int64Value`
    Int,
    /// `google.protobuf.UInt64Value`
    Uint,
    /// `google.protobuf.DoubleValue`
    Double,
    /// `google.protobuf.StringValue`
    String,
    /// `google.protobuf.BytesValue`
    Bytes,
}

impl Type {
    /// `list(element)`
    pub fn list(element: Type) -> Self {
        Self::List(Arc::new(element))
    }

    /// `map(key, value)`
    pub fn map(key: Type, value: Type) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    /// `optional_type(value)`
    pub fn optional(value: Type) -> Self {
        Self::Optional(Arc::new(value))
    }

    /// `type(of)`
    pub fn type_of(of: Type) -> Self {
        Self::Type(Some(Arc::new(of)))
    }

    /// A type of a library.
    pub fn opaque(name: &str) -> Self {
        Self::Opaque(name.into())
    }

    /// An object type.
    pub fn object(name: &str) -> Self {
        Self::Object(name.into())
    }

    /// A type parameter.
    pub fn param(name: &str) -> Self {
        Self::Param(name.into())
    }

    /// The name of the type as a value: what `type(x)` prints and what run-time errors say.
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

    /// The name of the protobuf message that struct literals of a well-known type are written with.
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

    /// Whether the types are the same; a wrapper is the same as its primitive.
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

    /// Whether the type has more than `max` parts, counting repeated ones each time.
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

    /// Whether values of this type are only checked at run time.
    pub fn is_dynamic(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }
}

impl Primitive {
    /// The type without `null`.
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

    /// The name of the protobuf wrapper message.
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

/// A type in the notation of declarations: protobuf names, such as `google.protobuf.Timestamp`, where messages have
/// short ones.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'t>(&'t Type);

impl Type {
    /// The type as declarations write it.
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
    /// Whether `name` is an object type.
    fn has_type(&self, name: &str) -> bool;

    /// The type of `field` in the object type `name`; `None` when there is no such field.
    fn field_type(&self, name: &str, field: &str) -> Option<Type>;
}
