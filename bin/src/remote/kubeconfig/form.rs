//! The members of a kubeconfig file, with the types that errors about them name.

use auth::strict::{Form, Object};
use values::json::Value;

/// The members of the whole file.
pub(super) static CONFIG: Object = Object {
    name: "Config",
    members: &[
        ("kind", Form::Text),
        ("apiVersion", Form::Text),
        ("clusters", Form::List(&Form::Object(&NAMED_CLUSTER))),
        ("users", Form::List(&Form::Object(&NAMED_USER))),
        ("contexts", Form::List(&Form::Object(&NAMED_CONTEXT))),
        ("current-context", Form::Text),
    ],
};
static NAMED_CLUSTER: Object =
    Object { name: "NamedCluster", members: &[("name", Form::Text), ("cluster", Form::Object(&CLUSTER))] };
static CLUSTER: Object = Object {
    name: "Cluster",
    members: &[
        ("server", Form::Text),
        ("tls-server-name", Form::Text),
        ("insecure-skip-tls-verify", Form::Flag),
        ("certificate-authority", Form::Text),
        ("certificate-authority-data", Form::Bytes),
        ("proxy-url", Form::Text),
        ("disable-compression", Form::Flag),
    ],
};
static NAMED_USER: Object =
    Object { name: "NamedAuthInfo", members: &[("name", Form::Text), ("user", Form::Object(&USER))] };
static USER: Object = Object {
    name: "AuthInfo",
    members: &[
        ("client-certificate", Form::Text),
        ("client-certificate-data", Form::Bytes),
        ("client-key", Form::Text),
        ("client-key-data", Form::Bytes),
        ("token", Form::Text),
        ("tokenFile", Form::Text),
        ("as", Form::Text),
        ("as-uid", Form::Text),
        ("as-groups", Form::List(&Form::Text)),
        ("username", Form::Text),
        ("password", Form::Text),
        ("exec", Form::Object(&EXEC)),
    ],
};
static EXEC: Object = Object {
    name: "ExecConfig",
    members: &[
        ("command", Form::Text),
        ("args", Form::List(&Form::Text)),
        ("env", Form::List(&Form::Object(&VARIABLE))),
        ("apiVersion", Form::Text),
        ("installHint", Form::Text),
        ("provideClusterInfo", Form::Flag),
        ("interactiveMode", Form::Text),
    ],
};
static VARIABLE: Object =
    Object { name: "ExecEnvVar", members: &[("name", Form::Text), ("value", Form::Text)] };
static NAMED_CONTEXT: Object =
    Object { name: "NamedContext", members: &[("name", Form::Text), ("context", Form::Object(&CONTEXT))] };
static CONTEXT: Object = Object {
    name: "Context",
    members: &[("cluster", Form::Text), ("user", Form::Text), ("namespace", Form::Text)],
};

/// Returns a member that is a string and not empty.
pub(super) fn text_of(value: &Value, name: &str) -> Option<String> {
    Some(value.str_at(&[name]).to_owned()).filter(|text| !text.is_empty())
}
