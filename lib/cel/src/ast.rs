//! Syntax trees, parsed and checked.
//!
//! The nodes of one expression lie in one vector and refer to each other by [`NodeId`], so that a tree is dropped
//! without recursion and a pass keeps what it learns about nodes in a vector of the same length. Macros are expanded by
//! the parser; [`Ast::macro_calls`] keeps what was written, for the unparser and for error texts.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::library::Overload;
use crate::source::Source;
use crate::types::Type;

/// An identifier, field name or function name; cloning shares it.
pub type Name = Arc<str>;

/// The place of a node in [`Ast::nodes`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The index into [`Ast::nodes`] and into every vector that runs parallel to it.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A parsed expression. Its depth is at most what the parser's limit allows (250 levels), so that passes may recurse.
#[derive(Clone, Debug)]
pub struct Ast {
    /// All nodes; operands come before the node that uses them.
    pub nodes: Vec<Node>,
    /// The node of the whole expression.
    pub root: NodeId,
    /// The text the nodes' offsets point into.
    pub source: Source,
    /// For the root node of each macro's expansion: the call as it was written.
    pub macro_calls: HashMap<NodeId, MacroCall>,
}

/// One node and the code point offset of its error position.
#[derive(Clone, Debug)]
pub struct Node {
    /// What the node is.
    pub kind: NodeKind,
    /// Offset in code points that errors about the node point to.
    pub offset: u32,
}

/// A macro call as it was written. Arguments that are macro calls themselves have their own entry.
#[derive(Clone, Debug)]
pub struct MacroCall {
    /// The macro's name.
    pub function: Name,
    /// The receiver of a member macro (`target.all(…)`).
    pub target: Option<NodeId>,
    /// The arguments before the expansion.
    pub args: Box<[NodeId]>,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// A constant.
    Literal(Constant),
    /// A variable or type name; a leading dot is kept in the name.
    Ident(Name),
    /// `operand.field`, or `has(operand.field)` when `test_only`.
    Select {
        /// What the field is selected from.
        operand: NodeId,
        /// The field's name.
        field: Name,
        /// The expansion of `has`: the result tells whether the field is there.
        test_only: bool,
    },
    /// `function(args)` or `target.function(args)`; operators are calls of functions such as `_+_`.
    Call {
        /// The function's name.
        function: Name,
        /// The receiver of a member call.
        target: Option<NodeId>,
        /// The arguments, without the receiver.
        args: Box<[NodeId]>,
    },
    /// `[a, ?b]`.
    List {
        /// The elements, in order.
        elements: Box<[NodeId]>,
        /// Indices into `elements` of those marked `?`, ascending.
        optional: Box<[u32]>,
    },
    /// `{k: v, ?k: v}`.
    Map {
        /// The entries, in order.
        entries: Box<[MapEntry]>,
    },
    /// `Name{field: v, ?field: v}`.
    Struct {
        /// The type's name as written.
        name: Name,
        /// The fields, in order.
        fields: Box<[StructField]>,
    },
    /// The loop that `all`, `exists`, `map`, `filter` and their kin expand to.
    Comprehension(Box<Comprehension>),
}

/// A constant of the language.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// `1`, `-1`, `0x1`
    Int(i64),
    /// `1u`
    Uint(u64),
    /// `1.0`
    Double(f64),
    /// `'text'`
    String(Arc<str>),
    /// `b'text'`
    Bytes(Arc<[u8]>),
}

/// One entry of a map literal.
#[derive(Clone, Copy, Debug)]
pub struct MapEntry {
    /// The key's expression.
    pub key: NodeId,
    /// The value's expression.
    pub value: NodeId,
    /// Marked `?`: the value is an optional, and an empty one leaves the entry out.
    pub optional: bool,
    /// Offset of the entry's error position: its colon.
    pub offset: u32,
}

/// One field of a struct literal.
#[derive(Clone, Debug)]
pub struct StructField {
    /// The field's name.
    pub name: Name,
    /// The value's expression.
    pub value: NodeId,
    /// Marked `?`: the value is an optional, and an empty one leaves the field unset.
    pub optional: bool,
    /// Offset of the field's error position: its colon.
    pub offset: u32,
}

/// `accu_var = init; for iter_var in range { if !condition { break }; accu_var = step }; result`
#[derive(Clone, Debug)]
pub struct Comprehension {
    /// The list or map to iterate over.
    pub range: NodeId,
    /// The element (or index or key, when there is a second variable).
    pub iter_var: Name,
    /// The element or value, in the two-variable form.
    pub iter_var2: Option<Name>,
    /// The accumulator's name.
    pub accu_var: Name,
    /// The accumulator's first value.
    pub init: NodeId,
    /// Evaluated before each step; false ends the loop.
    pub condition: NodeId,
    /// The accumulator's next value.
    pub step: NodeId,
    /// The value of the whole, from the last accumulator; sees no iteration variables.
    pub result: NodeId,
}

/// A type-checked expression.
#[derive(Clone, Debug)]
pub struct CheckedAst {
    /// The expression.
    pub ast: Ast,
    /// The type of each node; `Type::Error` for nodes that only macro calls refer to.
    pub types: Vec<Type>,
    /// What each identifier, qualified selection, call and struct literal stands for.
    pub references: Vec<Option<Reference>>,
}

/// What the checker found out about a name.
#[derive(Clone, Debug)]
pub enum Reference {
    /// A variable (or a type as a value), by its full name. A select chain `a.b` may be one variable.
    Variable(Name),
    /// A named constant.
    Constant(Name, Constant),
    /// The overloads that fit the argument types; more than one when `dyn` leaves the choice to run time.
    Call(Box<[Arc<Overload>]>),
    /// The full name of a struct literal's type.
    Struct(Name),
}

impl Ast {
    /// The node at `id`.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The kind of the node at `id`.
    pub fn kind(&self, id: NodeId) -> &NodeKind {
        &self.nodes[id.index()].kind
    }
}

impl CheckedAst {
    /// The type of the whole expression.
    pub fn result_type(&self) -> &Type {
        &self.types[self.ast.root.index()]
    }

    /// The type of a node.
    pub fn type_of(&self, id: NodeId) -> &Type {
        &self.types[id.index()]
    }

    /// What a node's name stands for, when it has one.
    pub fn reference(&self, id: NodeId) -> Option<&Reference> {
        self.references[id.index()].as_ref()
    }
}
