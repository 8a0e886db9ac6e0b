//! What is worked out of a type once, when it is first needed. It lives in the type and is dropped with it.
//!
//! ```text
//! Message ─ Compiled ─┬─ names       where a field stands, by its name in JSON
//!                     ├─ ranks       the order of the names                (apply)
//!                     ├─ always      fields that are always written        (decode)
//!                     ├─ defaults    what there is to fill in              (defaults)
//!                     └─ wire        the order of protobuf                 (codec::protobuf::transcode)
//! ```
//!
//! A plan speaks of fields by position and never of other types, so types that contain themselves need no care, and
//! nothing here can outlive what it was made of. Plans are data; who makes one, and what it is good for, is said there.

use std::sync::OnceLock;

use super::defaults_rules::Rule;
use values::json::Value;
use values::json::names::Names;

/// The plans of one type.
#[derive(Debug)]
pub struct Compiled {
    pub(super) names: OnceLock<Option<Names>>,
    pub(super) ranks: OnceLock<Vec<u32>>,
    pub(super) always: OnceLock<Vec<usize>>,
    pub(super) demanded: OnceLock<Vec<usize>>,
    pub(super) defaults: OnceLock<Option<Box<Defaults>>>,
    /// How protobuf encodes the type, made at the first use.
    pub wire: OnceLock<Option<Box<Wire>>>,
}

impl Compiled {
    /// Nothing is made yet.
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

/// What there is to fill in for objects of one type.
#[derive(Debug)]
pub(super) struct Defaults {
    /// Position of the field and its value, ascending.
    pub(super) assigned: Vec<(usize, Value)>,
    /// Defaults that only code can say.
    pub(super) rule: Option<Rule>,
    /// Positions of the fields below which there is something to do, ascending.
    pub(super) below: Vec<usize>,
}

/// What is known of a type's protobuf form before any object of it is seen.
#[derive(Debug)]
pub struct Wire {
    /// By position in `Message::fields`.
    pub members: Vec<WireMember>,
    /// What is written for fields that were not given, in the wire's order.
    pub zeros: Vec<u8>,
    /// Where in it those of each rank begin; one more at the end.
    pub zeros_at: Vec<u32>,
}

/// What is known of one field's protobuf form.
#[derive(Debug)]
pub struct WireMember {
    /// Place in the wire's order, counted without gaps; `u16::MAX` for fields that protobuf has not.
    pub rank: u16,
    /// The struct that protobuf nests it in: its number, and its position in `Message::inlined`.
    pub nested_in: Option<(u32, u16)>,
}
