//! Checks of literal arguments: an argument that is always invalid is an error of the expression.

use crate::ast::{CheckedAst, Constant, NodeId, NodeKind};
use crate::library::regex;
use crate::timestamp::Timestamp;

/// Checks the text of `duration('…')`.
pub(super) fn duration(checked: &CheckedAst, call: NodeId) -> Option<(NodeId, String)> {
    first_argument(checked, call, "duration", |constant| match constant {
        Constant::String(text) => go::duration::parse(text).is_ok(),
        _ => true,
    })
}

/// Checks the text of `timestamp('…')`.
pub(super) fn timestamp(checked: &CheckedAst, call: NodeId) -> Option<(NodeId, String)> {
    first_argument(checked, call, "timestamp", |constant| match constant {
        Constant::String(text) => Timestamp::parse(text).is_ok(),
        Constant::Int(seconds) => Timestamp::from_seconds(*seconds).is_some(),
        _ => true,
    })
}

/// Checks the pattern of `text.matches('…')`. For the global form, the reference checks the text instead of
/// the pattern.
pub(super) fn matches(checked: &CheckedAst, call: NodeId) -> Option<(NodeId, String)> {
    first_argument(checked, call, "matches", |constant| match constant {
        Constant::String(text) => regex::compile(text).is_ok(),
        _ => true,
    })
}

/// Checks the first argument, not counting a receiver, if it is a literal.
fn first_argument(
    checked: &CheckedAst,
    call: NodeId,
    function: &str,
    is_valid: impl FnOnce(&Constant) -> bool,
) -> Option<(NodeId, String)> {
    let NodeKind::Call { args, .. } = checked.ast.kind(call) else { return None };
    let arg = *args.first()?;
    match checked.ast.kind(arg) {
        NodeKind::Literal(constant) if !is_valid(constant) => {
            Some((arg, format!("invalid {function} argument")))
        }
        _ => None,
    }
}
