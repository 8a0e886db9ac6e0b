//! Settings for the signing of certificates: the authority that signs them, and their lifetime
//! (docs/api/controllers.md#certificates).

use std::sync::Arc;
use std::time::Duration;

use auth::authn::certificate_authority::Authority;

/// The source of the signing authority. Each call may return another authority, since authorities are
/// renewed.
pub trait AuthoritySource: Send + Sync {
    /// Returns the current authority.
    ///
    /// # Errors
    /// The reason why certificates cannot be signed, in one line.
    fn authority(&self) -> Result<Authority, String>;
}

/// The settings of the certificate signers.
#[derive(Clone)]
pub struct Certificates {
    /// The source of the signing authority.
    pub authorities: Arc<dyn AuthoritySource>,
    /// Lifetime of certificates, unless the request asks for a shorter lifetime.
    pub lifetime: Duration,
}

impl Certificates {
    /// Returns settings without an authority. Signing a certificate always fails.
    pub fn unsigned() -> Certificates {
        struct NoAuthority;
        impl AuthoritySource for NoAuthority {
            fn authority(&self) -> Result<Authority, String> {
                Err("no certificate authority is configured".to_owned())
            }
        }
        Certificates { authorities: Arc::new(NoAuthority), lifetime: Duration::ZERO }
    }
}
