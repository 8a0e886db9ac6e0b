//! A minimal DER encoder and decoder (ITU-T X.690) for certificates and certificate requests, and the
//! verification of signatures over them.
//!
//! Lengths are definite and have at most four bytes. This module does not interpret the elements.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::SignatureVerificationAlgorithm;

/// Tags of the universal class that this module writes.
pub(super) const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;

/// The text is not a DER element, or has another number of elements than requested.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Malformed;

/// An element, borrowed from its text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element<'d> {
    pub(super) tag: u8,
    /// The whole element: tag, length and content.
    pub(super) whole: &'d [u8],
    pub(super) content: &'d [u8],
}

impl<'d> Element<'d> {
    /// Returns the element at the beginning of `der`, and the bytes after it.
    pub(super) fn first(der: &'d [u8]) -> Result<(Element<'d>, &'d [u8]), Malformed> {
        let [tag, length, rest @ ..] = der else { return Err(Malformed) };
        let (length, rest) = match *length {
            short @ 0..=0x7f => (usize::from(short), rest),
            long @ 0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f)).ok_or(Malformed)?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return Err(Malformed),
        };
        let (content, after) = rest.split_at_checked(length).ok_or(Malformed)?;
        let whole = &der[..der.len() - after.len()];
        Ok((Element { tag: *tag, whole, content }, after))
    }

    /// Returns the elements inside the single element `der`.
    pub(super) fn children<const N: usize>(der: &'d [u8]) -> Result<[Element<'d>; N], Malformed> {
        let (outer, after) = Element::first(der)?;
        let mut rest = outer.content;
        let mut found = Vec::with_capacity(N);
        while !rest.is_empty() && found.len() < N {
            let (element, after) = Element::first(rest)?;
            (rest, _) = (after, found.push(element));
        }
        if !rest.is_empty() || !after.is_empty() {
            return Err(Malformed);
        }
        found.try_into().map_err(|_| Malformed)
    }

    /// Returns the bits of a bit string that consists of whole bytes.
    pub(super) fn bits(&self) -> Option<&'d [u8]> {
        match self.content {
            [0, bits @ ..] if self.tag == BIT_STRING => Some(bits),
            _ => None,
        }
    }
}

/// Encodes an element with `content`.
pub(super) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut der = vec![tag];
    let length = (content.len() as u32).to_be_bytes();
    let start = length.iter().position(|byte| *byte != 0).unwrap_or(3);
    match content.len() {
        short @ 0..=0x7f => der.push(short as u8),
        _ => {
            der.push(0x80 | (4 - start) as u8);
            der.extend_from_slice(&length[start..]);
        }
    }
    der.extend_from_slice(content);
    der
}

/// Encodes a sequence of elements.
pub(super) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    element(SEQUENCE, &parts.concat())
}

/// Encodes a bit string that consists of whole bytes.
pub(super) fn bit_string(bits: &[u8]) -> Vec<u8> {
    element(BIT_STRING, &[&[0], bits].concat())
}

/// Encodes a PEM block (RFC 7468).
pub(super) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|byte| char::from(*byte)));
        pem.push('\n');
    }
    pem.push_str(&format!("-----END {label}-----\n"));
    pem
}

/// A certificate (RFC 5280, section 4.1) or certificate request (RFC 2986, section 4.2), split for the
/// verification of its signature.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signed<'d> {
    message: &'d [u8],
    /// The content of an AlgorithmIdentifier.
    algorithm: &'d [u8],
    signature: &'d [u8],
}

impl<'d> Signed<'d> {
    /// Splits a document into the signed bytes, the algorithm and the signature.
    pub(super) fn read(der: &'d [u8]) -> Result<Signed<'d>, Malformed> {
        let [message, algorithm, signature] = Element::children(der)?;
        let signature = signature.bits().ok_or(Malformed)?;
        Ok(Signed { message: message.whole, algorithm: algorithm.content, signature })
    }

    /// Returns whether the signature was made with a key; `key` is the content of a SubjectPublicKeyInfo.
    pub(super) fn is_by(&self, key: &[u8]) -> bool {
        let Ok((algorithm, rest)) = Element::first(key) else { return false };
        let Some(key) = Element::first(rest).ok().and_then(|(key, _)| key.bits()) else { return false };
        let fits = |known: &&&dyn SignatureVerificationAlgorithm| {
            known.public_key_alg_id().as_ref() == algorithm.content
                && known.signature_alg_id().as_ref() == self.algorithm
        };
        let mut known = webpki::ALL_VERIFICATION_ALGS.iter().filter(fits);
        known.any(|known| known.verify_signature(key, self.message, self.signature).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_as_they_are_written() {
        for length in [0, 1, 127, 128, 255, 256, 65_536] {
            let content = vec![7; length];
            let inner = element(OCTET_STRING, &content);
            let outer = sequence(&[&inner, &bit_string(&content)]);
            let [first, second] = Element::children(&outer).unwrap();
            assert_eq!((first.tag, first.content, first.whole), (OCTET_STRING, &*content, &*inner));
            assert_eq!(second.bits(), Some(&*content), "{length}");
        }
    }

    #[test]
    fn a_document_is_signed_by_the_key_that_made_its_signature() {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "a");
        let (own, other) = (rcgen::KeyPair::generate().unwrap(), rcgen::KeyPair::generate().unwrap());
        let request = params.serialize_request(&own).unwrap();
        let signed = Signed::read(request.der()).unwrap();
        let is_by = |key: &rcgen::KeyPair| {
            let info = rcgen::PublicKeyData::subject_public_key_info(key);
            signed.is_by(Element::first(&info).unwrap().0.content)
        };
        assert_eq!((is_by(&own), is_by(&other)), (true, false));
        assert!(!signed.is_by(&[]));
        assert!(!signed.is_by(&element(OBJECT_IDENTIFIER, &[])));
        assert!(Signed::read(&sequence(&[&element(INTEGER, &[1])])).is_err());
    }

    #[test]
    fn what_is_no_element_is_refused() {
        let whole = sequence(&[&element(INTEGER, &[1])]);
        for (text, what) in [
            (&b""[..], "nothing"),
            (b"\x30", "no length"),
            (b"\x30\x80\x00\x00", "an indefinite length"),
            (b"\x30\x85\x00\x00\x00\x00\x00", "a length of five bytes"),
            (b"\x30\x84\xff\xff\xff\xff", "a length beyond the end"),
            (b"\x30\x03\x02\x01", "a cut element"),
            (&[&whole[..], &[0]].concat(), "something behind"),
        ] {
            assert_eq!(Element::children::<1>(text).err(), Some(Malformed), "{what}");
        }
        assert_eq!(Element::children::<2>(&whole).err(), Some(Malformed));
        assert_eq!(Element::children::<0>(&whole).err(), Some(Malformed));
    }
}
