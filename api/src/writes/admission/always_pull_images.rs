//! The plugin AlwaysPullImages: the node pulls images for every pod with the credentials of that pod.
//! Therefore a pod without the credentials cannot use an image that another pod on the node pulled.

use std::collections::HashSet;

use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::pod;
use values::field::FieldError;
use values::json::{Object, Value};
use values::status::Status;

/// The lists of containers, in the order in which error messages name them.
const LISTS: [&str; 3] = [pod::INIT, pod::MAIN, pod::EPHEMERAL];

const ALWAYS: &str = "Always";

/// The admission plugin AlwaysPullImages.
pub struct AlwaysPullImages;

/// Returns the images of the containers and volumes of a pod.
fn images(pod: &Object) -> HashSet<&str> {
    let containers = LISTS.iter().flat_map(|list| pod::list(pod, list)).map(|c| c.str_at(&["image"]));
    let volumes = pod::list(pod, "volumes").iter().map(|volume| volume.str_at(&["image", "reference"]));
    containers.chain(volumes.filter(|image| !image.is_empty())).collect()
}

/// Returns whether an update adds no image to the pod.
fn adds_no_image(new: &Object, old: Option<&Object>) -> bool {
    old.is_some_and(|old| images(new).is_subset(&images(old)))
}

fn complete(new: &mut Object) {
    for list in LISTS {
        for container in pod::list_mut(new, list) {
            container.insert("imagePullPolicy", ALWAYS.into());
        }
    }
    for volume in pod::list_mut(new, "volumes") {
        if let Some(image) = volume.get_mut("image").and_then(Value::as_object_mut) {
            image.insert("pullPolicy", ALWAYS.into());
        }
    }
}

fn check(record: &AdmissionRecord<'_, &Object>) -> Result<(), Status> {
    let Some(new) = record.new.filter(|new| !adds_no_image(new, record.old)) else { return Ok(()) };
    let mut faults = Vec::new();
    let mut refuse = |path: String, policy: &str| {
        faults.push(FieldError::not_supported(path, &policy.into(), &[ALWAYS]).to_string());
    };
    for list in LISTS {
        for (at, container) in pod::list(new, list).iter().enumerate() {
            match container.str_at(&["imagePullPolicy"]) {
                ALWAYS => {}
                other => refuse(format!("spec.{list}[{at}].imagePullPolicy"), other),
            }
        }
    }
    for (at, volume) in pod::list(new, "volumes").iter().enumerate() {
        let Some(image) = volume.get("image").filter(|image| !image.is_null()) else { continue };
        match image.str_at(&["pullPolicy"]) {
            ALWAYS => {}
            other => refuse(format!("spec.volumes[{at}].image.pullPolicy"), other),
        }
    }
    go::join_errors(&faults).map_or(Ok(()), |faults| Err(record.forbidden(&faults)))
}

impl Plugin for AlwaysPullImages {
    fn handles(&self, target: &Target<'_>) -> bool {
        matches!(target.operation, Operation::Create | Operation::Update) && target.is("", "pods")
    }

    fn mutate<'p>(&'p self, record: &'p mut AdmissionRecord<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        if let Some(new) = &mut record.new
            && !adds_no_image(new, record.old)
        {
            complete(new);
        }
        Ok(()).into()
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        check(record).into()
    }
}
