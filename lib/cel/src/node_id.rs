//! References to the nodes of a syntax tree, for trees and for errors about a node.

/// The index of a node in [`Ast::nodes`](crate::ast::Ast::nodes).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Returns the index into [`Ast::nodes`](crate::ast::Ast::nodes) and into every vector parallel to it.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
