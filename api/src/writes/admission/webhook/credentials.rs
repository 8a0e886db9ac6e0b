//! The configuration of the two webhook plugins: a kubeconfig file that says who this server is to webhooks
//! (docs/api/webhooks.md#credentials).

use crate::values::field::{FieldError, go_quote};
use crate::values::json::{Object, Value};
use crate::wire::outgoing::Identities;
use crate::writes::admission::settings::Files;

/// Where the reference server says that it looked a kind up.
const SCHEME: &str = "in scheme \"k8s.io/apiserver/pkg/admission/plugin/webhook/config/kubeconfig.go:34\"";

const MEMBERS: [&str; 3] = ["apiVersion", "kind", "kubeConfigFile"];

/// Reads the configuration and the file that it names: who this server is to webhooks, and how it reaches and knows them.
///
/// # Errors
/// What is wrong with one of them.
pub(super) fn read(config: Option<&Value>, files: &dyn Files) -> Result<Identities, String> {
    let known =
        |identities: Identities| identities.believing(files.system_authorities()).reaching(files.networks());
    let Some(config) = config else { return Ok(known(Identities::default())) };
    let (kind, version) = (config.str_at(&["kind"]), config.str_at(&["apiVersion"]));
    if !matches!(kind, "WebhookAdmissionConfiguration" | "WebhookAdmission") {
        let [kind, version] = [kind, version].map(go_quote);
        return Err(format!("no kind {kind} is registered for version {version} {SCHEME}"));
    }
    let members = config.as_object().into_iter().flat_map(Object::iter).map(|(name, _)| name);
    let unknown = members.filter(|name| !MEMBERS.contains(name));
    let unknown: Vec<String> = unknown.map(|name| format!("unknown field {}", go_quote(name))).collect();
    if !unknown.is_empty() {
        return Err(format!("strict decoding error: {}", unknown.join(", ")));
    }
    let file = config.str_at(&["kubeConfigFile"]);
    if !file.starts_with('/') {
        let detail = "must be an absolute file path";
        return Err(FieldError::invalid("kubeConfigFile", &file.into(), detail).to_string());
    }
    files.identities(file).map(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::codec::yaml;

    struct Named;

    impl Files for Named {
        fn read(&self, path: &str) -> Result<Vec<u8>, String> {
            Err(format!("{path} is not read"))
        }
    }

    #[test]
    fn a_configuration_names_a_file() {
        for (text, want) in [
            (
                "{apiVersion: v, kind: Other}",
                "no kind \"Other\" is registered for version \"v\" in scheme \
                 \"k8s.io/apiserver/pkg/admission/plugin/webhook/config/kubeconfig.go:34\"",
            ),
            (
                "{apiVersion: v, kind: WebhookAdmissionConfiguration, more: 1}",
                "strict decoding error: unknown field \"more\"",
            ),
            (
                "{apiVersion: v, kind: WebhookAdmissionConfiguration, kubeConfigFile: a}",
                "kubeConfigFile: Invalid value: \"a\": must be an absolute file path",
            ),
            (
                "{apiVersion: v, kind: WebhookAdmissionConfiguration, kubeConfigFile: /a}",
                "stat /a: no such file or directory",
            ),
        ] {
            let config = yaml::parse(text.as_bytes()).unwrap().value;
            assert_eq!(read(Some(&config), &Named).err().unwrap_or_default(), want, "{text}");
        }
        assert!(read(None, &Named).is_ok());
    }
}
