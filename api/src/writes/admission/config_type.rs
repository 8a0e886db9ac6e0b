//! The types of the plugin configurations.

use auth::strict::{Form, Object};

use wire::config_type::ConfigType;

/// The type of the configuration of a plugin.
pub(super) struct PluginConfig {
    pub(super) config_type: ConfigType,
    /// Whether the meaning of the members is checked when the plugin is initialized, instead of when it is
    /// created.
    pub(super) is_checked_late: bool,
}

/// Type of the configuration of PodSecurity.
pub(super) const POD_SECURITY: PluginConfig = PluginConfig {
    config_type: ConfigType {
        names: &[(
            "pod-security.admission.config",
            &["v1", "v1beta1", "v1alpha1"],
            "PodSecurityConfiguration",
        )],
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
        is_implied: false,
    },
    is_checked_late: true,
};

/// Type of the configuration of EventRateLimit.
pub(super) const EVENT_RATE: PluginConfig = PluginConfig {
    config_type: ConfigType {
        names: &[("eventratelimit.admission", &["v1alpha1"], "Configuration")],
        scheme: "pkg/admission/eventratelimit/config.go:31",
        form: &Object {
            name: "Configuration",
            members: &[API_VERSION, KIND, ("limits", Form::List(&Form::Object(&LIMIT)))],
        },
        is_implied: false,
    },
    is_checked_late: false,
};

/// Type of the configuration of PodTolerationRestriction.
pub(super) const TOLERATIONS: PluginConfig = PluginConfig {
    config_type: ConfigType {
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
        is_implied: false,
    },
    is_checked_late: false,
};

/// Type of the configuration of ResourceQuota.
pub(super) const QUOTA: PluginConfig = PluginConfig {
    config_type: ConfigType {
        names: &[
            ("apiserver.config", &["v1"], "ResourceQuotaConfiguration"),
            ("resourcequota.admission", &["v1", "v1beta1", "v1alpha1"], "Configuration"),
        ],
        scheme: "apiserver/pkg/admission/plugin/resourcequota/config.go:31",
        form: &Object {
            name: "Configuration",
            members: &[API_VERSION, KIND, ("limitedResources", Form::List(&Form::Object(&LIMITED)))],
        },
        is_implied: false,
    },
    is_checked_late: false,
};

/// Type of the configuration of the two webhook plugins.
pub(super) const WEBHOOK: PluginConfig = PluginConfig {
    config_type: ConfigType {
        names: &[
            ("apiserver.config", &["v1"], "WebhookAdmissionConfiguration"),
            ("apiserver.config", &["v1alpha1"], "WebhookAdmission"),
        ],
        scheme: "apiserver/pkg/admission/plugin/webhook/config/kubeconfig.go:34",
        form: &Object {
            name: "WebhookAdmission",
            members: &[API_VERSION, KIND, ("kubeConfigFile", Form::Text)],
        },
        is_implied: false,
    },
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

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::KUBERNETES;

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
            let read = of.config_type.read(text.as_bytes(), &KUBERNETES);
            assert_eq!(read.err().unwrap_or_default(), want, "{text}");
        }
    }
}
