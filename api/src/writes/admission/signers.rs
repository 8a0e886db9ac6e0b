//! The plugins CertificateApproval, CertificateSigning and ClusterTrustBundleAttest: a user who approves,
//! signs or attests for a signer needs a permission that names the signer.
//!
//! The permission is a verb on the resource `signers` of the certificates group. This resource is not served
//! as a type. The name in the permission is the name of the signer, or `<domain>/*` for all signers of a
//! domain.

use std::sync::Arc;

use auth::{Attributes, User};

use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::server::Server;
use crate::writes::server::access::AccessControl;
use objects::validation::StructView;
use values::json::Object;
use values::object::same_but_for_collection;
use values::status::Status;

/// An action that a user can perform for a signer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SignerAction {
    /// Approves or denies a certificate request.
    Approve,
    /// Issues the certificate, or reports why the certificate was not issued.
    Sign,
    /// Publishes a trust bundle of the signer.
    Attest,
}

/// The plugin CertificateApproval, CertificateSigning or ClusterTrustBundleAttest.
pub struct Signers {
    access: Arc<AccessControl>,
    act: SignerAction,
    group: Arc<str>,
}

impl Signers {
    /// Returns the plugin for one action.
    pub fn new(server: &Server, act: SignerAction) -> Signers {
        Signers {
            access: server.access.clone(),
            act,
            group: server.types.naming.group("certificates", true).into(),
        }
    }

    /// Returns whether a user may perform the action for a signer, or for all signers of the signer's domain.
    async fn allows(&self, user: &User, signer: &str) -> bool {
        let domain = signer.split('/').next().unwrap_or_default();
        for name in [signer, &format!("{domain}/*")] {
            let attributes = Attributes {
                verb: self.act.verb(),
                resource_request: true,
                group: &self.group,
                version: "*",
                resource: "signers",
                name,
                ..Attributes::path(user, "", "")
            };
            if self.access.authorizer.authorize(&attributes).await.is_ok() {
                return true;
            }
        }
        false
    }

    async fn check(&self, record: &AdmissionRecord<'_, &Object>) -> Result<(), Status> {
        let signer_of = |object: Option<&Object>| match object {
            Some(object) => StructView::from_object(object).child("spec").text("signerName").to_owned(),
            None => String::new(),
        };
        let signer = match self.act {
            SignerAction::Approve => signer_of(record.new),
            SignerAction::Sign if !is_signed_anew(record) => return Ok(()),
            SignerAction::Sign => signer_of(record.old),
            SignerAction::Attest => signer_of(record.new),
        };
        let is_free = self.act == SignerAction::Attest && (signer.is_empty() || is_collected(record));
        if is_free || self.allows(record.write.user, &signer).await {
            return Ok(());
        }
        Err(record.forbidden(&match self.act {
            SignerAction::Approve => {
                format!("user not permitted to approve requests with signerName {signer:?}")
            }
            SignerAction::Sign => format!("user not permitted to sign requests with signerName {signer:?}"),
            SignerAction::Attest => format!("user not permitted to attest for signerName {signer:?}"),
        }))
    }
}

impl SignerAction {
    fn verb(self) -> &'static str {
        match self {
            SignerAction::Approve => "approve",
            SignerAction::Sign => "sign",
            SignerAction::Attest => "attest",
        }
    }
}

/// Returns whether an update changes the fields of the status that a signer sets.
fn is_signed_anew(record: &AdmissionRecord<'_, &Object>) -> bool {
    let (Some(new), Some(old)) = (record.new, record.old) else { return false };
    let changed = |name: &str| {
        StructView::from_object(new).child("status").get(name)
            != StructView::from_object(old).child("status").get(name)
    };
    changed("certificate") || changed("conditions")
}

/// Returns whether an update changes only the fields that garbage collection changes: owner references and
/// finalizers.
fn is_collected(record: &AdmissionRecord<'_, &Object>) -> bool {
    record.new.zip(record.old).is_some_and(|(new, old)| same_but_for_collection(old, new))
}

impl Plugin for Signers {
    fn handles(&self, target: &Target<'_>) -> bool {
        let requests = target.resource.is_of("certificates", "certificatesigningrequests");
        let is_update = target.operation == Operation::Update;
        match self.act {
            SignerAction::Approve => requests && is_update && target.subresource == "approval",
            SignerAction::Sign => requests && is_update && target.subresource == "status",
            SignerAction::Attest => {
                matches!(target.operation, Operation::Create | Operation::Update)
                    && target.is("certificates", "clustertrustbundles")
            }
        }
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        Step::wait(self.check(record))
    }
}
