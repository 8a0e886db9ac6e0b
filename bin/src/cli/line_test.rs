//! Tests of command lines: the flags they set, or the error they cause.

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::config::Flags;
use crate::config::store::Durability;
use crate::flags::value_parsers::List;
use crate::flags::value_parsers::Port;
use crate::host::logging::LogFormat;

fn line(arguments: &str) -> Result<Flags, Stop> {
    let words = std::iter::once("cluster-apiserver").chain(arguments.split_whitespace());
    parse(words.map(OsString::from)).map(Invocation::flags)
}

#[test]
fn flags_have_the_documented_defaults() {
    let flags = line("").unwrap();
    assert_eq!(flags.store.data_dir, PathBuf::from("./cluster-data"));
    assert_eq!(
        (flags.listening.bind_address.to_string().as_str(), flags.listening.secure_port),
        ("127.0.0.1", Port::Number(6443))
    );
    assert_eq!(flags.store.naming.profile, "cluster");
    assert_eq!((flags.store.durability, flags.authentication.anonymous_auth), (Durability::Sync, None));
    assert_eq!(flags.requests.request_timeout, Duration::from_secs(60));
    assert_eq!(
        (flags.store.history_retention.as_secs(), flags.store.history_bytes_max),
        (24 * 3_600, 1 << 30)
    );
    assert_eq!((flags.requests.continue_ttl.as_secs(), flags.requests.event_ttl.as_secs()), (300, 3_600));
    assert_eq!((flags.requests.min_request_timeout, flags.logging.verbosity), (1800, 0));
    assert_eq!(flags.requests.shutdown_delay_duration, Duration::ZERO);
}

/// A test control plane puts a default into the command line, and a test then adds its own value.
#[test]
fn repeated_list_flags_are_joined_and_the_last_scalar_flag_wins() {
    let flags = line("--disable-admission-plugins=A --disable-admission-plugins=B,C").unwrap();
    assert_eq!(List::all(&flags.admission.disable_admission_plugins), ["A", "B", "C"]);
    let flags = line("--runtime-config=a/v1=true --runtime-config=b/v1=true").unwrap();
    assert_eq!(flags.release.runtime_config, ["a/v1=true", "b/v1=true"]);
    let flags = line("--event-ttl=1h --event-ttl=2h").unwrap();
    assert_eq!(flags.requests.event_ttl.as_secs(), 7_200);
}

#[test]
fn flags_are_parsed_as_by_kube_apiserver() {
    type Check = fn(&Flags) -> bool;
    let table: &[(&str, Check)] = &[
        ("--secure_port=7000", |f| f.listening.secure_port == Port::Number(7000)),
        ("--secure-port 7000", |f| f.listening.secure_port == Port::Number(7000)),
        ("--secure-port=free", |f| f.listening.secure_port == Port::Free),
        ("--secure-port=1 --secure_port=2", |f| f.listening.secure_port == Port::Number(2)), // the last value counts
        ("--data_dir=some_dir", |f| f.store.data_dir == *"some_dir"),
        ("--anonymous-auth", |f| f.authentication.anonymous_auth == Some(true)),
        ("--anonymous-auth=false", |f| f.authentication.anonymous_auth == Some(false)),
        ("--anonymous-auth=0 --anonymous-auth=T", |f| f.authentication.anonymous_auth == Some(true)),
        ("--bind-address=::", |f| f.listening.bind_address.is_unspecified()),
        ("--naming=kubernetes", |f| f.store.naming.system_prefix == "kube-"),
        ("--durability=relaxed", |f| f.store.durability == Durability::Relaxed),
        ("--history-retention=0", |f| f.store.history_retention.is_zero()),
        ("--history-bytes-max=0", |f| f.store.history_bytes_max == 0),
        ("--history-bytes-max=2.5Gi", |f| f.store.history_bytes_max == 5 << 29),
        ("--history-bytes-max=300000", |f| f.store.history_bytes_max == 300_000),
        ("--continue-ttl=0", |f| f.requests.continue_ttl.is_zero()),
        ("--history-retention=168h --event-ttl=2h", |f| {
            (f.store.history_retention.as_secs(), f.requests.event_ttl.as_secs()) == (7 * 24 * 3_600, 7_200)
        }),
        ("--shutdown-delay-duration=1m30s", |f| f.requests.shutdown_delay_duration.as_secs() == 90),
        ("--service-cluster-ip-range=10.1.0.0/16,fd00::/112", |f| f.service.networks().0.len() == 2),
        ("--service-node-port-range=8000+9", |f| f.service.service_node_port_range.count() == 10),
        ("--controllers=*,-garbagecollector", |f| {
            !f.controllers.controllers.has("garbage-collector-controller")
        }),
        ("--enable-garbage-collector=false", |f| !f.controllers.enable_garbage_collector),
        ("--feature-gates=A=true --feature-gates=B=false", |f| {
            f.release.feature_gates == ["A=true", "B=false"]
        }),
        ("--service-account-issuer=https://a --service-account-issuer=https://b", |f| {
            f.authentication.tokens.service_account_issuer == ["https://a", "https://b"]
        }),
        ("--enable-admission-plugins=A,B --disable-admission-plugins=C", |f| {
            List::all(&f.admission.enable_admission_plugins) == ["A", "B"]
                && List::all(&f.admission.disable_admission_plugins) == ["C"]
        }),
        ("--disable-admission-plugins=", |f| {
            f.admission.disable_admission_plugins.len() == 1
                && List::all(&f.admission.disable_admission_plugins).is_empty()
        }),
        ("--cors-allowed-origins= --requestheader-allowed-names=", |f| {
            f.edge.cors_allowed_origins.is_empty()
                && f.authentication.proxy.requestheader_allowed_names.is_empty()
        }),
        ("--oidc-ca-file=", |f| f.authentication.oidc.is_used()),
        ("--oidc-signing-algs=", |f| f.authentication.oidc.is_used()),
        ("--oidc-signing-algs=RS256, --oidc-signing-algs=ES256", |f| {
            List::all(&f.authentication.oidc.oidc_signing_algs) == ["RS256", "", "ES256"]
        }),
        ("--oidc-required-claim=a=b,c=d --oidc-required-claim=a,b=", |f| {
            let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            f.authentication.oidc.oidc_required_claim == [pair("a", "b,c=d"), pair("a,b", "")]
        }),
        ("--cors-allowed-origins=a,", |f| f.edge.cors_allowed_origins == ["a", ""]),
        ("--service-node-port-range=", |f| f.service.service_node_port_range.to_string() == "30000-32767"),
        ("--service-cluster-ip-range=10.0.0.0/24,fd00::/127", |f| f.service.networks().0.len() == 2),
        ("--event-ttl=-1s", |f| f.requests.event_ttl.is_zero()),
        ("--service-cluster-ip-range=010.0.0.0/24", |f| {
            f.service.networks().0[0].to_string() == "10.0.0.0/24"
        }),
        ("--api-audiences=a,b --api-audiences=c", |f| {
            f.authentication.tokens.api_audiences == ["a", "b", "c"]
        }),
        ("--service-account-max-token-expiration=2h", |f| {
            f.authentication.tokens.service_account_max_token_expiration.as_secs() == 7200
        }),
        ("-v=4", |f| f.logging.verbosity == 4),
        ("-v 4", |f| f.logging.verbosity == 4),
        ("--v=4", |f| f.logging.verbosity == 4),
        ("--logging-format=json", |f| f.logging.log_format == LogFormat::Json),
    ];
    for (arguments, check) in table {
        let flags = line(arguments).unwrap_or_else(|stop| panic!("{arguments}: {stop:?}"));
        assert!(check(&flags), "{arguments}: {flags:?}");
    }
}

#[test]
fn an_invalid_command_line_is_refused_with_one_line() {
    for (arguments, want) in [
        ("--no-such-flag", "unknown flag: --no-such-flag"),
        ("--no_such_flag=1", "unknown flag: --no-such-flag"),
        ("--secure-prt=1", "unknown flag: --secure-prt (did you mean --secure-port?)"),
        (
            "--authorisation-mode=RBAC",
            "unknown flag: --authorisation-mode (did you mean --authorization-mode?)",
        ),
        ("inspect --prefex=1", "unknown flag: --prefex (did you mean --prefix?)"),
        ("-x", "unknown shorthand flag: 'x' in -x"),
        ("-secure-port=1", "unknown shorthand flag: 's' in -secure-port=1"),
        ("--secure-port=1 -xyz", "unknown shorthand flag: 'x' in -xyz"),
        ("--=1", "bad flag syntax: --=1"),
        ("---a", "bad flag syntax: ---a"),
        ("walrus", "\"cluster-apiserver\" does not take any arguments, got [\"walrus\"]"),
        ("--naming=kubernetes walrus", "\"kube-apiserver\" does not take any arguments, got [\"walrus\"]"),
        ("verfy", "unknown command \"verfy\": did you mean \"verify\"? See --help"),
        ("--data-dir=x verify", "the command verify must come before its flags"),
        ("verify -x", "unknown shorthand flag: 'x' in -x"),
        ("verify sure", "\"cluster-apiserver\" does not take any arguments, got [\"sure\"]"),
        ("verify --output=xml", "invalid argument \"xml\" for \"--output\" flag: must be text, json or yaml"),
        (
            "inspect --from=x",
            "invalid argument \"x\" for \"--from\" flag: must be a revision, which is a number",
        ),
        ("inspect --key=a --prefix=b", "the argument '--key <KEY>' cannot be used with '--prefix <KEY>'"),
        ("--anonymous-auth false", "\"cluster-apiserver\" does not take any arguments, got [\"false\"]"),
        ("--v=1 a -v 2 b", "\"cluster-apiserver\" does not take any arguments, got [\"a\" \"b\"]"),
        ("-", "\"cluster-apiserver\" does not take any arguments, got [\"-\"]"),
        ("a --no-such-flag", "unknown flag: --no-such-flag"),
        ("-h --no-such-flag", "unknown flag: --no-such-flag"),
        (
            "--help=x",
            "invalid argument \"x\" for \"-h, --help\" flag: strconv.ParseBool: parsing \"x\": invalid syntax",
        ),
        (
            "--version=x",
            "invalid argument \"x\" for \"--version\" flag: strconv.ParseBool: parsing \"x\": invalid syntax",
        ),
        (
            "--oidc-required-claim=",
            "invalid argument \"\" for \"--oidc-required-claim\" flag: malformed pair, expect string=string",
        ),
        ("--version=vx", "invalid argument \"vx\" for \"--version\" flag: could not parse \"vx\" as version"),
        ("--version a", "\"cluster-apiserver\" does not take any arguments, got [\"a\"]"),
        ("-v", "flag needs an argument: 'v' in -v"),
        ("--secure-port", "flag needs an argument: --secure-port"),
        (
            "--secure-port=x",
            "invalid argument \"x\" for \"--secure-port\" flag: strconv.ParseInt: parsing \"x\": invalid syntax",
        ),
        (
            "--tls-curve-preferences=",
            "invalid argument \"\" for \"--tls-curve-preferences\" flag: strconv.ParseInt: parsing \"\": invalid syntax",
        ),
        (
            "--bind-address=localhost",
            "invalid argument \"localhost\" for \"--bind-address\" flag: failed to parse IP: \"localhost\"",
        ),
        (
            "--anonymous-auth=yes",
            "invalid argument \"yes\" for \"--anonymous-auth\" flag: strconv.ParseBool: parsing \"yes\": invalid syntax",
        ),
        (
            "-v=x",
            "invalid argument \"x\" for \"-v, --v\" flag: strconv.ParseUint: parsing \"x\": invalid syntax",
        ),
        ("--naming=other", "invalid argument \"other\" for \"--naming\" flag: must be cluster or kubernetes"),
        (
            "--durability=maybe",
            "invalid argument \"maybe\" for \"--durability\" flag: must be sync or relaxed",
        ),
        ("--log-format=xml", "format: Invalid value: \"xml\": Unsupported log format"),
        ("--service-cluster-ip-range=10.0.0.0", "service-cluster-ip-range[0] is not a valid cidr"),
        (
            "--service-cluster-ip-range=10.0.0.0/30",
            "error determining service IP ranges for primary service cidr: the service cluster IP range must be at \
             least 8 IP addresses",
        ),
        (
            "--service-node-port-range=9-1",
            "invalid argument \"9-1\" for \"--service-node-port-range\" flag: end port cannot be less than start port: 9-1",
        ),
        (
            "--controllers=*,unknown",
            "invalid argument \"*,unknown\" for \"--controllers\" flag: \"unknown\" is not in the list of known controllers",
        ),
        (
            "--request-timeout=60",
            "invalid argument \"60\" for \"--request-timeout\" flag: time: missing unit in duration \"60\"",
        ),
    ] {
        assert_eq!(line(arguments).unwrap_err(), Stop::Refuse(want.to_owned()), "{arguments}");
    }
}

#[test]
fn version_and_help_are_printed_on_standard_output() {
    assert_eq!(
        line("--version").unwrap_err(),
        Stop::Print(format!("cluster-apiserver {}\n", env!("CARGO_PKG_VERSION")))
    );
    for question in ["--version=raw", "--version=false --version=raw"] {
        let Stop::Print(raw) = line(question).unwrap_err() else { panic!("a version is not an error") };
        assert!(raw.starts_with("version.Info{Major:") && raw.ends_with("}\n"), "{raw}");
    }
    let version = line("--version=v1.36.0-mine --version=false").unwrap().reported_version;
    assert_eq!(version.as_deref(), Some("v1.36.0-mine"));
    assert!(line("--help=false").is_ok());
    assert!(matches!(line("-h serve").unwrap_err(), Stop::Print(_)));
    let Stop::Print(help) = line("--help-all").unwrap_err() else { panic!("help is not an error") };
    for flag in ["--data-dir", "--secure-port", "--tls-cert-file", "--shutdown-delay-duration"] {
        assert!(help.contains(flag), "{flag} is missing from\n{help}");
    }
}

#[test]
fn the_help_fits_on_a_screen_and_names_the_flag_for_the_full_help() {
    let printed = |arguments: &str| match line(arguments).unwrap_err() {
        Stop::Print(text) => text,
        stop => panic!("{arguments}: {stop:?}"),
    };
    let (short, long) = (printed("--help"), printed("--help-all"));
    assert_eq!(short, printed("serve -h"));
    for text in ["--data-dir", "--naming", "--secure-port", "backup", "--help-all"] {
        assert!(short.contains(text), "{text} is missing from\n{short}");
    }
    for text in ["--shutdown-delay-duration", "accepted without effect", "Authentication:"] {
        assert!(!short.contains(text), "{text} is in\n{short}");
        assert!(long.contains(text), "{text} is missing from\n{long}");
    }
}

#[test]
fn the_default_command_has_a_name_and_mistyped_commands_are_recognised() {
    let words = |line: &str| {
        std::iter::once("x").chain(line.split_whitespace()).map(OsString::from).collect::<Vec<_>>()
    };
    let port = line("serve --secure-port=1").unwrap().listening.secure_port;
    assert_eq!(port, line("--secure-port=1").unwrap().listening.secure_port);
    for (line, want) in [
        ("serv", "unknown command \"serv\": did you mean \"serve\"? See --help"),
        ("certs sho", "unknown command \"sho\": did you mean \"show\"? See --help"),
        ("config chek", "unknown command \"chek\": did you mean \"check\"? See --help"),
        ("--port=1", "unknown flag: --port (did you mean --secure-port?)"),
        ("--v=1 serve", "\"cluster-apiserver\" does not take any arguments, got [\"serve\"]"),
    ] {
        let got = parse_with(words(line), Vec::new()).unwrap_err();
        assert_eq!(got, Stop::Refuse(want.to_owned()), "{line}");
    }
}

#[test]
fn environment_variables_set_flags_and_flags_override_them() {
    let parsed = |line: &str, variables: &[(&str, &str)]| {
        let words = std::iter::once("x").chain(line.split_whitespace()).map(OsString::from);
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        parse_with(words, variables.collect())
    };
    let variables =
        [("CLUSTER_APISERVER_NAMING", "kubernetes"), ("CLUSTER_APISERVER_AUTHORIZATION_MODE", "Node")];
    let naming = |line: &str| parsed(line, &variables).unwrap().flags().store.naming.profile;
    assert_eq!((naming(""), naming("--naming=cluster")), ("kubernetes", "cluster"));
    let wrong = parsed("", &[("CLUSTER_APISERVER_SECURE_PORT", "x")]).unwrap_err();
    let Stop::Faults(faults) = wrong else { panic!("{wrong:?}") };
    let text = faults[0].to_string();
    assert!(
        text.starts_with("environment variable CLUSTER_APISERVER_SECURE_PORT: secure-port: \"x\" is not"),
        "{text}"
    );
    let unknown = parsed("", &[("CLUSTER_APISERVER_SECURE_PROT", "1")]).unwrap_err();
    assert!(
        matches!(&unknown, Stop::Faults(faults) if faults[0].accepted == "CLUSTER_APISERVER_SECURE_PORT"),
        "{unknown:?}"
    );
    assert!(matches!(parsed("--help", &[("CLUSTER_APISERVER_X", "1")]), Err(Stop::Print(_))));
}
