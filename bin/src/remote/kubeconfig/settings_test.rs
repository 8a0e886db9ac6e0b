//! Tests of reading kubeconfig files, and of refused settings.

use std::fs;

use super::*;
use crate::host::files::scratch::Scratch;

const CONFIG: &str = "\
current-context: b
contexts:
- {name: a, context: {cluster: none, user: none}}
- {name: b, context: {cluster: c, user: u}}
clusters:
- name: c
  cluster: {server: 'https://api.example/base', certificate-authority: ca.pem}
users:
- name: u
  user: {tokenFile: sub/token}
";

#[test]
fn kubeconfig_files_are_relative_to_the_kubeconfig_and_may_be_json() {
    let dir = Scratch::new();
    fs::create_dir(dir.join("sub")).unwrap();
    for (name, text) in [("config", CONFIG), ("ca.pem", "CA"), ("sub/token", "secret\n")] {
        fs::write(dir.join(name), text).unwrap();
    }
    let read = || {
        let settings = Settings::read(&dir.join("config")).unwrap();
        let Material { authorities, identity: Identity { certificate, token, password } } =
            settings.material().unwrap();
        assert!(certificate.is_none() && password.is_none());
        (settings.server, String::from_utf8(authorities.unwrap()).unwrap(), token)
    };
    let server = || "https://api.example/base".to_owned();
    assert_eq!(read(), (server(), "CA".to_owned(), Some("secret".to_owned())));
    let json = r#"{"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c", "user": ""}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api.example/base",
        "certificate-authority-data": "Q0E="}}]}"#;
    for data in ["Q0E=", "Q0\\nE=\\n"] {
        fs::write(dir.join("config"), json.replace("Q0E=", data)).unwrap();
        assert_eq!(read(), (server(), "CA".to_owned(), None), "{data}");
    }
}

#[test]
fn a_kubeconfig_user_may_impersonate_another_user() {
    let user = "{as: jane, as-uid: '7', as-groups: [a, b], as-user-extra: {Ex.org/K: [v, w]}}";
    let headers = acting_as(&yaml::parse(user.as_bytes()).unwrap().value).unwrap();
    let headers: Vec<String> = headers.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let want = "impersonate-user=jane impersonate-uid=7 impersonate-group=a impersonate-group=b \
                impersonate-extra-ex.org%2Fk=v impersonate-extra-ex.org%2Fk=w";
    assert_eq!(headers.join(" "), want);
}

#[test]
fn unusable_kubeconfig_settings_are_reported_in_one_line() {
    let dir = Scratch::new();
    fs::write(dir.join("ca.pem"), "CA").unwrap();
    let path = dir.join("config");
    let exec = |members: &str| format!("exec: {{command: x, {members}}}");
    let v1 = "apiVersion: client.authentication.k8s.io/v1";
    for (from, to, want) in [
        ("", String::new(), "DIR/sub/token does not exist"),
        ("current-context: b", String::new(), "current-context is not set"),
        ("current-context: b", "current-context: d".to_owned(), "there is no context \"d\""),
        ("current-context: b", "current-context: a".to_owned(), "there is no cluster \"none\""),
        ("server: 'https://api.example/base', ", String::new(), "cluster \"c\" has no server"),
        (
            "certificate-authority: ca.pem",
            "certificate-authority-data: '!'".to_owned(),
            "certificate-authority-data is not base64: illegal base64 data at input byte 0",
        ),
        (
            "certificate-authority: ca.pem",
            "certificate-authority: ca.pem, insecure-skip-tls-verify: true".to_owned(),
            "specifying a root certificates file with the insecure flag is not allowed",
        ),
        (
            "tokenFile: sub/token",
            "client-certificate-data: Q0E=".to_owned(),
            "user \"u\" has a client-certificate without a client-key",
        ),
        ("tokenFile", "username: a, tokenFile".to_owned(), "user \"u\" has both a token and a password"),
        (
            "tokenFile: sub/token",
            "as-groups: [a]".to_owned(),
            "user \"u\": requesting groups, uid or extra values without impersonating a user name",
        ),
        (
            "tokenFile: sub/token",
            "auth-provider: {name: x}".to_owned(),
            "auth-provider of \"u\" is not supported here: use exec, a token or a certificate",
        ),
        ("tokenFile: sub/token", "exec: {}".to_owned(), "exec of \"u\" has no command"),
        ("tokenFile: sub/token", exec(""), "exec of \"u\" has no apiVersion"),
        (
            "tokenFile: sub/token",
            exec("apiVersion: client.authentication.k8s.io/v1alpha1"),
            "exec plugin: invalid apiVersion \"client.authentication.k8s.io/v1alpha1\"",
        ),
        (
            "tokenFile: sub/token",
            exec(v1),
            "interactiveMode must be specified for u to use exec authentication plugin",
        ),
        (
            "tokenFile: sub/token",
            exec(&format!("{v1}, interactiveMode: Sometimes")),
            "invalid interactiveMode for u: \"Sometimes\"",
        ),
        (
            "tokenFile: sub/token",
            exec(&format!("{v1}, interactiveMode: Never, env: [{{value: x}}]")),
            "env variable name must be specified for u",
        ),
    ] {
        let text = CONFIG.replacen(from, &to, 1);
        fs::write(&path, if from.is_empty() { CONFIG } else { &text }).unwrap();
        let error = match Settings::read(&path) {
            Ok(settings) => settings.material().map(drop).unwrap_err(),
            Err(error) => error,
        };
        let shown = format!("{error:#}").replace(&dir.display().to_string(), "DIR");
        let shown = shown.strip_prefix("DIR/config: ").unwrap_or(&shown);
        assert_eq!(shown, want);
    }
    fs::write(&path, "users: [").unwrap();
    let error = format!("{:#}", Settings::read(&path).err().unwrap());
    assert!(error.contains("config: yaml: line ") && error.lines().count() == 1, "{error}");
    assert_eq!(
        format!("{:#}", Settings::read(&dir.join("none")).err().unwrap()),
        format!("{} does not exist", dir.join("none").display())
    );
}
