//! Values of flags in environment variables: `CLUSTER_APISERVER_SECURE_PORT` for `--secure-port`.
//!
//! A variable with the prefix that names no flag is an error, so that a typing error does not go unnoticed. Exceptions are
//! the variables that Kubernetes sets in a pod for a service with the name of the server.

use super::{Field, Given, Origin, SourceError, unknown};

/// Prefix of the variables.
const PREFIX: &str = "CLUSTER_APISERVER_";

/// Returns the name of the variable of a flag.
fn variable_of(flag: &str) -> String {
    format!("{PREFIX}{}", flag.replace('-', "_").to_ascii_uppercase())
}

/// Returns the values of flags among the variables of the environment, and an error for each variable that has the prefix
/// and names no flag. An empty variable counts as absent.
pub fn read_environment(
    variables: impl Iterator<Item = (String, String)>,
    fields: &[Field],
) -> (Vec<Given>, Vec<SourceError>) {
    let (mut given, mut errors) = (Vec::new(), Vec::new());
    for (name, value) in variables {
        let Some(rest) = name.strip_prefix(PREFIX).filter(|_| !value.is_empty()) else { continue };
        let origin = Origin::Environment(name.clone());
        let flag = rest.replace('_', "-").to_ascii_lowercase();
        if fields.iter().any(|field| field.name == flag) && variable_of(&flag) == name {
            given.push(Given { flag, values: vec![value], origin });
        } else if !is_of_service(rest) {
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

/// Returns whether Kubernetes sets a variable with this end for a service: `SERVICE_HOST`, `SERVICE_PORT_HTTPS`,
/// `PORT_443_TCP_ADDR`.
fn is_of_service(rest: &str) -> bool {
    rest == "PORT"
        || rest.starts_with("PORT_")
        || rest.ends_with("SERVICE_HOST")
        || rest.ends_with("SERVICE_PORT")
        || rest.contains("SERVICE_PORT_")
}
