//! The options of a request, for admission plugins, and as a value for webhooks and expressions.

use super::target::Operation;
use types::options::{DeleteOptions, Propagation};
use values::json::{Object, Value};
use values::naming::Naming;
use values::query::{FieldValidation, WriteOptions};

/// The options of a request, by HTTP method.
#[derive(Clone, Copy, Debug)]
pub enum Options<'r> {
    /// No options, as for a connect.
    None,
    /// Options of a POST request.
    Create(&'r WriteOptions),
    /// Options of a PUT request.
    Update(&'r WriteOptions),
    /// Options of a PATCH request of any kind.
    Patch(&'r WriteOptions),
    /// Options of a DELETE request.
    Delete(&'r DeleteOptions),
}

impl Options<'_> {
    /// Returns whether the request is a dry run.
    pub fn dry_run(self) -> bool {
        match self {
            Options::None => false,
            Options::Create(options) | Options::Update(options) | Options::Patch(options) => options.dry_run,
            Options::Delete(options) => options.dry_run,
        }
    }

    /// Returns the options with their kind. For a PUT and a PATCH, `operation` decides whether the kind is
    /// that of create options or of update options.
    pub fn to_value(self, operation: Operation, naming: &Naming) -> Value {
        let mut members = Object::new();
        let mut begin = |kind: &'static str, dry_run: bool| {
            members.push("kind", kind.into());
            members.push("apiVersion", format!("{}/v1", naming.meta_group()).into());
            if dry_run {
                members.push("dryRun", Value::Array(vec!["All".into()]));
            }
        };
        match self {
            Options::None => return Value::Null,
            Options::Delete(options) => {
                begin("DeleteOptions", false);
                push_delete(&mut members, options);
            }
            Options::Create(options) | Options::Update(options) | Options::Patch(options) => {
                let creates = operation == Operation::Create;
                begin(if creates { "CreateOptions" } else { "UpdateOptions" }, options.dry_run);
                push_write(&mut members, options);
            }
        }
        members.into()
    }
}

fn push_write(members: &mut Object, options: &WriteOptions) {
    push_text(members, "fieldManager", &options.field_manager);
    let validation = match options.field_validation {
        FieldValidation::Ignore => "Ignore",
        FieldValidation::Strict => "Strict",
        FieldValidation::Warn if options.names_validation => "Warn",
        FieldValidation::Warn => "",
    };
    push_text(members, "fieldValidation", validation);
}

fn push_delete(members: &mut Object, options: &DeleteOptions) {
    if let Some(seconds) = options.grace_period_seconds {
        members.push("gracePeriodSeconds", seconds.into());
    }
    let mut conditions = Object::new();
    push_text(&mut conditions, "uid", options.uid.as_deref().unwrap_or_default());
    push_text(&mut conditions, "resourceVersion", options.resource_version.as_deref().unwrap_or_default());
    if !conditions.is_empty() {
        members.push("preconditions", conditions.into());
    }
    if let Some(orphan) = options.orphan_dependents {
        members.push("orphanDependents", orphan.into());
    }
    if let Some(propagation) = options.propagation {
        let name = match propagation {
            Propagation::Orphan => "Orphan",
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
        };
        members.push("propagationPolicy", name.into());
    }
    if options.dry_run {
        members.push("dryRun", Value::Array(vec!["All".into()]));
    }
}

fn push_text(object: &mut Object, name: &'static str, text: &str) {
    if !text.is_empty() {
        object.push(name, text.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json::write;
    use values::naming::KUBERNETES;

    #[test]
    fn options_passed_to_plugins_have_the_kind_of_the_operation() {
        let given = WriteOptions { field_manager: "m".to_owned(), dry_run: true, ..WriteOptions::default() };
        let delete = DeleteOptions {
            grace_period_seconds: Some(0),
            uid: Some("u".to_owned()),
            propagation: Some(Propagation::Orphan),
            ..DeleteOptions::default()
        };
        let written = |kind: &str| {
            format!(
                r#"{{"kind":"{kind}","apiVersion":"meta.k8s.io/v1","dryRun":["All"],"fieldManager":"m"}}"#
            )
        };
        let deleted = r#"{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1","gracePeriodSeconds":0,"preconditions":{"uid":"u"},"propagationPolicy":"Orphan"}"#;
        for (options, operation, want) in [
            (Options::None, Operation::Connect, "null"),
            (Options::Create(&given), Operation::Create, &written("CreateOptions")),
            (Options::Update(&given), Operation::Update, &written("UpdateOptions")),
            (Options::Patch(&given), Operation::Update, &written("UpdateOptions")),
            (Options::Patch(&given), Operation::Create, &written("CreateOptions")),
            (Options::Delete(&delete), Operation::Delete, deleted),
        ] {
            let mut shown = Vec::new();
            write(&options.to_value(operation, &KUBERNETES), &mut shown);
            assert_eq!(String::from_utf8(shown).unwrap(), want, "{options:?}");
        }
    }
}
