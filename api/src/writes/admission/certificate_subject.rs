//! The plugin CertificateSubjectRestriction: a requested client certificate must not contain the group that
//! has all permissions.

use auth::authn::certificate_request::subject;
use auth::identity::MASTERS;

use crate::writes::plugin::{AdmissionRecord, Plugin, Review, Step, Target};
use crate::writes::server::Server;
use objects::validation::StructView;
use values::base64_text;
use values::json::Object;
use values::status::Status;

/// The admission plugin CertificateSubjectRestriction.
pub struct CertificateSubjectRestriction {
    /// The name of the signer whose client certificates this server trusts.
    signer: String,
}

impl CertificateSubjectRestriction {
    /// Returns the plugin with the names of the naming profile.
    pub fn new(server: &Server) -> CertificateSubjectRestriction {
        CertificateSubjectRestriction {
            signer: server.types.naming.label(&server.types.naming.system("apiserver-client")),
        }
    }

    fn check(&self, record: &AdmissionRecord<'_, &Object>) -> Result<(), Status> {
        let Some(new) = record.new else { return Ok(()) };
        let spec = StructView::from_object(new).child("spec");
        if spec.text("signerName") != self.signer {
            return Ok(());
        }
        let request = base64_text::decode(spec.text("request")).unwrap_or_default();
        let subject =
            subject(&request).map_err(|why| record.forbidden(&format!("failed to parse CSR: {why}")))?;
        if subject.organizations.iter().any(|group| group == MASTERS) {
            let signer = &self.signer;
            return Err(
                record.forbidden(&format!("use of {signer} signer with {MASTERS} group is not allowed"))
            );
        }
        Ok(())
    }
}

impl Plugin for CertificateSubjectRestriction {
    fn handles(&self, target: &Target<'_>) -> bool {
        target.creates("certificates", "certificatesigningrequests")
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        self.check(record).into()
    }
}
