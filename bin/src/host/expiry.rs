//! Reports the expiry of certificates as a metric, and warns long before the expiry.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use auth::authn::certificate_authority::end_of;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use wire::metrics::Metrics;

/// How long before its expiry a certificate causes a warning. In this time the operator can get a new
/// certificate.
const WARN_BEFORE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Records the earliest expiry of the certificates in a PEM text as a metric. Logs a warning if the expiry is
/// near.
pub fn watch(metrics: &Metrics, certificate: &'static str, pem: &[u8]) {
    let Some(end) = first_end(pem) else { return };
    metrics.certificates.set(&[certificate], end);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let left = end.saturating_sub(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    if left < WARN_BEFORE.as_secs() as i64 {
        let days = left.div_euclid(24 * 60 * 60);
        tracing::warn!(certificate, days, "certificate expires soon or has expired: replace it");
    }
}

/// Formats the earliest expiry of the certificates in a PEM text for the log (RFC 3339). The result is empty
/// if there are no certificates.
pub fn expiry_text(pem: &[u8]) -> String {
    let end = first_end(pem).and_then(|end| jiff::Timestamp::from_second(end).ok());
    end.map(|end| end.to_string()).unwrap_or_default()
}

fn first_end(pem: &[u8]) -> Option<i64> {
    let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
    certificates.filter_map(|certificate| end_of(&certificate)).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expiry_of_a_bundle_is_that_of_its_first_expiring_certificate() {
        let ending = |year: i32| {
            let mut params = rcgen::CertificateParams::default();
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
        };
        let bundle = [ending(2040), ending(2030), ending(2050)].concat();
        assert_eq!(first_end(bundle.as_bytes()), Some(1_893_456_000));
        assert_eq!(first_end(b"no certificate"), None);
        assert_eq!(
            (expiry_text(bundle.as_bytes()).as_str(), expiry_text(b"")),
            ("2030-01-01T00:00:00Z", String::new())
        );
        let metrics = Metrics::default();
        watch(&metrics, "serving", bundle.as_bytes());
        let mut page = metrics.page();
        metrics.write(&mut page);
        let line = "apiserver_certificate_expiration_timestamp_seconds{certificate=\"serving\"} 1893456000";
        assert!(page.into_text().contains(line));
    }
}
