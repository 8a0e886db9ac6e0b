//! The plugin NodeRestriction: the agent of a node may write only objects that belong to this node.
//!
//! Agents are users of the group `system:nodes` with the name `system:node:<node>`. The plugin does not
//! restrict other users. Authorization has no access to objects, and decides only which resources agents may
//! write. The module `labels` checks the labels that an agent sets on its node, `pod` checks the pods that an
//! agent creates, and `token` checks the tokens that an agent requests.

mod labels;
mod pod;
mod token;

use std::fmt::Display;
use std::ops::Deref;
use std::sync::Arc;

use auth::authn::certificate_request;
use auth::identity::NODE_PREFIX;

use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::server::Server;
use crate::writes::server::access::AccessControl;
use crate::writes::server::store::ObjectStorage;
use crate::writes::server::types::TypeCatalog;
use objects::validation::StructView;
use types::schema::registry::Resource;
use values::base64_text;
use values::json::Object;
use values::object::meta;
use values::status::{Status, Subject};

/// The fields that an agent may change in the status of a claim, to report the progress of an expansion.
const EXPANSION: &[&str] = &["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"];

/// The admission plugin NodeRestriction.
pub struct NodeRestriction {
    store: Arc<ObjectStorage>,
    types: Arc<TypeCatalog>,
    access: Arc<AccessControl>,
    pods: Arc<Resource>,
    nodes: Arc<Resource>,
    claims: Arc<Resource>,
    volumes: Arc<Resource>,
    drivers: Arc<Resource>,
}

/// A write of a node agent.
struct Agent<'a, 'r, N> {
    plugin: &'a NodeRestriction,
    record: &'a AdmissionRecord<'r, N>,
    node: &'a str,
}

impl NodeRestriction {
    /// Returns the plugin for this store.
    pub fn new(server: &Server) -> NodeRestriction {
        NodeRestriction {
            store: server.store.clone(),
            types: server.types.clone(),
            access: server.access.clone(),
            pods: server.types.resource("", "v1", "pods"),
            nodes: server.types.resource("", "v1", "nodes"),
            claims: server.types.resource("", "v1", "persistentvolumeclaims"),
            volumes: server.types.resource("", "v1", "persistentvolumes"),
            drivers: server.types.resource("storage", "v1", "csidrivers"),
        }
    }

    fn check<N: Deref<Target = Object>>(&self, record: &AdmissionRecord<'_, N>) -> Result<(), Status> {
        let Some(node) = record.write.user.node() else { return Ok(()) };
        if node.is_empty() {
            let why = format!("could not determine node from user {:?}", record.write.user.name);
            return Err(record.forbidden(&why));
        }
        let agent = Agent { plugin: self, record, node };
        let is = |group: &str, plural: &str| record.write.resource.is_of(group, plural);
        match record.subresource {
            "" if is("", "pods") => agent.pod(),
            "status" if is("", "pods") => agent.pod_status(),
            "eviction" if is("", "pods") => agent.eviction(),
            other if is("", "pods") => agent.refuse(format_args!(
                "unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"
            )),
            _ if is("", "nodes") => agent.node(),
            "status" if is("", "persistentvolumeclaims") => agent.claim_status(),
            _ if is("", "persistentvolumeclaims") => agent.refuse("may only update PVC status"),
            "token" if is("", "serviceaccounts") => agent.token(),
            _ if is("coordination", "leases") => agent.lease(),
            _ if is("storage", "csinodes") => {
                agent.named_like_node("can only access CSINode with the same name as the requesting node")
            }
            _ if is("resource", "resourceslices") => agent.slice(),
            "" if is("certificates", "certificatesigningrequests") => agent.certificate_request(),
            _ => Ok(()),
        }
    }
}

impl<N: Deref<Target = Object>> Agent<'_, '_, N> {
    fn refuse(&self, why: impl Display) -> Result<(), Status> {
        Err(self.record.forbidden(&why.to_string()))
    }

    fn require(&self, holds: bool, why: impl Display) -> Result<(), Status> {
        if holds { Ok(()) } else { self.refuse(why) }
    }

    fn operation(&self) -> &'static str {
        match self.record.write.operation {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }

    fn new_object(&self) -> StructView<'_> {
        self.record.new.as_deref().map_or(StructView::from(None), StructView::from_object)
    }

    fn old_object(&self) -> StructView<'_> {
        self.record.old.map_or(StructView::from(None), StructView::from_object)
    }

    /// Returns a stored pod of the namespace.
    fn stored_pod(&self, name: &str) -> Result<Object, Status> {
        let plugin = self.plugin;
        let pod = plugin.store.get(&plugin.pods, self.record.write.namespace, name)?;
        // kube-apiserver gets this error from its informers, which use the singular name of the resource.
        pod.ok_or_else(|| Status::not_found(Subject { group: "", kind: "pod", name }))
    }

    fn pod(&self) -> Result<(), Status> {
        let node = self.node;
        match self.record.write.operation {
            Operation::Create => self.mirror_pod(),
            // A deletion of a collection calls the plugin once for each pod, with the name of the pod.
            Operation::Delete => self.require(
                self.old_object().child("spec").text("nodeName") == node,
                format_args!("node {node:?} can only delete pods with spec.nodeName set to itself"),
            ),
            Operation::Update | Operation::Connect => self.refuse(format_args!(
                "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
                self.operation()
            )),
        }
    }

    /// Checks a mirror pod. A mirror pod represents a pod that the agent runs without the API, for example from
    /// a file.
    fn mirror_pod(&self) -> Result<(), Status> {
        let uid = self.plugin.store.get(&self.plugin.nodes, "", self.node)?;
        let uid = uid.as_ref().map(|node| meta(node, "uid"));
        match pod::refusal(self.new_object(), self.node, uid, self.plugin.types.naming) {
            None => Ok(()),
            Some(pod::PodRefusal::NoNode) => {
                Err(Status::not_found(Subject { group: "", kind: "nodes", name: self.node }))
            }
            Some(pod::PodRefusal::Because(why)) => self.refuse(why),
        }
    }

    fn pod_status(&self) -> Result<(), Status> {
        let node = self.node;
        if self.record.write.operation != Operation::Update {
            return self.refuse(format_args!("unexpected operation {:?}", self.operation()));
        }
        let (new, old) = (self.new_object(), self.old_object());
        self.require(
            old.child("spec").text("nodeName") == node,
            format_args!(
                "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
            ),
        )?;
        let labels = |pod: StructView<'_>| pod.child("metadata").child("labels").to_value();
        let same_labels = labels::changed(new, old).is_empty() || labels(new) == labels(old);
        self.require(same_labels, format_args!("node {node:?} cannot update labels through pod status"))?;
        self.require(
            claims_of(new).eq(claims_of(old)),
            format_args!("node {node:?} cannot update resource claim statues"),
        )?;
        let extended =
            |pod: StructView<'_>| pod.child("status").child("extendedResourceClaimStatus").to_value();
        self.require(
            extended(new) == extended(old),
            format_args!("node {node:?} cannot update extended resource claim status"),
        )
    }

    fn eviction(&self) -> Result<(), Status> {
        let name = match self.record.write.name {
            "" => self.new_object().child("metadata").text("name"),
            name => name,
        };
        self.require(!name.is_empty(), "could not determine pod from request data")?;
        let pod = self.stored_pod(name)?;
        self.require(
            StructView::from_object(&pod).child("spec").text("nodeName") == self.node,
            format_args!("node {} can only evict pods with spec.nodeName set to itself", self.node),
        )
    }

    fn claim_status(&self) -> Result<(), Status> {
        let without_expansion = |object: Option<&Object>| {
            let mut object = object.cloned().unwrap_or_default();
            if let Some(metadata) = object.get_mut("metadata").and_then(values::json::Value::as_object_mut) {
                metadata.retain(|name, _| !matches!(name, "resourceVersion" | "managedFields"));
            }
            if let Some(status) = object.get_mut("status").and_then(values::json::Value::as_object_mut) {
                status.retain(|name, _| !EXPANSION.contains(&name));
            }
            object
        };
        let node = self.node;
        let same = without_expansion(self.record.new.as_deref()) == without_expansion(self.record.old);
        self.require(
            same,
            format_args!(
                "node {node:?} is not allowed to update fields other than status.quantity and status.conditions"
            ),
        )
    }

    fn node(&self) -> Result<(), Status> {
        let (node, new, old) = (self.node, self.new_object(), self.old_object());
        let named = match self.record.write.name {
            "" => new.child("metadata").text("name"),
            name => name,
        };
        self.require(named == node, format_args!("node {node:?} is not allowed to modify node {named:?}"))?;
        let source = |node: StructView<'_>| node.child("spec").child("configSource").to_value();
        let has_source = new.child("spec").has("configSource");
        let forbidden = labels::forbidden(labels::changed(new, old), self.plugin.types.naming);
        let forbidden = forbidden.into_iter().collect::<Vec<_>>().join(", ");
        match self.record.write.operation {
            Operation::Create => {
                self.require(
                    !has_source,
                    format_args!("node {node:?} is not allowed to create pods with a non-nil configSource"),
                )?;
                self.require(
                    forbidden.is_empty(),
                    format_args!("node {node:?} is not allowed to set the following labels: {forbidden}"),
                )
            }
            Operation::Update => {
                self.require(
                    !has_source || source(new) == source(old),
                    format_args!(
                        "node {node:?} is not allowed to update configSource to a new non-nil configSource"
                    ),
                )?;
                let taints = |node: StructView<'_>| node.child("spec").items("taints").to_vec();
                self.require(
                    taints(new) == taints(old),
                    format_args!("node {node:?} is not allowed to modify taints"),
                )?;
                let owners = |node: StructView<'_>| node.child("metadata").items("ownerReferences").to_vec();
                self.require(
                    owners(new) == owners(old),
                    format_args!("node {node:?} is not allowed to modify ownerReferences"),
                )?;
                self.require(
                    forbidden.is_empty(),
                    format_args!("is not allowed to modify labels: {forbidden}"),
                )
            }
            Operation::Delete | Operation::Connect => Ok(()),
        }
    }

    fn lease(&self) -> Result<(), Status> {
        let leases = self.plugin.types.naming.system("node-lease");
        self.require(
            self.record.write.namespace == leases,
            format_args!("can only access leases in the {leases:?} system namespace"),
        )?;
        self.named_like_node("can only access node lease with the same name as the requesting node")
    }

    fn named_like_node(&self, why: &str) -> Result<(), Status> {
        let name = match self.record.write.operation {
            Operation::Create => self.new_object().child("metadata").text("name"),
            _ => self.record.write.name,
        };
        self.require(name == self.node, why)
    }

    fn slice(&self) -> Result<(), Status> {
        let (slice, act) = match self.record.write.operation {
            Operation::Create => (self.new_object(), "create"),
            Operation::Delete => (self.old_object(), "delete"),
            _ => return Ok(()),
        };
        self.require(
            slice.child("spec").text("nodeName") == self.node,
            format_args!("can only {act} ResourceSlice with the same NodeName as the requesting node"),
        )
    }

    /// Checks that an agent requests agent certificates only for itself.
    fn certificate_request(&self) -> Result<(), Status> {
        let spec = self.new_object().child("spec");
        let naming = self.plugin.types.naming;
        let signers =
            ["kubelet-serving".to_owned(), format!("{}-kubelet", naming.system("apiserver-client"))];
        let is_of_agents = signers.iter().any(|signer| naming.label(signer) == spec.text("signerName"));
        if self.record.write.operation != Operation::Create || !is_of_agents {
            return Ok(());
        }
        let request = base64_text::decode(spec.text("request")).unwrap_or_default();
        match certificate_request::subject(&request) {
            Err(why) => self.refuse(format_args!("unable to parse csr: {why}")),
            Ok(subject) => {
                let expected = format!("{NODE_PREFIX}{}", self.node);
                self.require(
                    subject.common_name == expected,
                    format_args!("can only create a node CSR with CN={expected}"),
                )
            }
        }
    }
}

/// Returns the claims that were created for a pod. Each element contains the name of the claim in the spec of the pod,
/// and the name of the claim object.
fn claims_of(pod: StructView<'_>) -> impl Iterator<Item = [&str; 2]> {
    let statuses = pod.child("status").structs("resourceClaimStatuses");
    statuses.map(|status| ["name", "resourceClaimName"].map(|name| status.text(name)))
}

impl Plugin for NodeRestriction {
    fn handles(&self, target: &Target<'_>) -> bool {
        target.operation != Operation::Connect && target.resource.is_builtin()
    }

    fn mutate<'p>(&'p self, record: &'p mut AdmissionRecord<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        let checked = self.check(record);
        if checked.is_ok() && is_token_of_agent(record) {
            return Step::wait(self.audience(record));
        }
        checked.into()
    }
}

/// Returns whether an agent requests a token.
fn is_token_of_agent<N>(record: &AdmissionRecord<'_, N>) -> bool {
    record.subresource == "token"
        && record.write.operation == Operation::Create
        && record.write.resource.is_of("", "serviceaccounts")
        && record.write.user.node().is_some()
}

#[cfg(test)]
mod tests {
    use auth::User;
    use auth::identity::NODES;

    use super::*;
    use crate::writes::admission::Settings;
    use crate::writes::plugin::WriteAttributes;
    use crate::writes::server::MakePlugin;
    use crate::writes::write::server_fixture::TestServer;

    /// A plugin that calls NodeRestriction with the agent of the node `x` as the user of all writes.
    struct ByAgent {
        plugin: NodeRestriction,
        user: User,
    }

    impl Plugin for ByAgent {
        fn handles(&self, target: &Target<'_>) -> bool {
            ["nodes", "pods"].into_iter().any(|plural| target.resource.is_of("", plural))
        }

        fn mutate<'p>(
            &'p self,
            record: &'p mut AdmissionRecord<'_, &mut Object>,
            _: &'p mut Review,
        ) -> Step<'p> {
            let record = AdmissionRecord {
                writer: record.writer,
                write: WriteAttributes { user: &self.user, ..record.write },
                subresource: record.subresource,
                old: record.old,
                new: record.new.as_deref(),
            };
            self.plugin.check(&record).into()
        }
    }

    fn server() -> TestServer {
        let make: MakePlugin = Arc::new(|server: &Server| {
            let user = User::new("system:node:x", [NODES]);
            Arc::new(ByAgent { plugin: NodeRestriction::new(server), user }) as Arc<dyn Plugin>
        });
        TestServer::admitting(Settings::default().without("ServiceAccount").with_last("ByAgent", make))
    }

    #[tokio::test]
    async fn a_node_agent_may_change_only_some_fields_of_its_node() {
        let server = server();
        assert_eq!(server.send("POST /api/v1/nodes", r#"{"metadata":{"name":"x"}}"#).await.0, 201);
        let owners = r#""ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]"#;
        let taints = r#""spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}"#;
        let label = r#""labels":{"node-restriction.kubernetes.io/a":"b"}"#;
        let own = "node \"x\" is not allowed to modify";
        for (body, want) in [
            (r#"{"metadata":{"annotations":{"a":"b"}}}"#.to_owned(), String::new()),
            (format!(r#"{{"metadata":{{{owners}}},{taints}}}"#), format!("{own} taints")),
            (format!(r#"{{"metadata":{{{owners},{label}}}}}"#), format!("{own} ownerReferences")),
            (
                format!(r#"{{"metadata":{{{label}}}}}"#),
                "is not allowed to modify labels: node-restriction.kubernetes.io/a".to_owned(),
            ),
        ] {
            let (code, _, answer) = server.send("MERGE /api/v1/nodes/x", &body).await;
            let message = answer.str_at(&["message"]);
            let got = message.strip_prefix("nodes \"x\" is forbidden: ").unwrap_or(message);
            assert_eq!((got, code), (&*want, if want.is_empty() { 200 } else { 403 }), "{body}");
        }
    }

    #[tokio::test]
    async fn a_node_agent_creates_mirror_pods_and_reports_their_status() {
        let server = server();
        assert_eq!(server.send("POST /api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#).await.0, 201);
        let pod = |annotations: &str, uid: &str| {
            format!(
                r#"{{"metadata":{{"name":"p",{annotations}"ownerReferences":[{{"apiVersion":"v1","kind":"Node","name":"x","uid":"{uid}","controller":true}}]}},"spec":{{"nodeName":"x","containers":[{{"name":"c","image":"i"}}]}}}}"#
            )
        };
        let mirror = r#""annotations":{"kubernetes.io/config.mirror":"x"},"#;
        let (code, _, answer) = server.send("POST /api/v1/namespaces/n/pods", &pod(mirror, "u")).await;
        assert_eq!((code, answer.str_at(&["message"])), (404, "nodes \"x\" not found"));
        let (code, _, node) = server.send("POST /api/v1/nodes", r#"{"metadata":{"name":"x"}}"#).await;
        assert_eq!(code, 201);
        let uid = node.str_at(&["metadata", "uid"]);
        let pods = "/api/v1/namespaces/n/pods";
        let claims = r#"{"status":{"resourceClaimStatuses":[{"name":"c","resourceClaimName":"d"}]}}"#;
        let extended =
            r#"{"status":{"extendedResourceClaimStatus":{"resourceClaimName":"d","requestMappings":[]}}}"#;
        for (request, body, want) in [
            (
                format!("POST {pods}"),
                pod("", uid),
                "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"x\" can only create mirror pods",
            ),
            (format!("POST {pods}"), pod(mirror, uid), ""),
            (
                format!("MERGE {pods}/p"),
                r#"{"metadata":{"labels":{"a":"b"}}}"#.to_owned(),
                "unexpected operation \"UPDATE\", node \"x\" can only create and delete mirror pods",
            ),
            (format!("MERGE {pods}/p/status"), r#"{"status":{"phase":"Running"}}"#.to_owned(), ""),
            (
                format!("MERGE {pods}/p/status"),
                r#"{"metadata":{"labels":{"a":"b"}}}"#.to_owned(),
                "node \"x\" cannot update labels through pod status",
            ),
            (
                format!("MERGE {pods}/p/status"),
                claims.to_owned(),
                "node \"x\" cannot update resource claim statues",
            ),
            (
                format!("MERGE {pods}/p/status"),
                extended.to_owned(),
                "node \"x\" cannot update extended resource claim status",
            ),
        ] {
            let (code, _, answer) = server.send(&request, &body).await;
            let message = answer.str_at(&["message"]);
            let got = message.strip_prefix("pods \"p\" is forbidden: ").unwrap_or(message);
            assert_eq!((got, code == 403), (want, !want.is_empty()), "{request} {body}");
        }
    }
}
