//! Full names of the schema extensions, for paths and messages of errors.

use values::naming::Naming;

/// Names of the extensions (`x-…-list-type`), built once for each validation.
pub(super) struct ExtensionNames {
    pub(super) preserve_unknown_fields: String,
    pub(super) embedded_resource: String,
    pub(super) int_or_string: String,
    pub(super) list_type: String,
    pub(super) list_map_keys: String,
    pub(super) map_type: String,
    pub(super) validations: String,
}

impl ExtensionNames {
    pub(super) fn new(naming: &Naming) -> ExtensionNames {
        ExtensionNames {
            preserve_unknown_fields: naming.extension("preserve-unknown-fields"),
            embedded_resource: naming.extension("embedded-resource"),
            int_or_string: naming.extension("int-or-string"),
            list_type: naming.extension("list-type"),
            list_map_keys: naming.extension("list-map-keys"),
            map_type: naming.extension("map-type"),
            validations: naming.extension("validations"),
        }
    }
}
