//! The admission plugins, in the order in which they run.

use std::sync::Arc;

use super::always_pull_images::AlwaysPullImages;
use super::anti_affinity::AntiAffinity;
use super::claim_resize::ClaimResize;
use super::config_type::{EVENT_RATE, POD_SECURITY, PluginConfig, QUOTA, TOLERATIONS, WEBHOOK};
use super::default_class::DefaultClass;
use super::default_toleration_seconds::DefaultTolerationSeconds;
use super::extended_resource_toleration::ExtendedResourceToleration;
use super::files::Files;
use super::limit_ranger::LimitRanger;
use super::namespace_exists::{NamespaceAutoProvision, NamespaceExists};
use super::namespace_lifecycle::NamespaceLifecycle;
use super::node_taint::NodeTaint;
use super::pod_resize::PodResizeValidator;
use super::policy::mutating::MutatingAdmissionPolicy;
use super::policy::validating::ValidatingAdmissionPolicy;
use super::priority::Priority;
use super::runtime_class::RuntimeClass;
use super::service_account::ServiceAccount;
use super::signers::{SignerAction, Signers};
use super::storage_protection::StorageProtection;
use super::{
    always, certificate_subject, event_rate, external_ips, image_policy, node_restriction, owner_permissions,
    pod_node_selector, pod_security, pod_toleration_restriction, quota, topology_labels, webhook,
};
use crate::writes::plugin::Plugin;
use crate::writes::server::MakePlugin;
use crate::writes::server::Server;
use values::json::Value;

/// A function that reads the configuration of a plugin, if any, and the files that the configuration names.
type Configure = fn(Option<&Value>, &dyn Files) -> Result<MakePlugin, String>;

/// A plugin that the flags can name.
pub(super) struct Registration {
    pub(super) name: &'static str,
    /// Whether the plugin runs unless it is disabled.
    pub(super) by_default: bool,
    /// The constructor. `None` means that flags accept the name, but there is no plugin to run.
    pub(super) configure: Option<Configure>,
    /// The type of the configuration; `None` if the plugin takes no configuration.
    pub(super) config: Option<&'static PluginConfig>,
}

impl Registration {
    /// Returns the registration with a configuration of this type.
    const fn configured(self, config: &'static PluginConfig) -> Registration {
        Registration { config: Some(config), ..self }
    }
}

/// Registers a plugin that runs unless it is disabled.
const fn on(name: &'static str, configure: Option<Configure>) -> Registration {
    Registration { name, by_default: true, configure, config: None }
}

/// Registers a plugin that runs only if it is enabled.
const fn off(name: &'static str, configure: Option<Configure>) -> Registration {
    Registration { name, by_default: false, configure, config: None }
}

/// Returns the constructor of a plugin without configuration.
fn plain<P: Plugin + 'static>(make: fn(&Server) -> P) -> Result<MakePlugin, String> {
    Ok(Arc::new(move |server: &Server| Arc::new(make(server)) as Arc<dyn Plugin>))
}

/// The plugins in order, one line each. The comment before a line describes the plugin of that line.
#[rustfmt::skip]
pub(super) static PLUGINS: &[Registration] = &[
    // Allows everything.
    off("AlwaysAdmit", Some(|_, _| plain(|_| always::Admit))),
    // Creates the missing namespace of a new object.
    off("NamespaceAutoProvision", Some(|_, _| plain(NamespaceAutoProvision::new))),
    // Requires a namespace that is not terminating for namespaced objects.
    on("NamespaceLifecycle", Some(|_, _| plain(NamespaceLifecycle::new))),
    // Requires an existing namespace for namespaced objects.
    off("NamespaceExists", Some(|_, _| plain(NamespaceExists::new))),
    // Allows only the topology key for host names in required anti-affinity of pods.
    off("LimitPodHardAntiAffinityTopology", Some(|_, _| plain(AntiAffinity::new))),
    // Applies resource limits and defaults of namespaces.
    on("LimitRanger", Some(|_, _| plain(LimitRanger::new))),
    // Sets the service account of pods and mounts its token.
    on("ServiceAccount", Some(|_, _| plain(ServiceAccount::new))),
    // Restricts node agents to objects of their node.
    off("NodeRestriction", Some(|_, _| plain(node_restriction::NodeRestriction::new))),
    // Taints new nodes as not ready.
    on("TaintNodesByCondition", Some(|_, _| plain(NodeTaint::new))),
    // Makes nodes pull images with the credentials of each pod.
    off("AlwaysPullImages", Some(|_, _| plain(|_| AlwaysPullImages))),
    // Lets an external server decide on images.
    off("ImagePolicyWebhook", Some(image_policy::configure)),
    // Enforces the pod security levels of namespaces.
    on("PodSecurity", Some(|config, _| pod_security::configure(config))).configured(&POD_SECURITY),
    // Applies the node selectors of namespaces.
    off("PodNodeSelector", Some(|config, _| pod_node_selector::configure(config))),
    // Sets the priority of pods from their class.
    on("Priority", Some(|_, _| plain(Priority::new))),
    // Limits the time for which pods tolerate a failing node.
    on(DefaultTolerationSeconds::NAME, Some(|_, _| plain(DefaultTolerationSeconds::usual))),
    // Applies the tolerations of namespaces.
    off("PodTolerationRestriction", Some(|config, _| pod_toleration_restriction::configure(config))).configured(&TOLERATIONS),
    // Limits the rate of event writes.
    off("EventRateLimit", Some(|config, _| event_rate::configure(config))).configured(&EVENT_RATE),
    // Lets pods that use an extended resource tolerate the taint of nodes with this resource.
    off("ExtendedResourceToleration", Some(|_, _| plain(ExtendedResourceToleration::new))),
    // Sets the class of volume claims that name no class.
    on("DefaultStorageClass", Some(|_, _| plain(DefaultClass::of_claims))),
    // Protects claims, volumes and their attribute classes from removal while they are in use.
    on("StorageObjectInUseProtection", Some(|_, _| plain(StorageProtection::new))),
    // Protects groups of pods that still have pods; this feature is not served.
    on("PodGroupProtection", None),
    // Refuses changes of owner references by users who may not delete the object.
    off("OwnerReferencesPermissionEnforcement", Some(|_, _| plain(owner_permissions::OwnerReferencesPermissionEnforcement::new))),
    // Lets claims grow only if their class allows it.
    on("PersistentVolumeClaimResize", Some(|_, _| plain(ClaimResize::new))),
    // Sets the overhead, node selector and tolerations of pods from their runtime class.
    on("RuntimeClass", Some(|_, _| plain(RuntimeClass::new))),
    // Checks that the user may approve certificates for the signer.
    on("CertificateApproval", Some(|_, _| plain(|server| Signers::new(server, SignerAction::Approve)))),
    // Checks that the user may sign certificates for the signer.
    on("CertificateSigning", Some(|_, _| plain(|server| Signers::new(server, SignerAction::Sign)))),
    // Checks that the user may publish trust bundles of the signer.
    on("ClusterTrustBundleAttest", Some(|_, _| plain(|server| Signers::new(server, SignerAction::Attest)))),
    // Refuses client certificates for the group of administrators.
    on("CertificateSubjectRestriction", Some(|_, _| plain(certificate_subject::CertificateSubjectRestriction::new))),
    // Sets the class of ingresses that name no class.
    on("DefaultIngressClass", Some(|_, _| plain(DefaultClass::of_ingresses))),
    // Refuses new external addresses of services.
    off("DenyServiceExternalIPs", Some(|_, _| plain(|_| external_ips::DenyServiceExternalIps))),
    // Copies the topology labels of the node to its pods.
    on("PodTopologyLabels", Some(|_, _| plain(topology_labels::PodTopologyLabels::new))),
    // Requires the workload of a group of pods; this feature is not served.
    on("PodGroupWorkloadExists", None),
    // Requires that nodes have the features that pods need; this feature is not served.
    on("NodeDeclaredFeatureValidator", None),
    // Refuses changes of the size of jobs whose pods are scheduled together; this feature is not served.
    on("JobValidation", None),
    // Checks that the node of a pod can resize the pod.
    on("PodResizeValidator", Some(|_, _| plain(PodResizeValidator::new))),
    // Runs admission policies that change objects.
    on("MutatingAdmissionPolicy", Some(|_, _| plain(MutatingAdmissionPolicy::new))),
    // Calls webhooks that change objects.
    on("MutatingAdmissionWebhook", Some(webhook::configure_mutating)).configured(&WEBHOOK),
    // Runs admission policies that refuse objects.
    on("ValidatingAdmissionPolicy", Some(|_, _| plain(ValidatingAdmissionPolicy::new))),
    // Calls webhooks that refuse objects.
    on("ValidatingAdmissionWebhook", Some(webhook::configure_validating)).configured(&WEBHOOK),
    // Charges the quotas of namespaces. This plugin runs after all plugins above, so that the quota does not count the
    // writes that these plugins refuse.
    on("ResourceQuota", Some(|config, _| quota::configure(config))).configured(&QUOTA),
    // Refuses everything.
    off("AlwaysDeny", Some(|_, _| plain(|_| always::Deny))),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the table of the documentation lists every plugin in order, with its default.
    #[test]
    fn the_documentation_lists_every_plugin_in_order_with_its_default() {
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
