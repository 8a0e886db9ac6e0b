//! The plugins, in the one order in which they are asked.

use std::sync::Arc;

use super::always_pull_images::AlwaysPullImages;
use super::anti_affinity::AntiAffinity;
use super::claim_resize::ClaimResize;
use super::config_type::{EVENT_RATE, POD_SECURITY, PluginConfig, QUOTA, TOLERATIONS, WEBHOOK};
use super::default_class::DefaultClass;
use super::default_toleration_seconds::DefaultTolerationSeconds;
use super::extended_resource_toleration::ExtendedResourceToleration;
use super::limit_ranger::LimitRanger;
use super::lookup::Lookup;
use super::namespace_exists::{NamespaceAutoProvision, NamespaceExists};
use super::namespace_lifecycle::NamespaceLifecycle;
use super::node_taint::NodeTaint;
use super::plugin::Plugin;
use super::pod_resize::PodResizeValidator;
use super::policy::mutating::MutatingAdmissionPolicy;
use super::policy::validating::ValidatingAdmissionPolicy;
use super::priority::Priority;
use super::runtime_class::RuntimeClass;
use super::service_account::ServiceAccount;
use super::settings::{Files, Make};
use super::signers::{Act, Signers};
use super::storage_protection::StorageProtection;
use super::{
    always, certificate_subject, event_rate, external_ips, image_policy, node_restriction, owner_permissions,
    pod_node_selector, pod_security, pod_toleration_restriction, quota, topology_labels, webhook,
};
use values::json::Value;

/// Reads the configuration of a plugin, if there is one, and the files that it names.
type Configure = fn(Option<&Value>, &dyn Files) -> Result<Make, String>;

/// One known plugin.
pub(super) struct Registration {
    pub(super) name: &'static str,
    /// Whether it runs unless it is disabled.
    pub(super) by_default: bool,
    /// How it is made. `None`: the name is known to the flags, and nothing is done.
    pub(super) configure: Option<Configure>,
    /// The type of its configuration, unless the plugin reads any.
    pub(super) config: Option<&'static PluginConfig>,
}

impl Registration {
    /// The same with a configuration of this type.
    const fn configured(self, config: &'static PluginConfig) -> Registration {
        Registration { config: Some(config), ..self }
    }
}

/// A plugin that runs unless it is disabled.
const fn on(name: &'static str, configure: Option<Configure>) -> Registration {
    Registration { name, by_default: true, configure, config: None }
}

/// A plugin that runs only if it is enabled.
const fn off(name: &'static str, configure: Option<Configure>) -> Registration {
    Registration { name, by_default: false, configure, config: None }
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
    off("NamespaceAutoProvision", Some(|_, _| plain(NamespaceAutoProvision::new))),
    // Namespaced objects need a namespace that stays.
    on("NamespaceLifecycle", Some(|_, _| plain(NamespaceLifecycle::new))),
    // Namespaced objects need a namespace.
    off("NamespaceExists", Some(|_, _| plain(NamespaceExists::new))),
    // Required anti-affinity of pods is between nodes only.
    off("LimitPodHardAntiAffinityTopology", Some(|_, _| plain(AntiAffinity::new))),
    // Limits and defaults of resources, for each namespace.
    on("LimitRanger", Some(|_, _| plain(LimitRanger::new))),
    // Pods run under an account of their namespace.
    on("ServiceAccount", Some(|_, _| plain(ServiceAccount::new))),
    // What the agents of nodes may write.
    off("NodeRestriction", Some(|_, _| plain(node_restriction::NodeRestriction::new))),
    // New nodes are not ready.
    on("TaintNodesByCondition", Some(|_, _| plain(NodeTaint::new))),
    // Images are pulled with the credentials of each pod.
    off("AlwaysPullImages", Some(|_, _| plain(|_| AlwaysPullImages))),
    // Another server decides on images.
    off("ImagePolicyWebhook", Some(image_policy::configure)),
    // Pod security levels of namespaces.
    on("PodSecurity", Some(|config, _| pod_security::configure(config))).configured(&POD_SECURITY),
    // Node selectors of namespaces.
    off("PodNodeSelector", Some(|config, _| pod_node_selector::configure(config))),
    // Priorities of pods follow from their class.
    on("Priority", Some(|_, _| plain(Priority::new))),
    // How long pods tolerate that their node fails.
    on(DefaultTolerationSeconds::NAME, Some(|_, _| plain(DefaultTolerationSeconds::usual))),
    // Tolerations of namespaces.
    off("PodTolerationRestriction", Some(|config, _| pod_toleration_restriction::configure(config))).configured(&TOLERATIONS),
    // Limits how many events are written.
    off("EventRateLimit", Some(|config, _| event_rate::configure(config))).configured(&EVENT_RATE),
    // Pods that use extended resources tolerate the taints of their nodes.
    off("ExtendedResourceToleration", Some(|_, _| plain(ExtendedResourceToleration::new))),
    // The class of volume claims that name none.
    on("DefaultStorageClass", Some(|_, _| plain(DefaultClass::of_claims))),
    // Claims, volumes and their attribute classes stay while they are used.
    on("StorageObjectInUseProtection", Some(|_, _| plain(StorageProtection::new))),
    // Groups of pods stay while pods belong to them; its feature is not served.
    on("PodGroupProtection", None),
    // Owners are set by those who may delete.
    off("OwnerReferencesPermissionEnforcement", Some(|_, _| plain(owner_permissions::OwnerReferencesPermissionEnforcement::new))),
    // Claims grow only where their class allows it.
    on("PersistentVolumeClaimResize", Some(|_, _| plain(ClaimResize::new))),
    // Overhead and placement of pods follow from their runtime class.
    on("RuntimeClass", Some(|_, _| plain(RuntimeClass::new))),
    // Who may approve certificates of a signer.
    on("CertificateApproval", Some(|_, _| plain(|lookup| Signers::new(lookup, Act::Approve)))),
    // Who may sign for a signer.
    on("CertificateSigning", Some(|_, _| plain(|lookup| Signers::new(lookup, Act::Sign)))),
    // Who may publish the bundles of a signer.
    on("ClusterTrustBundleAttest", Some(|_, _| plain(|lookup| Signers::new(lookup, Act::Attest)))),
    // No client certificates for the group of administrators.
    on("CertificateSubjectRestriction", Some(|_, _| plain(certificate_subject::CertificateSubjectRestriction::new))),
    // The class of ingresses that name none.
    on("DefaultIngressClass", Some(|_, _| plain(DefaultClass::of_ingresses))),
    // No new external addresses of services.
    off("DenyServiceExternalIPs", Some(|_, _| plain(|_| external_ips::DenyServiceExternalIps))),
    // Pods get the topology labels of their node.
    on("PodTopologyLabels", Some(|_, _| plain(topology_labels::PodTopologyLabels::new))),
    // Groups of pods belong to a workload; its feature is not served.
    on("PodGroupWorkloadExists", None),
    // Nodes have what pods need of them; its feature is not served.
    on("NodeDeclaredFeatureValidator", None),
    // Jobs whose pods are scheduled together keep their size; its feature is not served.
    on("JobValidation", None),
    // Which pods can be resized.
    on("PodResizeValidator", Some(|_, _| plain(PodResizeValidator::new))),
    // Policies that change objects.
    on("MutatingAdmissionPolicy", Some(|_, _| plain(MutatingAdmissionPolicy::new))),
    // Webhooks that change objects.
    on("MutatingAdmissionWebhook", Some(webhook::configure_mutating)).configured(&WEBHOOK),
    // Policies that refuse objects.
    on("ValidatingAdmissionPolicy", Some(|_, _| plain(ValidatingAdmissionPolicy::new))),
    // Webhooks that refuse objects.
    on("ValidatingAdmissionWebhook", Some(webhook::configure_validating)).configured(&WEBHOOK),
    // Quotas of namespaces. After all others: what they refuse is not counted.
    on("ResourceQuota", Some(|config, _| quota::configure(config))).configured(&QUOTA),
    // Refuses everything.
    off("AlwaysDeny", Some(|_, _| plain(|_| always::Deny))),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the documentation lists every plugin in order, with its default.
    #[test]
    fn the_documentation_lists_the_plugins_in_order() {
        let page = include_str!("../../../../docs/api/admission.md");
        let (_, table) = page.split_once("| plugin | default | effect |").expect("the page has the table");
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        let documented: Vec<(&str, bool)> = rows
            .map(|row| {
                let cells: Vec<&str> = row.split('|').map(str::trim).collect();
                (cells[1], cells[2] == "on")
            })
            .collect();
        let known: Vec<(&str, bool)> =
            PLUGINS.iter().map(|plugin| (plugin.name, plugin.by_default)).collect();
        assert_eq!(documented, known);
    }
}
