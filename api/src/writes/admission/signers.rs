//! The plugins CertificateApproval, CertificateSigning and ClusterTrustBundleAttest: a user who acts for a
//! signer needs a permission that names the signer.
//!
//! The permission is a verb on the resource `signers` of the certificates group, which is not a served type.
//! Its name is the name of the signer, or `<domain>/*` for all signers of a domain.

use std::sync::Arc;

use auth::{Attributes, User};

use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::server::Server;
use crate::writes::server::access::AccessControl;
use objects::validation::StructView;
use values::json::Object;
use values::object::same_but_for_collection;
use values::status::Status;

/// An action that a user may take for a signer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Act {
    /// Approves or denies a certificate request.
    Approve,
    /// Issues the certificate, or reports why it was not issued.
    Sign,
    /// Publishes a trust bundle of the signer.
    Attest,
}

/// The plugin CertificateApproval, CertificateSigning or ClusterTrustBundleAttest.
pub struct Signers {
    access: Arc<AccessControl>,
    act: Act,
    group: Arc<str>,
}

impl Signers {
    /// Returns the plugin for one action.
    pub fn new(server: &Server, act: Act) -> Signers {
        Signers {
            access: server.access.clone(),
            act,
            group: server.types.naming.group("certificates", true).into(),
        }
    }

    /// Returns whether a user may act for a signer, by its name or by its domain.
    async fn allows(&self, user: &User, signer: &str) -> bool {
        let domain = signer.split('/').next().unwrap_or_default();
        for name in [signer, &format!("{domain}/*")] {
            let asked = Attributes {
                verb: self.act.verb(),
                resource_request: true,
                group: &self.group,
                version: "*",
                resource: "signers",
                name,
                ..Attributes::path(user, "", "")
            };
            if self.access.authorizer.authorize(&asked).await.is_ok() {
                return true;
            }
        }
        false
    }

    async fn check(&self, record: &AdmissionRecord<'_, &Object>) -> Result<(), Status> {
        let signer_of = |object: Option<&Object>| match object {
            Some(object) => StructView::of(object).child("spec").text("signerName").to_owned(),
            None => String::new(),
        };
        let signer = match self.act {
            Act::Approve => signer_of(record.new),
            Act::Sign if !is_signed_anew(record) => return Ok(()),
            Act::Sign => signer_of(record.old),
            Act::Attest => signer_of(record.new),
        };
        let is_free = self.act == Act::Attest && (signer.is_empty() || is_collected(record));
        if is_free || self.allows(record.write.user, &signer).await {
            return Ok(());
        }
        Err(record.forbidden(&match self.act {
            Act::Approve => format!("user not permitted to approve requests with signerName {signer:?}"),
            Act::Sign => format!("user not permitted to sign requests with signerName {signer:?}"),
            Act::Attest => format!("user not permitted to attest for signerName {signer:?}"),
        }))
    }
}

impl Act {
    fn verb(self) -> &'static str {
        match self {
            Act::Approve => "approve",
            Act::Sign => "sign",
            Act::Attest => "attest",
        }
    }
}

/// Returns whether an update changes what a signer reports about a request.
fn is_signed_anew(record: &AdmissionRecord<'_, &Object>) -> bool {
    let (Some(new), Some(old)) = (record.new, record.old) else { return false };
    let changed = |name: &str| {
        StructView::of(new).child("status").get(name) != StructView::of(old).child("status").get(name)
    };
    changed("certificate") || changed("conditions")
}

/// Returns whether an update changes no more than garbage collection does.
fn is_collected(record: &AdmissionRecord<'_, &Object>) -> bool {
    record.new.zip(record.old).is_some_and(|(new, old)| same_but_for_collection(old, new))
}

impl Plugin for Signers {
    fn handles(&self, target: &Target<'_>) -> bool {
        let requests = target.resource.is_of("certificates", "certificatesigningrequests");
        let is_update = target.operation == Operation::Update;
        match self.act {
            Act::Approve => requests && is_update && target.subresource == "approval",
            Act::Sign => requests && is_update && target.subresource == "status",
            Act::Attest => {
                matches!(target.operation, Operation::Create | Operation::Update)
                    && target.is("certificates", "clustertrustbundles")
            }
        }
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        Step::wait(self.check(record))
    }
}
