//! Tests of command lines with contradictory flags, or with files that cannot be used.

use std::fs;
use std::path::Path;

use anyhow::anyhow;

use super::*;
use crate::cli::{configuration, definition, line};
use crate::host::files::scratch::Scratch;
use crate::store::identity;
use std::ffi::OsString;

fn config(dir: &Path, arguments: &str) -> Result<Config, String> {
    let arguments = arguments.replace("DIR", &dir.display().to_string());
    let words = std::iter::once("cluster-apiserver").chain(arguments.split_whitespace());
    let flags = line::parse(words.map(OsString::from)).unwrap().flags();
    Config::from_flags(&flags)
        .map_err(|error| format!("{error:#}").replace(&dir.display().to_string(), "DIR"))
}

/// Returns other flags that must be given, or else the server does not read the file of `flag`.
fn companions(flag: &str) -> &'static str {
    match flag {
        "tls-cert-file" => "--tls-private-key-file=DIR/key",
        "tls-private-key-file" => "--tls-cert-file=DIR/crt",
        "proxy-client-cert-file" => "--proxy-client-key-file=DIR/key",
        "proxy-client-key-file" => "--proxy-client-cert-file=DIR/crt",
        "kubelet-client-certificate" => "--kubelet-client-key=DIR/key",
        "kubelet-client-key" => "--kubelet-client-certificate=DIR/crt",
        "cluster-signing-cert-file" => "--cluster-signing-key-file=DIR/key",
        "cluster-signing-key-file" => "--cluster-signing-cert-file=DIR/crt",
        "etcd-cafile" => "--etcd-servers=https://127.0.0.1:1",
        "etcd-certfile" => "--etcd-servers=https://127.0.0.1:1 --etcd-keyfile=DIR/key",
        "etcd-keyfile" => "--etcd-servers=https://127.0.0.1:1 --etcd-certfile=DIR/crt",
        "audit-webhook-config-file" => "--naming=kubernetes --audit-policy-file=DIR/policy",
        "peer-ca-file" => "--proxy-client-cert-file=DIR/crt --proxy-client-key-file=DIR/key",
        "authorization-policy-file" => "--authorization-mode=ABAC",
        "authorization-webhook-config-file" => "--authorization-mode=Webhook",
        "oidc-ca-file" => "--oidc-issuer-url=https://127.0.0.1:1 --oidc-client-id=c",
        "service-account-signing-key-file" => {
            "--service-account-key-file=DIR/key --service-account-issuer=https://i"
        }
        _ => "",
    }
}

#[test]
fn every_flag_with_a_file_limits_the_size_of_the_file() {
    let dir = Scratch::new();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    fs::write(dir.join("crt"), made.cert.pem()).unwrap();
    fs::write(dir.join("key"), made.signing_key.serialize_pem()).unwrap();
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
    fs::write(dir.join("policy"), policy).unwrap();
    let flags = definition::naming_files();
    assert!(flags.len() > 25 && flags.contains(&"token-auth-file".to_owned()), "{flags:?}");
    let mut wrong = Vec::new();
    // This file is written, not read.
    for flag in flags.iter().filter(|flag| !["audit-log-path"].contains(&flag.as_str())) {
        let arguments = format!("--{flag}=/dev/zero {}", companions(flag));
        let arguments = arguments.replace("DIR", &dir.display().to_string());
        let words = std::iter::once("cluster-apiserver").chain(arguments.split_whitespace());
        let parsed = match line::parse(words.map(OsString::from)) {
            Ok(invocation) => Config::from_flags(&invocation.flags()).map(drop).map_err(anyhow::Error::from),
            Err(line::Stop::Refuse(line) | line::Stop::Print(line)) => Err(anyhow!(line)),
            Err(line::Stop::Faults(faults)) => Err(anyhow!(configuration::joined(&faults))),
        };
        let why = parsed.map_or_else(|error| format!("{error:#}"), |()| "it starts".to_owned());
        let is_named = why.contains("/dev/zero") || why.contains(flag);
        if !is_named || !why.contains("more than 16777216 bytes") {
            wrong.push(format!("{arguments}: {why}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn flags_and_their_files_are_checked_before_anything_is_written() {
    let dir = Scratch::new();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    fs::write(dir.join("crt"), made.cert.pem()).unwrap();
    fs::write(dir.join("ca"), made.cert.pem()).unwrap();
    fs::write(dir.join("key"), made.signing_key.serialize_pem()).unwrap();
    fs::write(dir.join("other"), other.signing_key.serialize_pem()).unwrap();
    fs::write(dir.join("text"), "no PEM").unwrap();
    fs::write(dir.join("tokens"), "t,joe,1\n").unwrap();
    fs::write(dir.join("no-tokens"), "t,joe,1\nu,jane\n").unwrap();
    let admission = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: Priority, path: PATH}]";
    fs::write(dir.join("admission"), admission.replace("PATH", "text")).unwrap();
    fs::write(dir.join("no-file"), admission.replace("PATH", "none")).unwrap();
    fs::create_dir(dir.join("store")).unwrap();
    identity::remember_profile(&dir.join("store"), &values::naming::CLUSTER).unwrap();
    for (arguments, want) in [
        ("--data-dir=DIR/new", Ok(())),
        ("--data-dir=DIR/store", Ok(())),
        ("--data-dir=DIR/text", Err("--data-dir: DIR/text is not a directory".to_owned())),
        (
            "--data-dir=DIR/store --naming=kubernetes",
            Err("DIR/store was made with --naming=cluster, not kubernetes".to_owned()),
        ),
        ("--data-dir=DIR/new --tls-cert-file=DIR/crt --tls-private-key-file=DIR/key", Ok(())),
        ("--enable-admission-plugins=NamespaceExists --disable-admission-plugins=LimitRanger", Ok(())),
        (
            "--enable-admission-plugins=Nothing",
            Err("enable-admission-plugins plugin \"Nothing\" is unknown".to_owned()),
        ),
        ("--admission-control=NamespaceExists", Ok(())),
        (
            "--disable-admission-plugins=Nothing",
            Err("disable-admission-plugins plugin \"Nothing\" is unknown".to_owned()),
        ),
        (
            "--enable-admission-plugins=Priority,AlwaysAdmit --disable-admission-plugins=AlwaysAdmit,Priority",
            Err("[AlwaysAdmit Priority] in enable-admission-plugins and disable-admission-plugins overlapped"
                .to_owned()),
        ),
        ("--admission-control-config-file=DIR/admission", Ok(())),
        (
            "--admission-control-config-file=DIR/text",
            Err("failed to apply admission: failed to read plugin config: couldn't get version/kind; json parse \
                 error: json: cannot unmarshal string into Go value of type struct { APIVersion string \
                 \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }"
                .to_owned()),
        ),
        (
            "--admission-control-config-file=DIR/no-file",
            Err("Couldn't open admission plugin configuration DIR/none: &fs.PathError{Op:\"open\", \
                 Path:\"DIR/none\", Err:0x2}"
                .to_owned()),
        ),
        ("--tls-cert-file=DIR/crt", Err("missing filename for serving cert".to_owned())),
        (
            "--tls-private-key-file=DIR/key",
            Err("missing filename for serving cert".to_owned()),
        ),
        (
            "--tls-cert-file=DIR/none --tls-private-key-file=DIR/key",
            Err("open DIR/none: no such file or directory".to_owned()),
        ),
        (
            "--tls-cert-file=DIR/text --tls-private-key-file=DIR/key",
            Err("tls: failed to find any PEM data in certificate input".to_owned()),
        ),
        (
            "--tls-cert-file=DIR/crt --tls-private-key-file=DIR/text",
            Err("tls: failed to find any PEM data in key input".to_owned()),
        ),
        (
            "--tls-cert-file=DIR/crt --tls-private-key-file=DIR/other",
            Err("tls: private key does not match public key".to_owned()),
        ),
        (
            "--tls-cert-file=DIR/key --tls-private-key-file=DIR/crt",
            Err("tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs \
                 may have been switched"
                .to_owned()),
        ),
        (
            "--proxy-client-cert-file=DIR/crt --proxy-client-key-file=DIR/other",
            Err("tls: private key does not match public key".to_owned()),
        ),
        (
            "--tls-sni-cert-key=DIR/crt,DIR/other",
            Err("failed to load SNI cert and key: tls: private key does not match public key".to_owned()),
        ),
        (
            "--tls-sni-cert-key=DIR/crt,",
            Err("failed to load SNI cert and key: open : no such file or directory".to_owned()),
        ),
        ("--client-ca-file=DIR/crt", Ok(())),
        ("--client-ca-file=DIR/text", Err("error loading CA bundle for \"client-ca-bundle::DIR/text\": data does not contain any valid RSA or ECDSA \
                 certificates"
                .to_owned())),
        ("--client-ca-file=DIR/none", Err("open DIR/none: no such file or directory".to_owned())),
        ("--token-auth-file=DIR/tokens", Ok(())),
        (
            "--token-auth-file=DIR/no-tokens",
            Err("token file 'DIR/no-tokens' must have at least 3 columns (token, user name, user uid), found 2"
                .to_owned()),
        ),
        ("--token-auth-file=DIR/none", Err("open DIR/none: no such file or directory".to_owned())),
        ("--service-account-signing-key-file=DIR/key --service-account-key-file=DIR/crt", Ok(())),
        (
            "--service-account-signing-key-file=DIR/crt",
            Err("failed to parse service-account-issuer-key-file: error reading private key file DIR/crt: data does not \
                 contain a valid RSA or ECDSA private key"
                .to_owned()),
        ),
        ("--service-account-key-file=", Err("open : no such file or directory".to_owned())),
        (
            "--service-account-key-file=DIR/text",
            Err("error reading public key file DIR/text: data does not contain any valid RSA or ECDSA public keys"
                .to_owned()),
        ),
        (
            "--service-account-issuer=1:b",
            Err("service-account-issuer \"1:b\" contained a ':' but was not a valid URL: parse \"1:b\": first path segment \
                 in URL cannot contain colon"
                .to_owned()),
        ),
        (
            "--service-account-issuer=https://a --service-account-key-file=DIR/crt --service-account-jwks-uri=::: \
             --requestheader-uid-headers=X",
            Err("[service-account-jwks-uri must be a valid URL: parse \":::\": missing protocol scheme, \
                 --service-account-signing-key-file, --service-account-issuer, and --api-audiences should be specified \
                 together, --requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API \
                 aggregation will not work]"
                .to_owned()),
        ),
        (
            "--service-account-max-token-expiration=5m",
            Err("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds".to_owned()),
        ),
        (
            "--service-cluster-ip-range=10.0.0.0/24,10.1.0.0/24",
            Err("--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP family"
                .to_owned()),
        ),
        (
            "--service-cluster-ip-range=10.0.0.0/24,fd00::/112,10.1.0.0/24",
            Err("--service-cluster-ip-range must not contain more than two entries".to_owned()),
        ),
        ("--client-ca-file=DIR/ca --requestheader-client-ca-file=DIR/ca --requestheader-username-headers=X --requestheader-allowed-names=proxy", Ok(())),
        (
            "--client-ca-file=DIR/ca --requestheader-client-ca-file=DIR/ca --requestheader-username-headers=X",
            Err("--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; \
                 --requestheader-allowed-names must be specified to ensure regular client certificates cannot set \
                 authenticating proxy headers for arbitrary users"
                .to_owned()),
        ),
        ("--tls-extra-names=api.example,*.example,10.1.2.3,fd00::1", Ok(())),
        (
            "--tls-extra-names=a_b",
            Err("--tls-extra-names: \"a_b\" is neither a DNS name nor an address".to_owned()),
        ),
        (
            "--cluster-signing-cert-file=DIR/crt",
            Err("--cluster-signing-cert-file needs --cluster-signing-key-file".to_owned()),
        ),
        (
            "--cluster-signing-cert-file=DIR/crt --cluster-signing-key-file=DIR/key",
            Err("--cluster-signing-cert-file DIR/crt: the certificate is not that of an authority".to_owned()),
        ),
        (
            "--cluster-signing-duration=5m",
            Err("--cluster-signing-duration must be at least 10 minutes".to_owned()),
        ),
        ("--request-timeout=0", Err("--request-timeout must be positive".to_owned())),
    ] {
        assert_eq!(config(&dir, arguments).map(drop), want, "{arguments}");
    }
    assert!(!dir.join("new").exists());
}

#[test]
fn all_invalid_flags_are_reported_once_and_in_order() {
    let dir = Scratch::new();
    for (arguments, want) in [
        ("", ""),
        (
            "--max-requests-inflight=-1 --max-mutating-requests-inflight=-1 --goaway-chance=1",
            "[--max-requests-inflight can not be negative value, --max-mutating-requests-inflight can not be negative \
             value, --goaway-chance can not be less than 0 or greater than 0.02]",
        ),
        (
            "--strict-transport-security-directives=a,b --cors-allowed-origins=a",
            "[--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, \
             preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information, --cors-allowed-origins \
             has an invalid regular expression: regular expression does not pin to start/end of host in the origin \
             header, help: ",
        ),
        (
            "--runtime-config=api/all=false",
            "[--runtime-config=api/all=false conflicts with --enable-priority-and-fairness=true, invalid key with only \
             api/all=false]",
        ),
        (
            "--audit-log-path=- --audit-log-mode=x --audit-log-version=y --audit-log-format=z",
            "[invalid audit log mode x, allowed modes are \"batch,blocking,blocking-strict\", invalid group version, \
             allowed versions are [\"audit.k8s.io/v1\"], invalid audit log format z, allowed formats are \
             \"legacy,json\"]",
        ),
        (
            "--encryption-provider-config-automatic-reload --storage-media-type=x",
            "[--encryption-provider-config-automatic-reload must be set with --encryption-provider-config, \
             --storage-media-type \"x\" invalid, allowed values: application/json, \
             application/vnd.kubernetes.protobuf, application/yaml]",
        ),
        (
            "--kubernetes-service-node-port=40000",
            "kubernetes service node port range 30000-32767 doesn't contain 40000",
        ),
        (
            "--kubernetes-service-node-port=65536",
            "[--kubernetes-service-node-port 65536 must be between 0 and 65535, inclusive. If 0, the Kubernetes master \
             service will be of type ClusterIP, kubernetes service node port range 30000-32767 doesn't contain 65536]",
        ),
        (
            "--service-cluster-ip-range=10.0.0.0/24 --advertise-address=::1",
            "service IP family \"10.0.0.0/24\" must match public address family \"::1\"",
        ),
        (
            "--emulation-forward-compatible --runtime-config-emulation-forward-compatible=true",
            "[ServerRunOptions.EmulationForwardCompatible cannot be set to true if the emulation version is the same as \
             the binary version, ServerRunOptions.RuntimeConfigEmulationForwardCompatible cannot be set to true if the \
             emulation version is the same as the binary version]",
        ),
        ("--emulation-forward-compatible --emulated-version=1.35", ""),
        ("--emulated-version=x --goaway-chance=1", "could not parse \"x\" as version"),
        ("--feature-gates=DryRun --goaway-chance=1", "missing bool value for DryRun"),
        (
            "--emulated-version=1.37 --goaway-chance=1 --enable-admission-plugins=A",
            "[--goaway-chance can not be less than 0 or greater than 0.02, emulation version 1.37 is not between [1.33, \
             1.36], enable-admission-plugins plugin \"A\" is unknown]",
        ),
        (
            "--admission-control=A --disable-admission-plugins=",
            "[admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive, \
             admission-control plugin \"A\" is unknown]",
        ),
        (
            "--authorization-mode=Nope --audit-log-path=- --audit-log-mode=x --enable-admission-plugins=A",
            "[authorization-mode \"Nope\" is not a valid mode, invalid audit log mode x, allowed modes are \
             \"batch,blocking,blocking-strict\", enable-admission-plugins plugin \"A\" is unknown]",
        ),
        ("--enable-admission-plugins=LimitRanger,", "enable-admission-plugins plugin \"\" is unknown"),
        (
            "--service-cluster-ip-range=fd00::/64 --advertise-address=10.1.1.1",
            "service IP family \"fd00::/64\" must match public address family \"10.1.1.1\"",
        ),
        (
            "--service-cluster-ip-range=fd00::/64 --advertise-address=10.1.1.1 --endpoint-reconciler-type=none",
            "",
        ),
        ("--service-cluster-ip-range=fd00::/64 --advertise-address=fd01::1", ""),
        ("--advertise-address=fd01::1", ""),
    ] {
        let arguments = format!("--data-dir=DIR/new {arguments}");
        let got = config(&dir, &arguments).map_or_else(|error| error, |_| String::new());
        assert!(got.starts_with(want) && got.is_empty() == want.is_empty(), "{arguments}: {got}");
    }
}
