//! The configuration of the two webhook plugins: a kubeconfig file that says who this server is to webhooks
//! (docs/api/webhooks.md#credentials).

use crate::values::field::{FieldError, go_quote};
use crate::values::json::{self, Object, Value};
use crate::values::naming;
use crate::wire::body::untyped;
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
    check_type(config)?;
    let members = config.as_object().into_iter().flat_map(Object::iter).map(|(name, _)| name);
    let unknown = members.filter(|name| !MEMBERS.contains(name));
    let unknown: Vec<String> = unknown.map(|name| format!("unknown field {}", go_quote(name))).collect();
    if !unknown.is_empty() {
        return Err(format!("strict decoding error: {}", unknown.join(", ")));
    }
    if let Some(other) =
        config.get("kubeConfigFile").filter(|file| !file.is_null() && file.as_str().is_none())
    {
        let found = other.go_kind();
        return Err(format!(
            "json: cannot unmarshal {found} into Go struct field WebhookAdmission.kubeConfigFile of type string"
        ));
    }
    let file = config.str_at(&["kubeConfigFile"]);
    if !file.starts_with('/') {
        let detail = "must be an absolute file path";
        return Err(FieldError::invalid("kubeConfigFile", &file.into(), detail).to_string());
    }
    files.identities(file).map(known)
}

/// Whether a document says that it is a configuration of webhooks, in one of its versions.
fn check_type(config: &Value) -> Result<(), String> {
    if let Some(why) = untyped(config) {
        return Err(why);
    }
    let (kind, version) = (config.str_at(&["kind"]), config.str_at(&["apiVersion"]));
    if let Some((name, _)) =
        [("Kind", kind), ("apiVersion", version)].into_iter().find(|(_, text)| text.is_empty())
    {
        let mut text = Vec::new();
        json::write_sorted(config, &mut text);
        return Err(format!("Object '{name}' is missing in '{}'", String::from_utf8_lossy(&text)));
    }
    let is_known = [("WebhookAdmissionConfiguration", "v1"), ("WebhookAdmission", "v1alpha1")]
        .into_iter()
        .any(|(known, served)| {
            let is_served =
                |words: &&naming::Naming| words.api_version("apiserver.config", true, served) == version;
            kind == known && naming::ALL.iter().any(is_served)
        });
    if is_known {
        return Ok(());
    }
    let [kind, version] = [kind, version].map(go_quote);
    Err(format!("no kind {kind} is registered for version {version} {SCHEME}"))
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
            ("{b: 1, a: x}", "Object 'Kind' is missing in '{\"a\":\"x\",\"b\":1}'"),
            (
                "{kind: WebhookAdmissionConfiguration}",
                "Object 'apiVersion' is missing in '{\"kind\":\"WebhookAdmissionConfiguration\"}'",
            ),
            (
                "{apiVersion: apiserver.config.k8s.io/v2, kind: WebhookAdmissionConfiguration}",
                "no kind \"WebhookAdmissionConfiguration\" is registered for version \"apiserver.config.k8s.io/v2\" in \
                 scheme \"k8s.io/apiserver/pkg/admission/plugin/webhook/config/kubeconfig.go:34\"",
            ),
            (
                "{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, more: 1}",
                "strict decoding error: unknown field \"more\"",
            ),
            (
                "{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: 5}",
                "json: cannot unmarshal number into Go struct field WebhookAdmission.kubeConfigFile of type string",
            ),
            (
                "{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: a}",
                "kubeConfigFile: Invalid value: \"a\": must be an absolute file path",
            ),
            (
                "{apiVersion: apiserver.config.k8s.io/v1alpha1, kind: WebhookAdmission, kubeConfigFile: /a}",
                "stat /a: no such file or directory",
            ),
        ] {
            let config = yaml::parse(text.as_bytes()).unwrap().value;
            assert_eq!(read(Some(&config), &Named).err().unwrap_or_default(), want, "{text}");
        }
        assert!(read(None, &Named).is_ok());
    }
}
