//! The reader of values without a schema.

use values::json::{Tree, plain_number};

/// Reader of values without a schema.
pub(super) const RAW: Tree<'static> = Tree::with_floats(plain_number);
