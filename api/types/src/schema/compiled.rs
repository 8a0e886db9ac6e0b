//! Plans: values that are derived from a type once, at their first use. The plans are stored in the type and
//! are dropped with it.
//!
//! ```text
//! Message ─ Compiled ─┬─ names       position of a field, by its name in JSON
//!                     ├─ ranks       the order of the names                (apply)
//!                     ├─ always      fields that are always written        (decode)
//!                     ├─ defaults    default values to fill in             (defaults)
//!                     └─ wire        the order of protobuf                 (codec::protobuf::transcode)
//! ```
//!
//! A plan refers to fields by position and never to other types. Recursive types therefore need no special
//! care, and no plan can outlive its type. Plans are plain data; the modules that compute the plans describe the use of
//! the plans.

use std::sync::OnceLock;

use values::json::Value;
use values::json::names::Names;

/// The derived plans of one type.
#[derive(Debug)]
pub struct Compiled {
    pub(super) names: OnceLock<Option<Names>>,
    pub(super) ranks: OnceLock<Vec<u32>>,
    pub(super) always: OnceLock<Vec<usize>>,
    pub(super) demanded: OnceLock<Vec<usize>>,
    pub(super) defaults: OnceLock<Option<Box<Defaults>>>,
    /// The protobuf encoding of the type, made at the first use.
    pub wire: OnceLock<Option<Box<Wire>>>,
}

impl Compiled {
    /// Creates an empty set of plans; each plan is computed at its first use.
    #[expect(
        clippy::new_without_default,
        reason = "types are made in constants, which cannot call `default`"
    )]
    pub const fn new() -> Self {
        Compiled {
            names: OnceLock::new(),
            ranks: OnceLock::new(),
            always: OnceLock::new(),
            demanded: OnceLock::new(),
            defaults: OnceLock::new(),
            wire: OnceLock::new(),
        }
    }
}

/// The defaults to fill in for objects of one type. If the type has a default rule in code, this rule is not
/// included.
#[derive(Debug)]
pub(super) struct Defaults {
    /// Positions of fields, ascending, with their default values.
    pub(super) assigned: Vec<(usize, Value)>,
    /// Positions of the fields below which defaults must be filled in, ascending.
    pub(super) below: Vec<usize>,
}

/// The precomputed part of a type's protobuf encoding.
#[derive(Debug)]
pub struct Wire {
    /// Entries by position in `Message::fields`.
    pub members: Vec<WireMember>,
    /// Encoding of absent fields, in wire order.
    pub zeros: Vec<u8>,
    /// Offsets in `zeros` at which the field of each rank begins, and the length of `zeros`.
    pub zeros_at: Vec<u32>,
}

/// The precomputed part of a field's protobuf encoding.
#[derive(Debug)]
pub struct WireMember {
    /// Position in wire order, without gaps; `u16::MAX` for fields that do not exist in protobuf.
    pub rank: u16,
    /// The struct in which protobuf nests the field: its number, and its position in `Message::inlined`.
    pub nested_in: Option<(u32, u16)>,
}
