//! The signers of this server, by the names that requests use, and the requirements of each signer.

use auth::authn::certificate_request::{Names, RequestedSubject};
use auth::identity::{NODE_PREFIX, NODES};

use values::naming::Naming;

/// A built-in certificate signer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BuiltInSigner {
    /// Signs client certificates of any user.
    Client,
    /// Signs client certificates of nodes.
    NodeClient,
    /// Signs serving certificates of nodes.
    NodeServing,
}

impl BuiltInSigner {
    /// Returns the signer with this name; `None` if this server has no such signer.
    pub(super) fn named(name: &str, naming: &Naming) -> Option<BuiltInSigner> {
        let client = naming.system("apiserver-client");
        let known = [
            (client.clone(), BuiltInSigner::Client),
            (format!("{client}-kubelet"), BuiltInSigner::NodeClient),
            ("kubelet-serving".to_owned(), BuiltInSigner::NodeServing),
        ];
        known.into_iter().find(|(known, _)| naming.label(known) == name).map(|(_, signer)| signer)
    }

    /// Checks that the signer accepts a request.
    ///
    /// # Errors
    /// The message contains the reason of the refusal.
    pub(super) fn check(
        self,
        subject: &RequestedSubject,
        names: &Names,
        usages: &[&str],
    ) -> Result<(), String> {
        match self {
            BuiltInSigner::Client => client_usages(usages),
            BuiltInSigner::NodeClient => {
                of_node(subject)?;
                for (is_empty, kind) in [
                    (names.dns.is_empty(), "DNS"),
                    (names.emails.is_empty(), "Email"),
                    (names.addresses.is_empty(), "IP"),
                    (names.uris.is_empty(), "URI"),
                ] {
                    allowed(is_empty, kind)?;
                }
                node_name(subject)?;
                node_usages(usages, "client auth")
            }
            BuiltInSigner::NodeServing => {
                of_node(subject)?;
                if names.dns.is_empty() && names.addresses.is_empty() {
                    return Err("DNS or IP subjectAltName is required".to_owned());
                }
                allowed(names.emails.is_empty(), "Email")?;
                allowed(names.uris.is_empty(), "URI")?;
                node_usages(usages, "server auth")?;
                node_name(subject)
            }
        }
    }
}

fn allowed(is_empty: bool, kind: &str) -> Result<(), String> {
    if is_empty { Ok(()) } else { Err(format!("{kind} subjectAltNames are not allowed")) }
}

fn of_node(subject: &RequestedSubject) -> Result<(), String> {
    match subject.organizations.as_slice() {
        [only] if only == NODES => Ok(()),
        _ => Err(format!("subject organization is not {NODES}")),
    }
}

fn node_name(subject: &RequestedSubject) -> Result<(), String> {
    if subject.common_name.starts_with(NODE_PREFIX) {
        Ok(())
    } else {
        Err(format!("subject common name does not begin with {NODE_PREFIX}"))
    }
}

/// Checks the usages in a certificate request of a node. The usages must be `digital signature`, `purpose` and,
/// optionally, `key encipherment`.
fn node_usages(usages: &[&str], purpose: &str) -> Result<(), String> {
    let has = |usage: &str| usages.contains(&usage);
    let optional = usize::from(has("key encipherment"));
    if has("digital signature") && has(purpose) && usages.len() == 2 + optional {
        return Ok(());
    }
    let mut required = ["digital signature", "key encipherment", purpose];
    required.sort_unstable();
    Err(format!("usages did not match [{}]", required.join(" ")))
}

fn client_usages(usages: &[&str]) -> Result<(), String> {
    let odd =
        usages.iter().find(|usage| !["digital signature", "key encipherment", "client auth"].contains(usage));
    match odd {
        Some(usage) => Err(format!("invalid usage for client certificate: {usage}")),
        None if usages.contains(&"client auth") => Ok(()),
        None => Err("missing required usage for client certificate: client auth".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::{CLUSTER, KUBERNETES};

    /// Parses a request from the text `CN|O,…|name,…`, with names such as `dns:`, `mail:`, `ip:`, `uri:`.
    fn request(text: &str) -> (RequestedSubject, Names) {
        let mut parts = text.split('|');
        let mut list = || parts.next().unwrap_or_default().split(',').filter(|text| !text.is_empty());
        let common_name = list().collect();
        let organizations = list().map(str::to_owned).collect();
        let mut names = Names::default();
        for name in list() {
            match name.split_once(':').unwrap() {
                ("dns", name) => names.dns.push(name.to_owned()),
                ("mail", name) => names.emails.push(name.to_owned()),
                ("ip", _) => names.addresses.push(vec![10, 0, 0, 7]),
                (_, name) => names.uris.push(name.to_owned()),
            }
        }
        (RequestedSubject { common_name, organizations }, names)
    }

    #[test]
    fn each_built_in_signer_accepts_only_the_requests_of_its_purpose() {
        const NODE: [&str; 3] = ["digital signature", "key encipherment", "client auth"];
        const SERVING: [&str; 2] = ["server auth", "digital signature"];
        let cases: [(BuiltInSigner, &str, &[&str], &str); 17] = [
            (BuiltInSigner::Client, "jane|dev,qa|mail:a@b", &["client auth"], ""),
            (BuiltInSigner::Client, "jane", &NODE, ""),
            (
                BuiltInSigner::Client,
                "jane",
                &["server auth"],
                "invalid usage for client certificate: server auth",
            ),
            (
                BuiltInSigner::Client,
                "jane",
                &["digital signature"],
                "missing required usage for client certificate: client auth",
            ),
            (BuiltInSigner::NodeClient, "system:node:a|system:nodes", &NODE, ""),
            (
                BuiltInSigner::NodeClient,
                "system:node:a|system:nodes",
                &["client auth", "digital signature"],
                "",
            ),
            (
                BuiltInSigner::NodeClient,
                "system:node:a|system:nodes",
                &["client auth"],
                "usages did not match [client auth digital signature key encipherment]",
            ),
            (
                BuiltInSigner::NodeClient,
                "system:node:a|system:nodes",
                &["client auth", "digital signature", "server auth"],
                "usages did not match [client auth digital signature key encipherment]",
            ),
            (BuiltInSigner::NodeClient, "system:node:a|x", &NODE, "subject organization is not system:nodes"),
            (
                BuiltInSigner::NodeClient,
                "system:node:a|system:nodes,system:masters",
                &NODE,
                "subject organization is not system:nodes",
            ),
            (
                BuiltInSigner::NodeClient,
                "jane|system:nodes",
                &NODE,
                "subject common name does not begin with system:node:",
            ),
            (
                BuiltInSigner::NodeClient,
                "system:node:a|system:nodes|dns:a",
                &NODE,
                "DNS subjectAltNames are not allowed",
            ),
            (
                BuiltInSigner::NodeClient,
                "system:node:a|system:nodes|uri:a",
                &NODE,
                "URI subjectAltNames are not allowed",
            ),
            (BuiltInSigner::NodeServing, "system:node:a|system:nodes|dns:a,ip:b", &SERVING, ""),
            (
                BuiltInSigner::NodeServing,
                "system:node:a|system:nodes",
                &SERVING,
                "DNS or IP subjectAltName is required",
            ),
            (
                BuiltInSigner::NodeServing,
                "system:node:a|system:nodes|ip:a,mail:b",
                &SERVING,
                "Email subjectAltNames are not allowed",
            ),
            (
                BuiltInSigner::NodeServing,
                "system:node:a|system:nodes|ip:a",
                &NODE,
                "usages did not match [digital signature key encipherment server auth]",
            ),
        ];
        for (signer, text, usages, want) in cases {
            let (subject, names) = request(text);
            let got = signer.check(&subject, &names, usages).err().unwrap_or_default();
            assert_eq!(got, want, "{signer:?} {text} {usages:?}");
        }
    }

    #[test]
    fn built_in_signers_are_found_by_the_names_of_the_naming_profile() {
        for (naming, name, want) in [
            (&KUBERNETES, "kubernetes.io/kube-apiserver-client", Some(BuiltInSigner::Client)),
            (&KUBERNETES, "kubernetes.io/kube-apiserver-client-kubelet", Some(BuiltInSigner::NodeClient)),
            (&KUBERNETES, "kubernetes.io/kubelet-serving", Some(BuiltInSigner::NodeServing)),
            (&KUBERNETES, "kubernetes.io/legacy-unknown", None),
            (&KUBERNETES, "example.com/kubelet-serving", None),
            (&CLUSTER, &CLUSTER.label("kubelet-serving"), Some(BuiltInSigner::NodeServing)),
            (&CLUSTER, "kubernetes.io/kubelet-serving", None),
        ] {
            assert_eq!(BuiltInSigner::named(name, naming), want, "{name}");
        }
    }
}
