//! Validation ends with readable errors for every object of a built-in kind, whatever its contents are.

use objects::validation::{self, Settings};
use types::schema::decode::decode;
use types::schema::defaults;
use types::schema::table::ResourceTable;
use values::field::FieldError;
use values::naming::CLUSTER;

use super::selectors::some_resource;
use crate::document;
use crate::input::Input;

/// The default settings of a server.
const SETTINGS: Settings = Settings::new(&CLUSTER);

/// Maximum number of errors that are collected before validation stops, plus the errors of the last step.
const FAULTS_MAX: usize = 1000;

/// Builds two objects of a resource by schema: validates each as a new object, and the second as an update of
/// the first.
pub fn validate(data: &[u8]) {
    let mut input = Input::new(data);
    let resource = some_resource(&mut input);
    let Some(first) = object(resource, &mut input) else { return };
    check(&validation::create(resource, SETTINGS, &first));
    check(&validation::update(resource, SETTINGS, &first, &first));
    let Some(mut second) = object(resource, &mut input) else { return };
    validation::prepare_update(resource, &mut second, &first);
    check(&validation::create(resource, SETTINGS, &second));
    check(&validation::update(resource, SETTINGS, &second, &first));
    for subresource in &*resource.subresources {
        check(&validation::update_through(subresource.name, resource, SETTINGS, &second, &first).errors);
    }
}

fn object(resource: &ResourceTable, input: &mut Input) -> Option<values::json::Object> {
    let mut object = decode(&resource.message, &document::object(&resource.message, input)).ok()?.object;
    defaults::apply(&resource.message, &mut object, &CLUSTER);
    validation::prepare(resource, &mut object);
    Some(object)
}

fn check(faults: &[FieldError]) {
    assert!(faults.len() <= FAULTS_MAX, "{} faults", faults.len());
    for fault in faults {
        assert!(!fault.to_string().is_empty());
    }
}
