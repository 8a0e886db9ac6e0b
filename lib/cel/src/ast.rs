//! Syntax trees, parsed and checked.
//!
//! All nodes of an expression are in one vector and refer to each other by [`NodeId`]. Therefore a tree is
//! dropped without recursion, and a pass stores its results in a vector with one element for each node. The
//! parser expands macros; [`Ast::macro_calls`] keeps the original calls for the unparser and for error texts.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::overload::Overload;
use crate::source::Source;
use crate::types::Type;

pub use crate::constant::Constant;
pub use crate::name::Name;
pub use crate::node_id::NodeId;

/// A parsed expression. The depth of the tree is limited by the parser (250 levels), so that passes may
/// recurse.
#[derive(Clone, Debug)]
pub struct Ast {
    /// All nodes; operands come before the node that uses them.
    pub nodes: Vec<Node>,
    /// Root node of the whole expression.
    pub root: NodeId,
    /// Text that the offsets of the nodes point into.
    pub source: Source,
    /// Original macro calls, by the root node of each expansion.
    pub macro_calls: HashMap<NodeId, MacroCall>,
}

/// A node with its position for errors.
#[derive(Clone, Debug)]
pub struct Node {
    /// Kind of the node, with its operands.
    pub kind: NodeKind,
    /// Position in errors about the node, as an offset in code points.
    pub offset: u32,
}

/// A macro call as it was written. Arguments that are themselves macro calls have their own entry.
#[derive(Clone, Debug)]
pub struct MacroCall {
    /// Name of the macro.
    pub function: Name,
    /// Receiver of a member macro (`target.all(…)`); `None` for a global macro.
    pub target: Option<NodeId>,
    /// Arguments before the expansion.
    pub args: Box<[NodeId]>,
}

/// The kind of a node.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// A constant of the language.
    Literal(Constant),
    /// A variable or type name; a leading dot is kept in the name.
    Ident(Name),
    /// A selection `operand.field`, or `has(operand.field)` if `test_only`.
    Select {
        /// Operand from which the field is selected.
        operand: NodeId,
        /// Name of the selected field.
        field: Name,
        /// Whether the node comes from `has`. The result of such a node is whether the field is set.
        test_only: bool,
    },
    /// A call `function(args)` or `target.function(args)`. Operators are calls of functions such as `_+_`.
    Call {
        /// Name of the called function.
        function: Name,
        /// Receiver of a member call; `None` for a global call.
        target: Option<NodeId>,
        /// Arguments of the call, without the receiver.
        args: Box<[NodeId]>,
    },
    /// A list literal `[a, ?b]`.
    List {
        /// Elements of the list, in order.
        elements: Box<[NodeId]>,
        /// Indices of the elements that are marked `?`, ascending.
        optional: Box<[u32]>,
    },
    /// A map literal `{k: v, ?k: v}`.
    Map {
        /// Entries of the map, in order.
        entries: Box<[MapEntry]>,
    },
    /// A struct literal `Name{field: v, ?field: v}`.
    Struct {
        /// Name of the type as written.
        name: Name,
        /// Fields of the literal, in order.
        fields: Box<[StructField]>,
    },
    /// The loop that `all`, `exists`, `map`, `filter` and similar macros expand to.
    Comprehension(Box<Comprehension>),
}

/// An entry of a map literal.
#[derive(Clone, Copy, Debug)]
pub struct MapEntry {
    /// Expression of the key.
    pub key: NodeId,
    /// Expression of the value.
    pub value: NodeId,
    /// Whether the entry is marked `?`. The value of a marked entry is an optional, and an empty optional
    /// omits the entry.
    pub optional: bool,
    /// Offset of the colon of the entry, which is the position in errors about the entry.
    pub offset: u32,
}

/// A field of a struct literal.
#[derive(Clone, Debug)]
pub struct StructField {
    /// Name of the field.
    pub name: Name,
    /// Expression of the value.
    pub value: NodeId,
    /// Whether the field is marked `?`. The value of a marked field is an optional, and an empty optional
    /// leaves the field unset.
    pub optional: bool,
    /// Offset of the colon of the field, which is the position in errors about the field.
    pub offset: u32,
}

/// A loop: `accu_var = init; for iter_var in range { if !condition { break }; accu_var = step }; result`
#[derive(Clone, Debug)]
pub struct Comprehension {
    /// List or map to iterate over.
    pub range: NodeId,
    /// Variable for the element. If there is a second variable, this variable is for the index or key.
    pub iter_var: Name,
    /// Second variable, for the element or value; `None` if the loop has only one variable.
    pub iter_var2: Option<Name>,
    /// Name of the accumulator.
    pub accu_var: Name,
    /// First value of the accumulator.
    pub init: NodeId,
    /// Condition that is evaluated before each step; false ends the loop.
    pub condition: NodeId,
    /// Next value of the accumulator.
    pub step: NodeId,
    /// Value of the whole loop, computed from the last accumulator. The expression cannot use the iteration
    /// variables.
    pub result: NodeId,
}

/// A type-checked expression.
#[derive(Clone, Debug)]
pub struct CheckedAst {
    /// Syntax tree of the expression.
    pub ast: Ast,
    /// Type of each node; `Type::Error` for nodes that only macro calls refer to.
    pub types: Vec<Type>,
    /// Meaning of each node that is an identifier, qualified selection, call or struct literal.
    pub references: Vec<Option<Reference>>,
}

/// The meaning of a name, as resolved by the checker.
#[derive(Clone, Debug)]
pub enum Reference {
    /// A variable (or a type as a value), by its full name. A chain of selections `a.b` may be one variable.
    Variable(Name),
    /// A named constant with its value.
    Constant(Name, Constant),
    /// The overloads that match the argument types. There are several if an argument of type `dyn` leaves the
    /// choice to run time.
    Call(Box<[Arc<Overload>]>),
    /// The full name of the type of a struct literal.
    Struct(Name),
}

impl Ast {
    /// Returns the node with this id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Returns the kind of the node with this id.
    pub fn kind(&self, id: NodeId) -> &NodeKind {
        &self.nodes[id.index()].kind
    }
}

impl CheckedAst {
    /// Returns the type of the whole expression.
    pub fn result_type(&self) -> &Type {
        &self.types[self.ast.root.index()]
    }

    /// Returns the type of a node.
    pub fn type_of(&self, id: NodeId) -> &Type {
        &self.types[id.index()]
    }

    /// Returns the meaning of a node's name, if it has one.
    pub fn reference(&self, id: NodeId) -> Option<&Reference> {
        self.references[id.index()].as_ref()
    }
}
