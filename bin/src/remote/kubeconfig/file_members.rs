//! The members of a kubeconfig file, with the names of their types for errors.

use auth::strict::{MemberType, Object};
use values::json::Value;

/// The members of the whole file.
pub(super) static CONFIG: Object = Object {
    name: "Config",
    members: &[
        ("kind", MemberType::Text),
        ("apiVersion", MemberType::Text),
        ("clusters", MemberType::List(&MemberType::Object(&NAMED_CLUSTER))),
        ("users", MemberType::List(&MemberType::Object(&NAMED_USER))),
        ("contexts", MemberType::List(&MemberType::Object(&NAMED_CONTEXT))),
        ("current-context", MemberType::Text),
    ],
};
static NAMED_CLUSTER: Object = Object {
    name: "NamedCluster",
    members: &[("name", MemberType::Text), ("cluster", MemberType::Object(&CLUSTER))],
};
static CLUSTER: Object = Object {
    name: "Cluster",
    members: &[
        ("server", MemberType::Text),
        ("tls-server-name", MemberType::Text),
        ("insecure-skip-tls-verify", MemberType::Flag),
        ("certificate-authority", MemberType::Text),
        ("certificate-authority-data", MemberType::Bytes),
        ("proxy-url", MemberType::Text),
        ("disable-compression", MemberType::Flag),
    ],
};
static NAMED_USER: Object = Object {
    name: "NamedAuthInfo",
    members: &[("name", MemberType::Text), ("user", MemberType::Object(&USER))],
};
static USER: Object = Object {
    name: "AuthInfo",
    members: &[
        ("client-certificate", MemberType::Text),
        ("client-certificate-data", MemberType::Bytes),
        ("client-key", MemberType::Text),
        ("client-key-data", MemberType::Bytes),
        ("token", MemberType::Text),
        ("tokenFile", MemberType::Text),
        ("as", MemberType::Text),
        ("as-uid", MemberType::Text),
        ("as-groups", MemberType::List(&MemberType::Text)),
        ("username", MemberType::Text),
        ("password", MemberType::Text),
        ("exec", MemberType::Object(&EXEC)),
    ],
};
static EXEC: Object = Object {
    name: "ExecConfig",
    members: &[
        ("command", MemberType::Text),
        ("args", MemberType::List(&MemberType::Text)),
        ("env", MemberType::List(&MemberType::Object(&VARIABLE))),
        ("apiVersion", MemberType::Text),
        ("installHint", MemberType::Text),
        ("provideClusterInfo", MemberType::Flag),
        ("interactiveMode", MemberType::Text),
    ],
};
static VARIABLE: Object =
    Object { name: "ExecEnvVar", members: &[("name", MemberType::Text), ("value", MemberType::Text)] };
static NAMED_CONTEXT: Object = Object {
    name: "NamedContext",
    members: &[("name", MemberType::Text), ("context", MemberType::Object(&CONTEXT))],
};
static CONTEXT: Object = Object {
    name: "Context",
    members: &[("cluster", MemberType::Text), ("user", MemberType::Text), ("namespace", MemberType::Text)],
};

/// Returns a member, if it is a string and not empty.
pub(super) fn text_of(value: &Value, name: &str) -> Option<String> {
    Some(value.str_at(&[name]).to_owned()).filter(|text| !text.is_empty())
}
