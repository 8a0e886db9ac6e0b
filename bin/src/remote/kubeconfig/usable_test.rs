//! Tests of kubeconfig files of webhooks, and of the messages for invalid files.

use std::fs;

use super::*;
use crate::host::files::scratch::Scratch;

const CONFIG: &str = "\
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: 'https://a.example'}}]
users: [{name: u, user: {token: t}}]
";

#[test]
fn an_unusable_kubeconfig_has_the_error_texts_of_client_go() {
    let dir = Scratch::new();
    let path = dir.join("config");
    let none = || format!("invalid configuration: {NO_CONFIGURATION}");
    let invalid = |why: &str| format!("invalid configuration: {why}");
    let loading = |why: &str| format!("error loading config file \"FILE\": {why}");
    let untyped = |kind: &str| {
        loading(&format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {kind} into Go value of type struct {{ \
             APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        ))
    };
    for (from, to, want) in [
        ("", "", String::new()),
        (CONFIG, "", none()),
        (CONFIG, "hello", untyped("string")),
        (CONFIG, "[]", untyped("array")),
        ("current-context: x", "", none()),
        ("cluster: c,", "", none()),
        ("cluster: c,", "cluster: d,", none()),
        (
            "current-context: x",
            "current-context: other",
            invalid("[context was not found for specified context: other, cluster has no server defined]"),
        ),
        ("user: u}", "user: v}", String::new()),
        ("server: 'https://a.example'", "", invalid("no server found for cluster \"c\"")),
        ("https://", "http://", String::new()),
        (
            "token: t",
            "client-certificate: /no.crt, client-key: /no.key",
            invalid(
                "[unable to read client-cert /no.crt for u due to open /no.crt: no such file or directory, unable to read \
                 client-key /no.key for u due to open /no.key: no such file or directory]",
            ),
        ),
        (
            "token: t",
            "client-certificate-data: YQ==",
            invalid(
                "client-key-data or client-key must be specified for u to use the clientCert authentication method.",
            ),
        ),
        (
            "token: t",
            "token: t, username: me",
            invalid(
                "more than one authentication method found for u; found [token basicAuth], only one is allowed",
            ),
        ),
        ("token: t", "tokenFile: /no.tok", "open /no.tok: no such file or directory".to_owned()),
        (
            "token: t",
            "exec: {command: c}",
            invalid(
                "[apiVersion must be specified for u to use exec authentication plugin, interactiveMode must be specified \
                 for u to use exec authentication plugin]",
            ),
        ),
        (
            "token: t",
            "as-groups: [g]",
            invalid("requesting uid, groups or user-extra for u without impersonating a user"),
        ),
        (
            "server: 'https://a.example'",
            "server: 'https://a.example', certificate-authority-data: '!!'",
            loading("illegal base64 data at input byte 0"),
        ),
        (
            "server: 'https://a.example'",
            "server: 'https://a.example', proxy-url: ':::'",
            invalid("invalid 'proxy-url' \":::\" for cluster \"c\": could not parse: :::"),
        ),
        (
            "server: 'https://a.example'",
            "server: 'https://a.example', proxy-url: 'ftp://x'",
            invalid(
                "invalid 'proxy-url' \"ftp://x\" for cluster \"c\": unsupported scheme \"ftp\", must be http, https, or \
                 socks5",
            ),
        ),
        (
            "server: 'https://a.example'",
            "server: 'https://a.example', certificate-authority-data: YQ==, insecure-skip-tls-verify: true",
            "specifying a root certificates file with the insecure flag is not allowed".to_owned(),
        ),
        (
            "server: 'https://a.example'",
            "server: 5",
            loading(
                "json: cannot unmarshal number into Go struct field Cluster.clusters.cluster.server of type string",
            ),
        ),
        (
            "clusters: [{name: c, cluster: {server: 'https://a.example'}}]",
            "clusters: x",
            loading(
                "json: cannot unmarshal string into Go struct field Config.clusters of type []v1.NamedCluster",
            ),
        ),
        (
            "kind: Config",
            "kind: Foo",
            loading(&format!("no kind \"Foo\" is registered for version \"v1\" in scheme \"{SCHEME}\"")),
        ),
        (
            "apiVersion: v1",
            "apiVersion: v2",
            loading(&format!("no kind \"Config\" is registered for version \"v2\" in scheme \"{SCHEME}\"")),
        ),
    ] {
        fs::write(&path, CONFIG.replacen(from, to, 1)).unwrap();
        let got = load(&path).and_then(|config| confirm(&path, &config));
        let got = got.err().map_or_else(String::new, |error| error.to_string());
        assert_eq!(got.replace(&path.display().to_string(), "FILE"), want, "{from} {to}");
    }
    let got = load(&dir).unwrap_err().to_string();
    let shown = dir.display();
    assert_eq!(got, format!("error loading config file \"{shown}\": read {shown}: is a directory"));
}
