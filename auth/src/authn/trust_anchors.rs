//! Validation of PEM trust bundles (RFC 7468): every block must be a CA certificate, and no certificate may
//! occur twice.
//!
//! Text between blocks and blocks without a correct end are ignored. Errors about the other blocks have
//! kube-apiserver's texts, and never contain text of the bundle.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Base64 decoder that accepts input with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A PEM block of the bundle.
pub(super) struct Block<'t> {
    pub(super) label: &'t str,
    has_headers: bool,
    pub(super) content: Vec<u8>,
}

/// Returns the problems of a bundle. The list is empty if the bundle is valid.
pub fn problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut anchors: Vec<(Vec<u8>, Vec<usize>)> = Vec::new();
    for (at, block) in Blocks(text).enumerate() {
        let Block { label, has_headers, content } = block;
        let problem = match X509Certificate::from_der(&content) {
            _ if label != "CERTIFICATE" => format!("has bad block type: {label}"),
            _ if has_headers => "has PEM block headers".to_owned(),
            Ok(([], certificate)) if certificate.is_ca() => {
                match anchors.iter_mut().find(|(known, _)| *known == content) {
                    Some((_, places)) => places.push(at),
                    None => anchors.push((content, vec![at])),
                }
                continue;
            }
            Ok(([], _)) => "does not have the CA bit set".to_owned(),
            Ok(_) | Err(_) => "does not parse as X.509".to_owned(),
        };
        problems.push(format!("entry {at} {problem}"));
    }
    if !problems.is_empty() {
        return problems;
    }
    if anchors.is_empty() {
        return vec!["at least one trust anchor must be provided".to_owned()];
    }
    let repeated = anchors.iter().filter(|(_, places)| places.len() > 1);
    let repeated = repeated.map(|(_, places)| {
        let places: Vec<String> = places.iter().map(usize::to_string).collect();
        format!("duplicate trust anchor (indices [{}])", places.join(" "))
    });
    repeated.collect()
}

/// Returns the first problem of the certificates that were issued for a request. Returns `None` if all
/// certificates are valid.
pub fn chain_problem(text: &str) -> Option<String> {
    let mut count = 0;
    for Block { label, has_headers, content } in Blocks(text) {
        if label != "CERTIFICATE" {
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {label:?}"));
        }
        if has_headers {
            return Some("no PEM block headers are permitted".to_owned());
        }
        let mut rest = &*content;
        if rest.is_empty() {
            return Some("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        // A block may contain several certificates.
        while !rest.is_empty() {
            match X509Certificate::from_der(rest) {
                Ok((after, _)) => rest = after,
                Err(_) => return Some("x509: malformed certificate".to_owned()),
            }
        }
        count += 1;
    }
    (count == 0).then(|| "must contain at least one CERTIFICATE PEM block".to_owned())
}

/// An iterator over the PEM blocks of a text, in order.
pub(super) struct Blocks<'t>(pub(super) &'t str);

impl<'t> Iterator for Blocks<'t> {
    type Item = Block<'t>;

    fn next(&mut self) -> Option<Block<'t>> {
        loop {
            let line;
            (line, self.0) = next_line(self.0)?;
            let label =
                line.trim_end().strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----"));
            let Some(label) = label else { continue };
            if let Some((block, rest)) = block(label, self.0) {
                self.0 = rest;
                return Some(block);
            }
        }
    }
}

/// Parses the rest of a block after its first line. Returns the block and the text after it.
fn block<'t>(label: &'t str, mut rest: &'t str) -> Option<(Block<'t>, &'t str)> {
    let (mut has_headers, mut encoded) = (false, String::new());
    loop {
        let line;
        (line, rest) = next_line(rest)?;
        let line = line.trim();
        if let Some(end) = line.strip_prefix("-----END ") {
            if end.strip_suffix("-----") != Some(label) {
                return None;
            }
            let content = BASE64.decode(encoded).ok()?;
            return Some((Block { label, has_headers, content }, rest));
        }
        if line.starts_with("-----") {
            return None;
        }
        if encoded.is_empty() && line.contains(':') {
            has_headers = true;
        } else {
            encoded.push_str(line);
        }
    }
}

/// Splits off the first line of a text; `None` at the end of the text.
fn next_line(text: &str) -> Option<(&str, &str)> {
    match text.split_once('\n') {
        Some(parts) => Some(parts),
        None if text.is_empty() => None,
        None => Some((text, "")),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    fn certificate(is_ca: bool) -> String {
        let mut params = CertificateParams::default();
        params.is_ca = if is_ca { IsCa::Ca(BasicConstraints::Unconstrained) } else { IsCa::NoCa };
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn a_certificate_chain_consists_of_certificates_only() {
        let one = certificate(false);
        let key = KeyPair::generate().unwrap().serialize_pem();
        let with_header = one.replacen('\n', "\nA: b\n\n", 1);
        for (text, want) in [
            (one.clone(), None),
            (format!("one\n{one}two\n{one}"), None),
            (String::new(), Some("must contain at least one CERTIFICATE PEM block")),
            (one.replace("END CERTIFICATE", "END"), Some("must contain at least one CERTIFICATE PEM block")),
            (format!("{one}{key}"), Some("only CERTIFICATE PEM blocks are allowed, found \"PRIVATE KEY\"")),
            (with_header, Some("no PEM block headers are permitted")),
            (
                "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n".to_owned(),
                Some("x509: malformed certificate"),
            ),
        ] {
            assert_eq!(chain_problem(&text).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn a_trust_bundle_consists_of_distinct_certificates_of_authorities() {
        let (one, two, client) = (certificate(true), certificate(true), certificate(false));
        let key = KeyPair::generate().unwrap().serialize_pem();
        let with_header =
            one.replacen("-----\n", "-----\nA: b\n\n", 1).replacen("-----\r\n", "-----\r\nA: b\r\n", 1);
        const NONE: &str = "at least one trust anchor must be provided";
        for (text, want) in [
            (one.clone(), &[][..]),
            (format!("one\n{one}two\n{two}"), &[]),
            (one.replace("\r\n", "\n").trim_end().to_owned(), &[]),
            (String::new(), &[NONE]),
            ("hello".to_owned(), &[NONE]),
            (one.replace("END CERTIFICATE", "END"), &[NONE]),
            (format!("{one}{two}{one}"), &["duplicate trust anchor (indices [0 2])"]),
            (format!("{key}{one}{one}"), &["entry 0 has bad block type: PRIVATE KEY"]),
            (format!("{one}{client}"), &["entry 1 does not have the CA bit set"]),
            (with_header, &["entry 0 has PEM block headers"]),
            (
                "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n".to_owned(),
                &["entry 0 does not parse as X.509"],
            ),
        ] {
            assert_eq!(problems(&text), want, "{text}");
        }
    }
}
