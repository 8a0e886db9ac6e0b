//! The plan of an undo, and its steps.

use serde::Serialize;

/// An action of an undo.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UndoAction {
    /// Creates a deleted object again.
    Create,
    /// Writes the earlier state of an object that was changed.
    #[default]
    Restore,
    /// Deletes an object that did not exist at the point.
    Delete,
}

/// A step of a plan: an action on one object.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct UndoStep {
    pub action: UndoAction,
    /// Plural name of the type with its group.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    /// Revision of the state that is brought back.
    pub revision: Option<u64>,
    /// Path of the object.
    #[serde(skip)]
    pub path: String,
    /// Uid of the object that is deleted, restored or created again.
    #[serde(skip)]
    pub uid: String,
    /// Uids of the owners of the object.
    #[serde(skip)]
    pub owners: Vec<String>,
    /// Current version of the object; empty if the object does not exist.
    #[serde(skip)]
    pub version: String,
    /// Current fingerprint of the object; 0 if the object does not exist.
    #[serde(skip)]
    pub fingerprint: u64,
    /// Whether the status of the object is a subresource.
    #[serde(skip)]
    pub has_status: bool,
    /// Revision of the point in the store of the object.
    #[serde(skip)]
    pub point_revision: u64,
}

/// The plan of an undo.
#[derive(Debug, Default)]
pub struct UndoPlan {
    /// The steps in their order.
    pub steps: Vec<UndoStep>,
    /// Remarks about objects and types that are left out.
    pub remarks: Vec<String>,
}
