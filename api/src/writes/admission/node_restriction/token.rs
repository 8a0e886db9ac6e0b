//! Checks the tokens that an agent requests. A token must be bound to a pod on the agent's node. The audience
//! of the token must be an audience that the volumes of the pod name, or an audience for which the agent is
//! authorized (docs/api/admission.md#admission-plugins).

use std::ops::Deref;

use auth::Attributes;

use super::{Agent, NodeRestriction};
use crate::writes::plugin::{AdmissionRecord, Operation};
use objects::validation::StructView;
use types::schema::registry::Resource;
use values::json::Object;
use values::object::meta;
use values::status::{Status, qualified};

/// The verb of the permission to request a token for an audience. In the permission check, the audience is the
/// resource.
const VERB: &str = "request-serviceaccounts-token-audience";

impl<N: Deref<Target = Object>> Agent<'_, '_, N> {
    /// Checks that the requested token is bound to a pod on the agent's node.
    pub(super) fn token(&self) -> Result<(), Status> {
        if self.record.write.operation != Operation::Create {
            return Ok(());
        }
        let bound = self.new_object().child("spec").child("boundObjectRef");
        let (name, uid) = (bound.text("name"), bound.text("uid"));
        let is_pod = bound.text("apiVersion") == "v1" && bound.text("kind") == "Pod" && !name.is_empty();
        self.require(is_pod, "node requested token not bound to a pod")?;
        self.require(!uid.is_empty(), "node requested token with a pod binding without a uid")?;
        let pod = self.stored_pod(name)?;
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        self.require(meta(&pod, "uid") == uid, why)?;
        let here = StructView::from_object(&pod).child("spec").text("nodeName") == self.node;
        self.require(here, "node requested token bound to a pod scheduled on a different node")
    }
}

impl NodeRestriction {
    /// Checks that the volumes of the pod name the requested audience, or that the agent is authorized for the
    /// audience.
    pub(super) async fn audience(&self, record: &AdmissionRecord<'_, &mut Object>) -> Result<(), Status> {
        let spec =
            record.new.as_deref().map_or(StructView::from(None), StructView::from_object).child("spec");
        let mut audiences = spec.texts("audiences");
        let (audience, more) = (audiences.next().unwrap_or_default(), audiences.next());
        if more.is_some() {
            return Err(record.forbidden("node may only request 0 or 1 audiences"));
        }
        let pod =
            self.store.get(&self.pods, record.write.namespace, spec.child("boundObjectRef").text("name"))?;
        let Some(pod) = pod else { return Ok(()) };
        let mut missing = Vec::new();
        if self.names_audience(&pod, audience, &mut missing)? {
            return Ok(());
        }
        if let Some(missing) = go::join_errors(&missing) {
            let why = format!("error validating audience {}: {missing}", go::quote(audience));
            return Err(record.forbidden(&why));
        }
        let attributes = Attributes {
            resource_request: true,
            namespace: record.write.namespace,
            version: "*",
            resource: audience,
            name: record.write.name,
            ..Attributes::path(record.write.user, VERB, "")
        };
        if self.access.authorizer.decide(&attributes).await.decision.is_allowed() {
            return Ok(());
        }
        let user = &record.write.user.name;
        Err(record.forbidden(&format!(
            "audience {} not found in pod spec volume, {user} is not authorized to request tokens for this audience",
            go::quote(audience)
        )))
    }

    /// Returns whether a volume of the pod, or the driver of a volume, requests tokens for an audience. If an
    /// object that leads to a driver is missing, this function adds an error to `missing`.
    fn names_audience(
        &self,
        pod: &Object,
        audience: &str,
        missing: &mut Vec<String>,
    ) -> Result<bool, Status> {
        for volume in StructView::from_object(pod).child("spec").structs("volumes") {
            let mut sources = volume.child("projected").structs("sources");
            let is_named = sources.any(|source| {
                source.get("serviceAccountToken").is_some_and(|token| !token.is_null())
                    && source.child("serviceAccountToken").text("audience") == audience
            });
            if is_named {
                return Ok(true);
            }
            let Some(name) = self.driver(pod, volume, missing)? else { continue };
            let driver = self.stored_object(&self.drivers, "", &name, missing)?;
            let wants = |driver: &Object| {
                let mut tokens = StructView::from_object(driver).child("spec").structs("tokenRequests");
                tokens.any(|token| token.text("audience") == audience)
            };
            if driver.as_ref().is_some_and(wants) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the driver that mounts a volume: the driver that the volume names, or the driver of the
    /// persistent volume to which the claim of the volume is bound.
    fn driver(
        &self,
        pod: &Object,
        volume: StructView<'_>,
        missing: &mut Vec<String>,
    ) -> Result<Option<String>, Status> {
        let own = volume.child("csi").text("driver");
        if !own.is_empty() {
            return Ok(Some(own.to_owned()));
        }
        let is_made = volume.child("ephemeral").get("volumeClaimTemplate").is_some();
        let claim = match volume.child("persistentVolumeClaim").text("claimName") {
            "" if is_made => format!("{}-{}", meta(pod, "name"), volume.text("name")),
            "" => return Ok(None),
            name => name.to_owned(),
        };
        let Some(claim) = self.stored_object(&self.claims, meta(pod, "namespace"), &claim, missing)? else {
            return Ok(None);
        };
        let bound = StructView::from_object(&claim).child("spec").text("volumeName");
        let Some(bound) = self.stored_object(&self.volumes, "", bound, missing)? else { return Ok(None) };
        let driver = StructView::from_object(&bound).child("spec").child("csi").text("driver");
        Ok(Some(driver.to_owned()).filter(|driver| !driver.is_empty()))
    }

    /// Returns a stored object. If the object does not exist, this function adds an error to `missing`, with
    /// the text that kube-apiserver's informers return.
    fn stored_object(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        missing: &mut Vec<String>,
    ) -> Result<Option<Object>, Status> {
        let object = if name.is_empty() { None } else { self.store.get(resource, namespace, name)? };
        if object.is_none() {
            let kind = qualified(&resource.table.singular, &resource.group);
            missing.push(format!("{kind} \"{name}\" not found"));
        }
        Ok(object)
    }
}
