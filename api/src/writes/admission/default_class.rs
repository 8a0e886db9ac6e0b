//! The plugins DefaultStorageClass and DefaultIngressClass: an object that names no class gets the default
//! class. If several classes are marked as default, the newest class is used. If several classes are equally
//! new, the first class by name is used.

use std::sync::Arc;

use super::Parsed;
use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::pod;
use crate::writes::server::Server;
use crate::writes::server::store::ObjectStorage;
use values::json::Object;
use values::object::meta;
use values::status::Status;

/// A kind of object that gets a default class.
struct Kind {
    group: &'static str,
    plural: &'static str,
    /// The member of the specification that names the class.
    field: &'static str,
    /// The annotation that may name the class instead of the field.
    annotation: String,
}

/// The plugin DefaultStorageClass or DefaultIngressClass.
pub struct DefaultClass {
    store: Arc<ObjectStorage>,
    classes: Parsed<Class>,
    kind: Kind,
}

struct Class {
    name: String,
    created: String,
    is_default: bool,
}

impl Class {
    fn parser(marks: Vec<String>) -> impl Fn(&Object) -> Class + Send + Sync + 'static {
        move |object| Class {
            name: meta(object, "name").to_owned(),
            created: meta(object, "creationTimestamp").to_owned(),
            is_default: marks.iter().any(|mark| pod::annotation(object, mark) == Some("true")),
        }
    }
}

impl DefaultClass {
    /// Returns the plugin DefaultStorageClass for volume claims.
    pub fn of_claims(server: &Server) -> DefaultClass {
        let domain = server.types.naming.domain;
        let marks =
            ["storageclass", "storageclass.beta"].map(|part| format!("{part}.{domain}/is-default-class"));
        let classes = server.types.resource("storage", "v1", "storageclasses");
        DefaultClass {
            store: server.store.clone(),
            classes: Parsed::new(&server.store, classes, Class::parser(marks.to_vec())),
            kind: Kind {
                group: "",
                plural: "persistentvolumeclaims",
                field: "storageClassName",
                annotation: format!("volume.beta.{domain}/storage-class"),
            },
        }
    }

    /// Returns the plugin DefaultIngressClass for ingresses.
    pub fn of_ingresses(server: &Server) -> DefaultClass {
        let marks = vec![format!("ingressclass.{}/is-default-class", server.types.naming.domain)];
        let classes = server.types.resource("networking", "v1", "ingressclasses");
        DefaultClass {
            store: server.store.clone(),
            classes: Parsed::new(&server.store, classes, Class::parser(marks)),
            kind: Kind {
                group: "networking",
                plural: "ingresses",
                field: "ingressClassName",
                annotation: server.types.naming.label("ingress.class"),
            },
        }
    }

    fn complete(&self, new: &mut Object) -> Result<(), Status> {
        let field = self.kind.field;
        let names_one = new.get("spec").and_then(|spec| spec.get(field)).is_some_and(|name| !name.is_null());
        if names_one || pod::annotation(new, &self.kind.annotation).is_some() {
            return Ok(());
        }
        let classes = self.classes.list(&self.store, "")?;
        // The list is sorted by name, so the first class by name is used if several classes are equally new.
        let newest = classes
            .iter()
            .filter(|class| class.is_default)
            .reduce(|best, class| if class.created > best.created { class } else { best });
        if let Some(class) = newest {
            new.object_entry("spec").insert(field, class.name.as_str().into());
        }
        Ok(())
    }
}

impl Plugin for DefaultClass {
    fn handles(&self, target: &Target<'_>) -> bool {
        target.operation == Operation::Create && target.is(self.kind.group, self.kind.plural)
    }

    fn mutate<'p>(&'p self, record: &'p mut AdmissionRecord<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        match &mut record.new {
            Some(new) => self.complete(new).into(),
            None => Ok(()).into(),
        }
    }
}
