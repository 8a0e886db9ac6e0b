//! The two naming profiles of the server. No other file contains literal names of a profile.
//!
//! All other code composes names from a [`Naming`] value, so that the same binary can use the names of the
//! specification (`cluster`) or the names that upstream clients expect (`kubernetes`).

/// A naming profile. The fields are complete pieces of names; the methods compose names from them.
#[derive(Debug, Eq, PartialEq)]
pub struct Naming {
    /// Profile name, the value of `--naming`.
    pub profile: &'static str,
    /// Suffix that is appended to the stem of a group name, with the dot: `.cluster.io`.
    pub group_suffix: &'static str,
    /// Domain of label, annotation and type names: `cluster.io`, as in `cluster.io/metadata.name`.
    pub domain: &'static str,
    /// Prefix of system namespaces and component names, with the dash: `cluster-`.
    pub system_prefix: &'static str,
    /// Plain name of the profile, as in the finalizer of namespaces and the service that points at the
    /// server.
    pub word: &'static str,
    /// Media type of protobuf request and response bodies.
    pub protobuf_media_type: &'static str,
    /// Prefix of OpenAPI definition names: `io.cluster`.
    pub openapi_root: &'static str,
    /// Prefix of schema extensions. Clients read the extensions, so both profiles use the same prefix.
    pub extension_prefix: &'static str,
    /// Title of the OpenAPI documents.
    pub title: &'static str,
    /// Name of the config map with the cluster's root CA.
    pub root_ca_config_map: &'static str,
    /// Name of the health check of the store. Probes exclude the check by this name.
    pub store_check: &'static str,
    /// Another profile whose media types and meta group are accepted too. Responses use the names of the
    /// request.
    pub also_understood: Option<&'static Naming>,
}

/// The profile with the names of the specification; the default.
pub static CLUSTER: Naming = Naming {
    profile: "cluster",
    group_suffix: ".cluster.io",
    domain: "cluster.io",
    system_prefix: "cluster-",
    word: "cluster",
    protobuf_media_type: "application/vnd.cluster.protobuf",
    openapi_root: "io.cluster",
    extension_prefix: "x-kubernetes-",
    title: "Cluster",
    root_ca_config_map: "cluster-root-ca.crt",
    store_check: "store",
    // kubectl requests tables, and sends some bodies, only under the names of upstream.
    also_understood: Some(&KUBERNETES),
};

/// The profile with the names of upstream clients.
pub static KUBERNETES: Naming = Naming {
    profile: "kubernetes",
    group_suffix: ".k8s.io",
    domain: "kubernetes.io",
    system_prefix: "kube-",
    word: "kubernetes",
    protobuf_media_type: "application/vnd.kubernetes.protobuf",
    openapi_root: "io.k8s",
    extension_prefix: "x-kubernetes-",
    title: "Kubernetes",
    root_ca_config_map: "kube-root-ca.crt",
    store_check: "etcd",
    also_understood: None,
};

/// All naming profiles; the build writes one set of schema tables for each.
pub static ALL: [&Naming; 2] = [&CLUSTER, &KUBERNETES];

impl Naming {
    /// Returns the profile called `name`.
    pub fn by_profile(name: &str) -> Option<&'static Naming> {
        ALL.into_iter().find(|naming| naming.profile == name)
    }

    /// Returns the full group name of a stem from the schema tables.
    pub fn group(&self, stem: &str, suffixed: bool) -> String {
        if suffixed { format!("{stem}{}", self.group_suffix) } else { stem.to_owned() }
    }

    /// Returns the name of an annotation in the project's own domain: `k8s.io/deprecated`,
    /// `cluster.io/deprecated`.
    pub fn own(&self, name: &str) -> String {
        format!("{}/{name}", self.group_suffix.trim_start_matches('.'))
    }

    /// Returns `<group>/<version>`, or the version alone for the core group.
    pub fn api_version(&self, stem: &str, suffixed: bool, version: &str) -> String {
        if stem.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group(stem, suffixed)) }
    }

    /// Returns the profiles whose names a client may use. This profile is the first.
    pub fn understood(&'static self) -> impl Iterator<Item = &'static Naming> {
        [Some(self), self.also_understood].into_iter().flatten()
    }

    /// Returns the group of tables, metadata-only objects and options.
    pub fn meta_group(&self) -> String {
        self.group("meta", true)
    }

    /// Returns the name of a schema extension, such as `list-type`, with its prefix.
    pub fn extension(&self, name: &str) -> String {
        format!("{}{name}", self.extension_prefix)
    }

    /// Returns a label or annotation name in the system's domain: `cluster.io/metadata.name`.
    pub fn label(&self, name: &str) -> String {
        format!("{}/{name}", self.domain)
    }

    /// Returns the stable name of the node label whose beta name is `label`, and the release that introduced
    /// the stable name.
    pub fn stable_node_label(&self, label: &str) -> Option<(&'static str, String)> {
        let domain = self.domain;
        let (beta_domain, name) = label.split_once('/')?;
        match (beta_domain.strip_suffix(domain)?, name) {
            ("beta.", "arch" | "os") => Some(("v1.14", format!("{domain}/{name}"))),
            ("beta.", "instance-type") => Some(("v1.17", format!("node.{domain}/{name}"))),
            ("failure-domain.beta.", "region" | "zone") => {
                Some(("v1.17", format!("topology.{domain}/{name}")))
            }
            _ => None,
        }
    }

    /// Returns the name of a system namespace or component: `cluster-system`.
    pub fn system(&self, name: &str) -> String {
        format!("{}{name}", self.system_prefix)
    }

    /// Replaces the placeholders in bundled data (bootstrap roles, defaults) with the names of this profile:
    /// `{suffix}` → group suffix with dot, `{domain}` → domain, `{system}` → system prefix, `{word}` → word.
    pub fn fill(&self, text: &str) -> String {
        text.replace("{suffix}", self.group_suffix)
            .replace("{domain}", self.domain)
            .replace("{system}", self.system_prefix)
            .replace("{word}", self.word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_composed_from_the_profile() {
        let spec = Naming::by_profile("cluster").unwrap();
        assert_eq!(spec.api_version("rbac.authorization", true, "v1"), "rbac.authorization.cluster.io/v1");
        assert_eq!(spec.api_version("", false, "v1"), "v1");
        assert_eq!(spec.meta_group(), "meta.cluster.io");
        assert_eq!(spec.system("system"), "cluster-system");
        let upstream = Naming::by_profile("kubernetes").unwrap();
        assert_eq!(upstream.label("metadata.name"), "kubernetes.io/metadata.name");
        assert_eq!(
            upstream.fill("rbac.authorization{suffix}/v1 {system}system"),
            "rbac.authorization.k8s.io/v1 kube-system"
        );
        assert!(Naming::by_profile("other").is_none());
    }
}
