//! Tests of the server's own CA: creation, renewal, users and rotation.

use super::*;
use crate::host::files::scratch::Scratch;
use std::os::unix::fs::PermissionsExt;

fn names(extra: &str) -> Vec<Name> {
    let mut names = vec![Name::Dns("localhost".into()), Name::Ip([127, 0, 0, 1].into())];
    names.push(Name::Ip("::1".parse().unwrap()));
    if !extra.is_empty() {
        names.push(Name::Dns(extra.into()));
    }
    names
}

#[test]
fn certificates_are_created_once_with_the_right_contents() {
    let dir = Scratch::new();
    let now = SystemTime::now();
    let pki = Pki::open(&dir, now).unwrap();
    let serving = pki.serving(&names("a.example"), now).unwrap();
    let admin = pki.client("admin", "cluster-admin", "system:masters", now).unwrap();

    assert_eq!(names_in(serving.chain.as_bytes()), names("a.example").into_iter().collect());
    let parsed = Described::new(&der(admin.chain.as_bytes()).unwrap()).unwrap();
    assert_eq!((parsed.user.as_str(), parsed.groups), ("cluster-admin", vec!["system:masters".to_owned()]));
    for file in ["ca.key", "serving.key", "admin.key"] {
        let mode = std::fs::metadata(dir.join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }

    let again = Pki::open(&dir, now).unwrap();
    assert_eq!(again.ca_pem(), pki.ca_pem());
    assert_eq!(again.serving(&names("a.example"), now).unwrap(), serving);
    assert_eq!(again.client("admin", "cluster-admin", "system:masters", now).unwrap(), admin);
}

#[test]
fn a_certificate_is_renewed_when_it_is_no_longer_usable() {
    let dir = Scratch::new();
    let now = SystemTime::now();
    let pki = Pki::open(&dir, now).unwrap();
    let mut serving = pki.serving(&names(""), now).unwrap();
    let mut changed = |what: &str, names: &[Name], now: SystemTime, want: bool| {
        let next = Pki::open(&dir, now).unwrap().serving(names, now).unwrap();
        assert_eq!(next != serving, want, "{what}");
        serving = next;
    };
    changed("nothing happened", &names(""), now, false);
    changed("another name", &names("b.example"), now, true);
    changed("most of its life is over", &names("b.example"), now + DAY * 330, false);
    changed("it is about to expire", &names("b.example"), now + DAY * 336, true);
    std::fs::copy(dir.join("ca.key"), dir.join("serving.key")).unwrap();
    changed("its key is another one", &names("b.example"), now + DAY * 336, true);
    std::fs::write(dir.join("serving.crt"), "damaged").unwrap();
    changed("it is damaged", &names("b.example"), now + DAY * 336, true);
    let ca = std::fs::read(dir.join("ca.crt")).unwrap();
    assert_eq!(ca, pki.ca_pem().as_bytes(), "the CA stayed through all of this");
    std::fs::remove_file(dir.join("ca.key")).unwrap();
    std::fs::remove_file(dir.join("ca.crt")).unwrap();
    changed("it is another CA's", &names("b.example"), now + DAY * 336, true);
}

#[test]
fn an_expiring_ca_is_renewed_under_the_same_key() {
    let dir = Scratch::new();
    let now = SystemTime::now();
    let old = Pki::open(&dir, now).unwrap();
    let key = std::fs::read(dir.join("ca.key")).unwrap();
    let later = now + CA_LIFETIME - DAY;
    let new = Pki::open(&dir, later).unwrap();
    assert_ne!(new.ca_pem(), old.ca_pem());
    assert_eq!(std::fs::read(dir.join("ca.key")).unwrap(), key);
    assert_eq!(new.ca.key_id, old.ca.key_id);
}

#[test]
fn a_missing_ca_key_is_an_error_only_if_something_must_be_signed() {
    let dir = Scratch::new();
    let now = SystemTime::now();
    Pki::open(&dir, now).unwrap().serving(&names(""), now).unwrap();
    std::fs::remove_file(dir.join("ca.key")).unwrap();
    let pki = Pki::open(&dir, now).unwrap();
    pki.serving(&names(""), now).unwrap();
    let error = pki.serving(&names("b.example"), now).unwrap_err().to_string();
    assert!(error.ends_with("serving.crt must be created, but ca.key does not exist"), "{error}");
    std::fs::write(dir.join("ca.key"), "damaged").unwrap();
    let error = Pki::open(&dir, now).err().unwrap().to_string();
    assert!(error.ends_with("ca.key is not a PEM private key"), "{error}");
}

/// Returns the properties of a certificate, such as its user, its groups and the key identifier of its
/// issuer.
fn parsed(pair: &PemPair) -> Described {
    Described::new(&der(pair.chain.as_bytes()).unwrap()).unwrap()
}

#[test]
fn a_user_gets_a_certificate_with_all_groups_that_ends_with_the_ca() {
    let dir = Scratch::new();
    let now = SystemTime::now();
    let pki = Pki::open(&dir, now).unwrap();
    let groups = ["developers".to_owned(), "on call".to_owned(), "a,b".to_owned()];
    let issued = parsed(&pki.issue("jo é", &groups, DAY, now).unwrap());
    assert_eq!((issued.user.as_str(), &*issued.groups), ("jo é", &groups[..]));
    assert_eq!(issued.issuer_key_id, pki.ca.key_id);
    let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
    assert!(issued.expires.abs_diff(seconds(now + DAY)) <= 600, "{}", issued.expires);
    let long = parsed(&pki.issue("jo", &[], CA_LIFETIME * 2, now).unwrap());
    assert_eq!(long.expires, seconds(now + CA_LIFETIME));
}

#[test]
fn during_a_ca_rotation_both_cas_are_trusted() {
    let dir = Scratch::new();
    let now = SystemTime::now();
    let pki = Pki::open(&dir, now).unwrap();
    let (serving, admin) = (pki.serving(&names(""), now).unwrap(), pki.client(ADMIN, "a", "g", now).unwrap());
    let first = pki.ca.key_id.clone();
    assert!(Pki::finish_rotation(&dir, now).is_err(), "nothing to finish");

    let during = Pki::begin_rotation(&dir, now).unwrap();
    assert_ne!(during.ca.key_id, first);
    assert_eq!(during.old.as_ref().unwrap().key_id, first);
    assert_eq!(during.ca_pem(), bundle(&dir).unwrap());
    assert_eq!(during.ca_pem().matches("BEGIN CERTIFICATE").count(), 2);
    assert_eq!(during.serving(&names(""), now).unwrap(), serving, "clients may know only the old CA");
    assert_eq!(parsed(&during.renew_serving(now).unwrap()).issuer_key_id, first);
    let renewed = during.client(ADMIN, "a", "g", now).unwrap();
    assert_ne!(renewed, admin);
    assert_eq!(parsed(&renewed).issuer_key_id, during.ca.key_id);
    assert!(Pki::begin_rotation(&dir, now).is_err(), "it has begun");

    let after = Pki::finish_rotation(&dir, now).unwrap();
    assert_eq!((after.is_rotating(), &after.ca.key_id), (false, &during.ca.key_id));
    assert_eq!(after.client(ADMIN, "a", "g", now).unwrap(), renewed);
    after.adopt_serving(now).unwrap();
    let adopted = after.serving(&names(""), now).unwrap();
    assert_eq!(parsed(&adopted).issuer_key_id, after.ca.key_id);
    after.adopt_serving(now).unwrap();
    assert_eq!(after.serving(&names(""), now).unwrap(), adopted, "it is signed by the right CA already");
    assert_eq!(bundle(&dir).unwrap(), after.ca_pem());
}

#[test]
fn an_interrupted_start_of_a_ca_rotation_continues() {
    let now = SystemTime::now();
    for copied in [&["key"][..], &["key", "crt"]] {
        let dir = Scratch::new();
        let first = Pki::open(&dir, now).unwrap().ca.key_id;
        for extension in copied {
            let (from, to) = (dir.join(CA), dir.join(OLD_CA));
            std::fs::copy(from.with_extension(extension), to.with_extension(extension)).unwrap();
        }
        assert_eq!(Pki::open(&dir, now).unwrap().ca.key_id, first);
        let during = Pki::begin_rotation(&dir, now).unwrap();
        assert_eq!(during.old.unwrap().key_id, first);
        assert_ne!(during.ca.key_id, first);
    }
}

#[test]
fn a_renewed_certificate_keeps_its_names() {
    let dir = Scratch::new();
    let now = SystemTime::now();
    let pki = Pki::open(&dir, now).unwrap();
    assert!(pki.renew_serving(now).unwrap_err().to_string().contains("the first start creates it"));
    let serving = pki.serving(&names("a.example"), now).unwrap();
    let renewed = pki.renew_serving(now).unwrap();
    assert_ne!(renewed, serving);
    assert_eq!(pki.serving(&names("a.example"), now).unwrap(), renewed);
}
