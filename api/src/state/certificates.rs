//! How certificates are signed here: the authority that signs them, and for how long
//! (docs/api/controllers.md#certificates).

use std::sync::Arc;
use std::time::Duration;

use auth::authn::certificate_authority::Authority;

/// Where the authority comes from. It may be another one at each call: authorities are renewed.
pub trait AuthoritySource: Send + Sync {
    /// The authority as it is now.
    ///
    /// # Errors
    /// Why nothing can be signed, in one line.
    fn authority(&self) -> Result<Authority, String>;
}

/// The settings of the signers.
#[derive(Clone)]
pub struct Certificates {
    /// Who signs.
    pub authorities: Arc<dyn AuthoritySource>,
    /// How long a certificate is valid, unless its request asks for less.
    pub lifetime: Duration,
}

impl Certificates {
    /// Signs nothing.
    pub fn unsigned() -> Certificates {
        struct NoAuthority;
        impl AuthoritySource for NoAuthority {
            fn authority(&self) -> Result<Authority, String> {
                Err("there is no authority".to_owned())
            }
        }
        Certificates { authorities: Arc::new(NoAuthority), lifetime: Duration::ZERO }
    }
}
