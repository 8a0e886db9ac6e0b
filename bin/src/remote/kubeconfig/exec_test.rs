//! Tests of the input of a program, and of its accepted output.

use values::yaml;

use super::*;

fn exec(members: &str, cluster: &str) -> Exec {
    let parse = |text: &str| yaml::parse(text.as_bytes()).unwrap().value;
    let members =
        format!("{{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, {members}}}");
    Exec::read(&parse(&members), &parse(cluster), Path::new("/etc/x"), "u").unwrap()
}

#[test]
fn an_exec_plugin_receives_the_cluster_if_it_requests_it() {
    let cluster = "{server: 'https://a', tls-server-name: b, certificate-authority-data: Q0E=, extensions: [{name: \
                   client.authentication.k8s.io/exec, extension: {audience: x}}]}";
    for (members, want) in [
        ("command: p", r#""spec":{"interactive":false}"#),
        (
            "command: p, provideClusterInfo: true",
            r#""spec":{"cluster":{"server":"https://a","tls-server-name":"b","certificate-authority-data":"Q0E=","config":{"audience":"x"}},"interactive":false}"#,
        ),
    ] {
        let input = exec(members, cluster).input(false);
        let head = r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","#;
        assert_eq!(input, format!("{head}{want}}}"));
    }
    for (command, want) in [("p", "p"), ("./p", "/etc/x/./p"), ("bin/p", "/etc/x/bin/p"), ("/p", "/p")] {
        assert_eq!(exec(&format!("command: {command}"), "{}").command, Path::new(want));
    }
}

#[test]
fn an_exec_plugin_must_print_a_complete_credential_of_its_version() {
    let exec = exec("command: p", "{}");
    let status = |status: &str| {
        format!(
            r#"{{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{status}}}"#
        )
    };
    for (text, want) in [
        (status(r#"{"token":"t"}"#), ""),
        (status(r#"{"clientCertificateData":"c","clientKeyData":"k"}"#), ""),
        (status(r#"{"token":"t","expirationTimestamp":"2030-01-01T00:00:00Z"}"#), ""),
        (status("{}"), "exec plugin didn't return a token or cert/key pair"),
        (status("null"), "exec plugin didn't return a status field"),
        (
            status(r#"{"token":"t","clientKeyData":"k"}"#),
            "exec plugin returned only certificate or key, not both",
        ),
        (status(r#"{"token":"t","expirationTimestamp":"soon"}"#), "exec plugin: \"soon\" is not a time"),
        (
            status(r#"{"token":"t"}"#).replace("/v1", "/v1beta1"),
            "exec plugin is configured to use API version client.authentication.k8s.io/v1, plugin returned version \
             client.authentication.k8s.io/v1beta1",
        ),
        ("secret".to_owned(), "exec plugin: the output is not JSON"),
        ("{}".to_owned(), "exec plugin: the output is not an ExecCredential"),
    ] {
        let got = exec.credential(text.as_bytes()).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(got, want, "{text}");
        assert!(!got.contains("secret"));
    }
}

#[tokio::test]
async fn a_failing_exec_plugin_is_named_with_its_install_hint() {
    for (members, want) in [
        ("command: /no/such, installHint: get it there", "exec: cannot run /no/such: get it there: "),
        ("command: 'false'", "exec: false failed with exit status: 1"),
        ("command: 'true'", "exec plugin: the output is not JSON"),
        ("command: sh, args: [-c, 'head -c 2000000 /dev/zero']", "exec: sh"),
        (
            "command: sh, args: [-c, 'printf %s \"$KUBERNETES_EXEC_INFO\"']",
            "exec plugin didn't return a status",
        ),
    ] {
        let error = format!("{:#}", exec(members, "{}").run().await.err().unwrap());
        assert!(error.starts_with(want), "{members}: {error}");
    }
}
