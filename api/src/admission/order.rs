//! The plugins, in the one order in which they are asked.

use std::sync::Arc;

use super::lookup::Lookup;
use super::plugin::Plugin;
use super::settings::{Files, Make};
use super::{always, namespace_lifecycle, pod_security};
use crate::json::Value;

/// Reads the configuration of a plugin, if there is one, and the files that it names.
type Configure = fn(Option<&Value>, &dyn Files) -> Result<Make, String>;

/// One known plugin.
pub(super) struct Registration {
    pub(super) name: &'static str,
    /// Whether it runs unless it is disabled.
    pub(super) by_default: bool,
    /// How it is made. `None`: the name is known to the flags, and nothing is done.
    pub(super) configure: Option<Configure>,
}

/// A plugin that runs unless it is disabled.
const fn on(name: &'static str, configure: Option<Configure>) -> Registration {
    Registration { name, by_default: true, configure }
}

/// A plugin that runs only if it is enabled.
const fn off(name: &'static str, configure: Option<Configure>) -> Registration {
    Registration { name, by_default: false, configure }
}

/// A plugin without configuration.
fn plain<P: Plugin + 'static>(make: fn(&Lookup) -> P) -> Result<Make, String> {
    Ok(Arc::new(move |lookup: &Lookup| Arc::new(make(lookup)) as Arc<dyn Plugin>))
}

/// The plugins, in order. A line for each; the comments keep them apart.
#[rustfmt::skip]
pub(super) static PLUGINS: &[Registration] = &[
    // Allows everything.
    off("AlwaysAdmit", Some(|_, _| plain(|_| always::Admit))),
    // Creates the missing namespace of a new object.
    off("NamespaceAutoProvision", None),
    // Namespaced objects need a namespace that stays.
    on("NamespaceLifecycle", Some(|_, _| plain(namespace_lifecycle::NamespaceLifecycle::new))),
    // Namespaced objects need a namespace.
    off("NamespaceExists", None),
    // Required anti-affinity of pods is between nodes only.
    off("LimitPodHardAntiAffinityTopology", None),
    // Limits and defaults of resources, for each namespace.
    on("LimitRanger", None),
    // Pods run under an account of their namespace.
    on("ServiceAccount", None),
    // What the agents of nodes may write.
    off("NodeRestriction", None),
    // New nodes are not ready.
    on("TaintNodesByCondition", None),
    // Images are pulled with the credentials of each pod.
    off("AlwaysPullImages", None),
    // Another server decides on images.
    off("ImagePolicyWebhook", None),
    // Pod security levels of namespaces.
    on("PodSecurity", Some(|config, _| pod_security::configure(config))),
    // Node selectors of namespaces.
    off("PodNodeSelector", None),
    // Priorities of pods follow from their class.
    on("Priority", None),
    // How long pods tolerate that their node fails.
    on("DefaultTolerationSeconds", None),
    // Tolerations of namespaces.
    off("PodTolerationRestriction", None),
    // Limits how many events are written.
    off("EventRateLimit", None),
    // Pods that use extended resources tolerate the taints of their nodes.
    off("ExtendedResourceToleration", None),
    // The class of volume claims that name none.
    on("DefaultStorageClass", None),
    // Claims, volumes and their attribute classes stay while they are used.
    on("StorageObjectInUseProtection", None),
    // Owners are set by those who may delete.
    off("OwnerReferencesPermissionEnforcement", None),
    // Claims grow only where their class allows it.
    on("PersistentVolumeClaimResize", None),
    // Overhead and placement of pods follow from their runtime class.
    on("RuntimeClass", None),
    // Who may approve certificates of a signer.
    on("CertificateApproval", None),
    // Who may sign for a signer.
    on("CertificateSigning", None),
    // Who may publish the bundles of a signer.
    on("ClusterTrustBundleAttest", None),
    // No client certificates for the group of administrators.
    on("CertificateSubjectRestriction", None),
    // The class of ingresses that name none.
    on("DefaultIngressClass", None),
    // No new external addresses of services.
    off("DenyServiceExternalIPs", None),
    // Pods get the topology labels of their node.
    on("PodTopologyLabels", None),
    // Rules of jobs.
    on("JobValidation", None),
    // Which pods can be resized.
    on("PodResizeValidator", None),
    // Policies that change objects.
    on("MutatingAdmissionPolicy", None),
    // Webhooks that change objects.
    on("MutatingAdmissionWebhook", None),
    // Policies that refuse objects.
    on("ValidatingAdmissionPolicy", None),
    // Webhooks that refuse objects.
    on("ValidatingAdmissionWebhook", None),
    // Quotas of namespaces. After all others: what they refuse is not counted.
    on("ResourceQuota", None),
    // Refuses everything.
    off("AlwaysDeny", Some(|_, _| plain(|_| always::Deny))),
];
