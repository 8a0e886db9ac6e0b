//! Values of flags in environment variables: `CLUSTER_APISERVER_SECURE_PORT` for `--secure-port`.
//!
//! A variable with the prefix but without a matching flag is an error, so that the operator notices typing errors.
//! There are two exceptions: the variables that Kubernetes sets in pods for a service that is named like the server,
//! and the mode of a test control plane, which is set for all programs of a test.

use super::{Field, FlagValues, Origin, SourceError, unknown};

/// Prefix of the variables.
const PREFIX: &str = "CLUSTER_APISERVER_";

/// Variable that selects the mode of the stand-in for kube-apiserver in a test control plane.
pub const ENVTEST_MODE: &str = "CLUSTER_APISERVER_ENVTEST_MODE";

/// Returns the name of the variable of a flag.
fn variable_of(flag: &str) -> String {
    format!("{PREFIX}{}", flag.replace('-', "_").to_ascii_uppercase())
}

/// Returns the values of flags in environment variables, and an error for each variable that has the prefix but no
/// matching flag. An empty variable is ignored.
pub fn read_environment(
    variables: impl Iterator<Item = (String, String)>,
    fields: &[Field],
) -> (Vec<FlagValues>, Vec<SourceError>) {
    let (mut given, mut errors) = (Vec::new(), Vec::new());
    for (name, value) in variables {
        let Some(rest) = name.strip_prefix(PREFIX).filter(|_| !value.is_empty()) else { continue };
        let origin = Origin::Environment(name.clone());
        let flag = rest.replace('_', "-").to_ascii_lowercase();
        if fields.iter().any(|field| field.name == flag) && variable_of(&flag) == name {
            given.push(FlagValues { flag, values: vec![value], origin });
        } else if !is_of_service(rest) && name != ENVTEST_MODE {
            let (why, accepted) = unknown(fields, &flag);
            let accepted = if fields.iter().any(|field| field.name == accepted) {
                variable_of(&accepted)
            } else {
                accepted
            };
            errors.push(SourceError { origin, field: flag, value: String::new(), why, accepted });
        }
    }
    given.sort_by(|a, b| a.flag.cmp(&b.flag));
    errors.sort_by(|a, b| a.field.cmp(&b.field));
    (given, errors)
}

/// Returns whether `rest` is the end of the name of a variable that Kubernetes sets for a service, such as
/// `SERVICE_HOST`, `SERVICE_PORT_HTTPS` or `PORT_443_TCP_ADDR`.
fn is_of_service(rest: &str) -> bool {
    rest == "PORT"
        || rest.starts_with("PORT_")
        || rest.ends_with("SERVICE_HOST")
        || rest.ends_with("SERVICE_PORT")
        || rest.contains("SERVICE_PORT_")
}
