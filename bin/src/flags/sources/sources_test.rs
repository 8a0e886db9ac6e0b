//! Tests of the configuration file and of environment variables.

use std::path::Path;

use super::file::parse;
use super::*;

fn fields() -> Vec<Field> {
    let field = |name: &str, kind: &str, is_repeatable, help: &str| Field {
        name: name.to_owned(),
        kind: kind.to_owned(),
        is_repeatable,
        help: help.to_owned(),
    };
    vec![
        field("secure-port", "PORT", false, "Port to listen on (HTTPS). More."),
        field("durability", "WHEN", false, "When. Possible values: sync, relaxed."),
        field("event-ttl", "DURATION", false, "How long an event is kept. 0 keeps events."),
        field("feature-gates", "GATES", true, "Feature gates."),
        field("authorization-mode", "MODES", false, "Authorizers."),
        field("oidc-required-claim", "PAIR", true, "A claim. Repeatable."),
        field("profiling", "BOOL", false, "Serve profiles."),
    ]
}

const HEAD: &str = "apiVersion: apiserver.config.cluster.io/v1\nkind: ServerConfiguration\n";

#[test]
fn members_of_a_configuration_file_become_values_of_flags() {
    let text = format!(
        "# comment\n{HEAD}secure-port: 7443\nauthorization-mode: [Node, RBAC]\nfeature-gates: {{A: true, B: false}}\n\
         oidc-required-claim:\n- a=b\n- c=d\nprofiling: false\nevent-ttl: 0\n"
    );
    let given = parse(Path::new("f.yaml"), text.as_bytes(), &fields()).unwrap();
    let mut got: Vec<String> = given
        .iter()
        .map(|given| format!("{}: {}", given.origin, given.words().collect::<Vec<_>>().join(" ")))
        .collect();
    got.sort();
    let mut want = [
        "f.yaml:4: --secure-port=7443",
        "f.yaml:5: --authorization-mode=Node,RBAC",
        "f.yaml:6: --feature-gates=A=true,B=false",
        "f.yaml:7: --oidc-required-claim=a=b --oidc-required-claim=c=d",
        "f.yaml:10: --profiling=false",
        "f.yaml:11: --event-ttl=0",
    ];
    want.sort_unstable();
    assert_eq!(got, want);
    let json = "{\"apiVersion\": \"apiserver.config.cluster.io/v1\", \"kind\": \"ServerConfiguration\",\n \"secure-port\": 1}";
    let given = parse(Path::new("f"), json.as_bytes(), &fields()).unwrap();
    assert_eq!((given.len(), given[0].origin.to_string().as_str()), (1, "f:2"));
}

#[test]
fn each_error_of_a_configuration_file_names_its_line_and_the_accepted_values() {
    for (body, want) in [
        ("secure-prot: 1", "f:3: secure-prot: there is no such flag; accepted: secure-port"),
        (
            "xyz: 1",
            "f:3: xyz: there is no such flag; accepted: the names of the server's flags, without dashes in front",
        ),
        (
            "\nsecure-port:",
            "f:4: secure-port: \"null\" is not accepted: the member has no value; accepted: a port number from 1 to 65535, or free (Port to listen on (HTTPS))",
        ),
        (
            "secure-port: [1, 2]",
            "f:3: secure-port: \"[1,2]\" is not accepted: the flag has one value, not a list; accepted: a port number from 1 to 65535, or free (Port to listen on (HTTPS))",
        ),
        (
            "durability: {a: b}",
            "f:3: durability: \"{\\\"a\\\":\\\"b\\\"}\" is not accepted: the flag has one value, not a mapping; accepted: one of sync, relaxed",
        ),
        (
            "profiling: maybe",
            "f:3: profiling: \"maybe\" is not accepted: \"maybe\" is not a Boolean of YAML; accepted: true or false (Serve profiles)",
        ),
        (
            "event-ttl: 1s\nevent-ttl: 2s",
            "f:4: event-ttl: the name occurs twice; accepted: each name once; a list as [a, b]",
        ),
        (
            "authorization-mode: [[a]]",
            "f:3: authorization-mode: \"[[\\\"a\\\"]]\" is not accepted: a list has only simple values; accepted: MODES (Authorizers)",
        ),
    ] {
        let errors = parse(Path::new("f"), format!("{HEAD}{body}\n").as_bytes(), &fields()).unwrap_err();
        let got: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(got, [want], "{body}");
    }
    for (text, want) in [
        ("", "f:1: the file is not a mapping; "),
        ("- a\n", "f:1: the file is not a mapping; "),
        (
            "kind: ServerConfiguration\n",
            "f:1: apiVersion: the member is missing; accepted: apiserver.config.cluster.io/v1",
        ),
        (
            "apiVersion: apiserver.config.cluster.io/v1\nkind: Config\n",
            "f:2: kind: \"Config\" is not accepted: the file has another type; accepted: ServerConfiguration",
        ),
        ("a: b: c\n", "f:"),
    ] {
        let errors = parse(Path::new("f"), text.as_bytes(), &fields()).unwrap_err();
        assert!(errors[0].to_string().starts_with(want), "{text}: {}", errors[0]);
    }
}

#[test]
fn environment_variables_set_flags_and_service_variables_are_ignored() {
    let variables = [
        ("CLUSTER_APISERVER_SECURE_PORT", "1"),
        ("CLUSTER_APISERVER_EVENT_TTL", ""),
        ("CLUSTER_APISERVER_PORT_443_TCP_ADDR", "10.0.0.1"),
        ("CLUSTER_APISERVER_SERVICE_HOST", "10.0.0.1"),
        ("CLUSTER_APISERVER_PORT", "tcp://10.0.0.1:443"),
        ("CLUSTER_APISERVER_DURABLITY", "sync"),
        ("CLUSTER_APISERVER", "x"),
        ("HOME", "/"),
    ];
    let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let (given, errors) = read_environment(variables, &fields());
    let given: Vec<String> = given.iter().flat_map(FlagValues::words).collect();
    assert_eq!(given, ["--secure-port=1"]);
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let want = "environment variable CLUSTER_APISERVER_DURABLITY: durablity: there is no such flag; accepted: \
                CLUSTER_APISERVER_DURABILITY";
    assert_eq!(errors, [want]);
}
