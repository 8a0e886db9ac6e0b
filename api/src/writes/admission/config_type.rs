//! The types of the plugin configurations.

use auth::strict::{MemberType, Object};

use wire::config_type::ConfigType;

/// The type of the configuration of a plugin.
pub(super) struct PluginConfig {
    pub(super) config_type: ConfigType,
    /// Whether the values of the members are checked when the plugin is initialized, instead of when the plugin
    /// is created.
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
                ("defaults", MemberType::Object(&POD_SECURITY_DEFAULTS)),
                ("exemptions", MemberType::Object(&POD_SECURITY_EXEMPTIONS)),
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
            members: &[API_VERSION, KIND, ("limits", MemberType::List(&MemberType::Object(&LIMIT)))],
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
                ("default", MemberType::List(&MemberType::Object(&TOLERATION))),
                ("whitelist", MemberType::List(&MemberType::Object(&TOLERATION))),
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
            members: &[
                API_VERSION,
                KIND,
                ("limitedResources", MemberType::List(&MemberType::Object(&LIMITED))),
            ],
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
            members: &[API_VERSION, KIND, ("kubeConfigFile", MemberType::Text)],
        },
        is_implied: false,
    },
    is_checked_late: false,
};

const API_VERSION: (&str, MemberType) = ("apiVersion", MemberType::Text);
const KIND: (&str, MemberType) = ("kind", MemberType::Text);
const TEXTS: MemberType = MemberType::List(&MemberType::Text);

const POD_SECURITY_DEFAULTS: Object = Object {
    name: "PodSecurityDefaults",
    members: &[
        ("enforce", MemberType::Text),
        ("enforce-version", MemberType::Text),
        ("audit", MemberType::Text),
        ("audit-version", MemberType::Text),
        ("warn", MemberType::Text),
        ("warn-version", MemberType::Text),
    ],
};

const POD_SECURITY_EXEMPTIONS: Object = Object {
    name: "PodSecurityExemptions",
    members: &[("usernames", TEXTS), ("namespaces", TEXTS), ("runtimeClasses", TEXTS)],
};

const LIMIT: Object = Object {
    name: "Limit",
    members: &[
        ("type", MemberType::Text),
        ("qps", MemberType::Int32),
        ("burst", MemberType::Int32),
        ("cacheSize", MemberType::Int32),
    ],
};

const TOLERATION: Object = Object {
    name: "Toleration",
    members: &[
        ("key", MemberType::Text),
        ("operator", MemberType::Text),
        ("value", MemberType::Text),
        ("effect", MemberType::Text),
        ("tolerationSeconds", MemberType::Int64),
    ],
};

const LIMITED: Object = Object {
    name: "LimitedResource",
    members: &[
        ("apiGroup", MemberType::Text),
        ("resource", MemberType::Text),
        ("matchContains", TEXTS),
        ("matchScopes", MemberType::List(&MemberType::Object(&SCOPE))),
    ],
};

const SCOPE: Object = Object {
    name: "ScopedResourceSelectorRequirement",
    members: &[("scopeName", MemberType::Text), ("operator", MemberType::Text), ("values", TEXTS)],
};

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::KUBERNETES;

    #[test]
    fn a_plugin_configuration_must_have_the_type_of_its_plugin() {
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
