//! The types of the plugins' configurations: what a file must say of itself, and its members.
//!
//! ```text
//! text ─► document ─► kind and version ─► members ─► the plugin, which checks what they mean
//! ```
//!
//! What is wrong is said in the words of the reference server.

use auth::strict::{Form, Object};

use crate::values::field::go_quote;
use crate::values::json::Value;
use crate::values::naming::Naming;
use crate::wire::body::type_of;
use crate::wire::typed;

/// The type of a plugin's configuration.
pub(super) struct ConfigType {
    /// Its names: stem of the group, versions and kind.
    names: &'static [(&'static str, &'static [&'static str], &'static str)],
    /// Where the reference server says that it looked a kind up; in a package of its own where that is named first.
    scheme: &'static str,
    form: &'static Object,
    /// Whether what the members mean is checked when the plugin is initialized, not when it is made.
    pub(super) is_checked_late: bool,
}

/// Of PodSecurity.
pub(super) const POD_SECURITY: ConfigType = ConfigType {
    names: &[("pod-security.admission.config", &["v1", "v1beta1", "v1alpha1"], "PodSecurityConfiguration")],
    scheme: "pod-security-admission/admission/api/scheme/scheme.go:31",
    form: &Object {
        name: "PodSecurityConfiguration",
        members: &[
            API_VERSION,
            KIND,
            ("defaults", Form::Object(&POD_SECURITY_DEFAULTS)),
            ("exemptions", Form::Object(&POD_SECURITY_EXEMPTIONS)),
        ],
    },
    is_checked_late: true,
};

/// Of EventRateLimit.
pub(super) const EVENT_RATE: ConfigType = ConfigType {
    names: &[("eventratelimit.admission", &["v1alpha1"], "Configuration")],
    scheme: "pkg/admission/eventratelimit/config.go:31",
    form: &Object {
        name: "Configuration",
        members: &[API_VERSION, KIND, ("limits", Form::List(&Form::Object(&LIMIT)))],
    },
    is_checked_late: false,
};

/// Of PodTolerationRestriction.
pub(super) const TOLERATIONS: ConfigType = ConfigType {
    names: &[("podtolerationrestriction.admission", &["v1alpha1"], "Configuration")],
    scheme: "pkg/admission/podtolerationrestriction/config.go:32",
    form: &Object {
        name: "Configuration",
        members: &[
            API_VERSION,
            KIND,
            ("default", Form::List(&Form::Object(&TOLERATION))),
            ("whitelist", Form::List(&Form::Object(&TOLERATION))),
        ],
    },
    is_checked_late: false,
};

/// Of ResourceQuota.
pub(super) const QUOTA: ConfigType = ConfigType {
    names: &[
        ("apiserver.config", &["v1"], "ResourceQuotaConfiguration"),
        ("resourcequota.admission", &["v1", "v1beta1", "v1alpha1"], "Configuration"),
    ],
    scheme: "apiserver/pkg/admission/plugin/resourcequota/config.go:31",
    form: &Object {
        name: "Configuration",
        members: &[API_VERSION, KIND, ("limitedResources", Form::List(&Form::Object(&LIMITED)))],
    },
    is_checked_late: false,
};

/// Of the two plugins of webhooks.
pub(super) const WEBHOOK: ConfigType = ConfigType {
    names: &[
        ("apiserver.config", &["v1"], "WebhookAdmissionConfiguration"),
        ("apiserver.config", &["v1alpha1"], "WebhookAdmission"),
    ],
    scheme: "apiserver/pkg/admission/plugin/webhook/config/kubeconfig.go:34",
    form: &Object { name: "WebhookAdmission", members: &[API_VERSION, KIND, ("kubeConfigFile", Form::Text)] },
    is_checked_late: false,
};

const API_VERSION: (&str, Form) = ("apiVersion", Form::Text);
const KIND: (&str, Form) = ("kind", Form::Text);
const TEXTS: Form = Form::List(&Form::Text);

const POD_SECURITY_DEFAULTS: Object = Object {
    name: "PodSecurityDefaults",
    members: &[
        ("enforce", Form::Text),
        ("enforce-version", Form::Text),
        ("audit", Form::Text),
        ("audit-version", Form::Text),
        ("warn", Form::Text),
        ("warn-version", Form::Text),
    ],
};

const POD_SECURITY_EXEMPTIONS: Object = Object {
    name: "PodSecurityExemptions",
    members: &[("usernames", TEXTS), ("namespaces", TEXTS), ("runtimeClasses", TEXTS)],
};

const LIMIT: Object = Object {
    name: "Limit",
    members: &[
        ("type", Form::Text),
        ("qps", Form::Int32),
        ("burst", Form::Int32),
        ("cacheSize", Form::Int32),
    ],
};

const TOLERATION: Object = Object {
    name: "Toleration",
    members: &[
        ("key", Form::Text),
        ("operator", Form::Text),
        ("value", Form::Text),
        ("effect", Form::Text),
        ("tolerationSeconds", Form::Int64),
    ],
};

const LIMITED: Object = Object {
    name: "LimitedResource",
    members: &[
        ("apiGroup", Form::Text),
        ("resource", Form::Text),
        ("matchContains", TEXTS),
        ("matchScopes", Form::List(&Form::Object(&SCOPE))),
    ],
};

const SCOPE: Object = Object {
    name: "ScopedResourceSelectorRequirement",
    members: &[("scopeName", Form::Text), ("operator", Form::Text), ("values", TEXTS)],
};

impl ConfigType {
    /// The document of this type that a text is.
    ///
    /// # Errors
    /// It is none, or of another type.
    pub(super) fn read(&self, text: &[u8], naming: &'static Naming) -> Result<Value, String> {
        let document = typed::parse_named(text)?;
        let (kind, api_version) = type_of(&document);
        let is_own = self.names.iter().any(|(stem, versions, own)| {
            let named = |version: &str| {
                naming.understood().any(|naming| naming.api_version(stem, true, version) == api_version)
            };
            kind == *own && versions.iter().any(|version| named(version))
        });
        if !is_own {
            let scheme = match self.scheme {
                scheme if scheme.starts_with("pkg/") => scheme.to_owned(),
                scheme => naming.own(scheme),
            };
            return Err(format!(
                "no kind {} is registered for version {} in scheme {}",
                go_quote(kind),
                go_quote(api_version),
                go_quote(&scheme)
            ));
        }
        typed::check(text, self.form, api_version.rsplit('/').next().unwrap_or_default())?;
        Ok(document)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::naming::KUBERNETES;

    #[test]
    fn configurations_are_of_the_type_of_their_plugin() {
        let events = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n";
        for (of, text, want) in [
            (&EVENT_RATE, format!("{events}limits: []"), ""),
            (&EVENT_RATE, "a: b".to_owned(), "Object 'Kind' is missing in 'a: b'"),
            (
                &EVENT_RATE,
                "kind: Configuration".to_owned(),
                "Object 'apiVersion' is missing in 'kind: Configuration'",
            ),
            (
                &EVENT_RATE,
                events.replace("v1alpha1", "v1"),
                "no kind \"Configuration\" is registered for version \"eventratelimit.admission.k8s.io/v1\" in scheme \
                 \"pkg/admission/eventratelimit/config.go:31\"",
            ),
            (
                &EVENT_RATE,
                format!("{events}limits: [{{qps: x}}]"),
                "json: cannot unmarshal string into Go struct field Limit.limits.qps of type int32",
            ),
            (
                &EVENT_RATE,
                format!("{events}limits: [{{cacheSize: 3000000000}}]"),
                "json: cannot unmarshal number 3000000000 into Go struct field Limit.limits.cacheSize of type int32",
            ),
            (
                &EVENT_RATE,
                format!("{events}limits: [{{more: x}}]"),
                "strict decoding error: unknown field \"limits[0].more\"",
            ),
            (
                &QUOTA,
                "apiVersion: resourcequota.admission.k8s.io/v1beta1\nkind: Configuration".to_owned(),
                "",
            ),
            (
                &QUOTA,
                "apiVersion: apiserver.config.k8s.io/v1\nkind: ResourceQuotaConfiguration".to_owned(),
                "",
            ),
            (
                &WEBHOOK,
                "apiVersion: apiserver.config.k8s.io/v1\nkind: WebhookAdmissionConfiguration\nmore: 1"
                    .to_owned(),
                "strict decoding error: unknown field \"more\"",
            ),
            (
                &WEBHOOK,
                "apiVersion: apiserver.config.k8s.io/v1alpha1\nkind: WebhookAdmission\nkubeConfigFile: 5"
                    .to_owned(),
                "json: cannot unmarshal number into Go struct field WebhookAdmission.kubeConfigFile of type string",
            ),
            (
                &WEBHOOK,
                "apiVersion: v\nkind: Other".to_owned(),
                "no kind \"Other\" is registered for version \"v\" in scheme \
                 \"k8s.io/apiserver/pkg/admission/plugin/webhook/config/kubeconfig.go:34\"",
            ),
            (
                &POD_SECURITY,
                "apiVersion: v1\nkind: ConfigMap".to_owned(),
                "no kind \"ConfigMap\" is registered for version \"v1\" in scheme \
                 \"k8s.io/pod-security-admission/admission/api/scheme/scheme.go:31\"",
            ),
        ] {
            let read = of.read(text.as_bytes(), &KUBERNETES);
            assert_eq!(read.err().unwrap_or_default(), want, "{text}");
        }
    }
}
