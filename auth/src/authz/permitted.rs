//! A cache of permissions to act as another user. Entries expire after some seconds
//! (docs/api/authentication.md#impersonation).
//!
//! Each constrained mode caches two kinds of permissions. A permission for a request applies only to the same
//! request. A permission for a wanted identity applies to all requests of the same caller. Refusals are not
//! cached.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use parking_lot::Mutex;

use crate::attributes::{Attributes, Selectors};
use crate::identity::User;

/// Lifetime of a cached permission. The permission stays valid for this time, even if the rules that grant it
/// change.
const LIFETIME: Duration = Duration::from_secs(10);

/// Maximum number of cached permissions; each takes about 100 bytes.
const KEPT_MAX: usize = 8192;

/// Cached permissions, by the digest of their subject.
#[derive(Default)]
pub(super) struct Permitted(Mutex<HashMap<PermissionKey, Instant>>);

/// The digest of all data on which a permission depends.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub(super) struct PermissionKey([u8; 32]);

impl Permitted {
    /// Returns whether the cache contains a permission that has not expired.
    pub(super) fn has(&self, subject: PermissionKey) -> bool {
        self.has_at(subject, Instant::now())
    }

    /// Stores a permission, which begins now.
    pub(super) fn keep(&self, subject: PermissionKey) {
        self.keep_at(subject, Instant::now());
    }

    fn has_at(&self, subject: PermissionKey, now: Instant) -> bool {
        self.0.lock().get(&subject).is_some_and(|end| now < *end)
    }

    /// Stores a permission. Drops the expired entries if the cache is full, or all entries if no entry has
    /// expired.
    fn keep_at(&self, subject: PermissionKey, now: Instant) {
        let mut entries = self.0.lock();
        if entries.len() >= KEPT_MAX {
            entries.retain(|_, end| now < *end);
            if entries.len() >= KEPT_MAX {
                entries.clear();
            }
        }
        entries.insert(subject, now + LIFETIME);
    }
}

impl PermissionKey {
    /// Returns the key for a caller that acts as `impersonated` in a mode, for any request.
    pub(super) fn identity(mode: &str, caller: &User, impersonated: &User) -> PermissionKey {
        let mut parts = Parts::new();
        parts.texts(["identity", mode]);
        parts.user(caller);
        parts.user(impersonated);
        parts.end()
    }

    /// Returns the key for a request that its caller makes as `impersonated` in a mode.
    pub(super) fn request(mode: &str, request: &Attributes<'_>, impersonated: &User) -> PermissionKey {
        let Attributes { user, verb, resource_request, group, version, resource, .. } = *request;
        let Attributes { subresource, namespace, name, path, selectors, .. } = *request;
        let sort = if resource_request { "resource" } else { "path" };
        let mut parts = Parts::new();
        parts.texts(["request", mode, sort]);
        parts.user(user);
        parts.user(impersonated);
        parts.texts([verb, group, version, resource, subresource, namespace, name, path]);
        parts.selectors(selectors);
        parts.end()
    }
}

/// A digest of strings, each preceded by its length, and lists, each preceded by its number of elements.
struct Parts(digest::Context);

impl Parts {
    fn new() -> Parts {
        Parts(digest::Context::new(&digest::SHA256))
    }

    fn number(&mut self, number: usize) {
        self.0.update(&(number as u64).to_be_bytes());
    }

    fn texts<'t>(&mut self, texts: impl IntoIterator<Item = &'t str, IntoIter: ExactSizeIterator>) {
        let texts = texts.into_iter();
        self.number(texts.len());
        for text in texts {
            self.number(text.len());
            self.0.update(text.as_bytes());
        }
    }

    fn user(&mut self, user: &User) {
        self.texts([user.name.as_str(), &user.uid]);
        self.texts(user.groups.iter().map(String::as_str));
        self.number(user.extra.len());
        for (key, values) in &user.extra {
            self.texts([key.as_str()]);
            self.texts(values.iter().map(String::as_str));
        }
    }

    fn selectors(&mut self, selectors: Selectors<'_>) {
        self.number(selectors.fields.len());
        for field in selectors.fields {
            self.texts([field.field.as_str(), if field.is_equal { "=" } else { "!=" }, &field.value]);
        }
        self.number(selectors.labels.len());
        for label in selectors.labels {
            self.texts([label.key.as_str(), label.operator]);
            self.texts(label.values.iter().map(String::as_str));
        }
    }

    fn end(self) -> PermissionKey {
        let mut id = [0; 32];
        id.copy_from_slice(self.0.finish().as_ref());
        PermissionKey(id)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::attributes::{FieldRequirement, LabelRequirement};

    /// Returns users. Each user differs from the first user in one property.
    fn users() -> Vec<User> {
        let jane = User::new("jane", ["dev", "ops"]);
        let with_extra = |extra: &[(&str, &[&str])]| {
            let list = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
            let extra = extra.iter().map(|(key, values)| ((*key).to_owned(), list(values))).collect();
            User { extra, ..jane.clone() }
        };
        vec![
            jane.clone(),
            User { name: "joe".to_owned(), ..jane.clone() },
            User { uid: "1".to_owned(), ..jane.clone() },
            User { groups: Vec::new(), ..jane.clone() },
            User { groups: vec!["dev".to_owned()], ..jane.clone() },
            User { groups: vec!["devops".to_owned()], ..jane.clone() },
            User { groups: vec!["ops".to_owned(), "dev".to_owned()], ..jane.clone() },
            with_extra(&[("a", &[])]),
            with_extra(&[("a", &["b"])]),
            with_extra(&[("b", &["b"])]),
            with_extra(&[("a", &["b", "c"])]),
            with_extra(&[("a", &["b"]), ("c", &[])]),
        ]
    }

    /// Returns selectors that differ from each other in one property.
    fn selections() -> [(Vec<FieldRequirement>, Vec<LabelRequirement>); 10] {
        let field = |field: &str, is_equal: bool, value: &str| FieldRequirement {
            field: field.to_owned(),
            is_equal,
            value: value.to_owned(),
        };
        let label = |key: &str, operator: &'static str, values: &[&str]| LabelRequirement {
            key: key.to_owned(),
            operator,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        };
        [
            (vec![field("a", true, "b")], vec![]),
            (vec![field("a", false, "b")], vec![]),
            (vec![field("b", true, "b")], vec![]),
            (vec![field("a", true, "a")], vec![]),
            (vec![field("a", true, "b"), field("a", true, "b")], vec![]),
            (vec![], vec![label("a", "In", &["b"])]),
            (vec![], vec![label("a", "NotIn", &["b"])]),
            (vec![], vec![label("b", "In", &["b"])]),
            (vec![], vec![label("a", "In", &["b", "c"])]),
            (vec![], vec![label("a", "Exists", &[])]),
        ]
    }

    #[test]
    fn permission_cache_keys_differ_in_everything_that_a_decision_depends_on() {
        let users = users();
        let [jane, joe, others @ ..] = &users[..] else { panic!("too few users") };
        let pods = Attributes {
            resource_request: true,
            group: "apps",
            version: "v1",
            resource: "pods",
            subresource: "status",
            namespace: "ns",
            name: "x",
            ..Attributes::path(jane, "list", "/api")
        };
        let mode = "impersonate:user-info";
        let mut requests = vec![
            pods,
            Attributes { verb: "watch", ..pods },
            Attributes { resource_request: false, ..pods },
            Attributes { group: "", ..pods },
            Attributes { version: "v2", ..pods },
            Attributes { resource: "secrets", ..pods },
            Attributes { subresource: "", ..pods },
            Attributes { namespace: "", ..pods },
            Attributes { name: "", ..pods },
            Attributes { namespace: "x", name: "ns", ..pods },
            Attributes { namespace: "nsx", name: "", ..pods },
            Attributes { path: "/apis", ..pods },
        ];
        let selections = selections();
        requests.extend(
            selections
                .iter()
                .map(|(fields, labels)| Attributes { selectors: Selectors { fields, labels }, ..pods }),
        );
        requests.extend(others.iter().chain([joe]).map(|user| Attributes { user, ..pods }));
        let other_mode = "impersonate:serviceaccount";
        let mut subjects = vec![
            PermissionKey::request(other_mode, &pods, joe),
            PermissionKey::identity(other_mode, jane, joe),
            PermissionKey::identity(mode, joe, jane),
        ];
        subjects.extend(requests.iter().map(|request| PermissionKey::request(mode, request, joe)));
        for impersonated in others.iter().chain([jane]) {
            subjects.extend([
                PermissionKey::request(mode, &pods, impersonated),
                PermissionKey::identity(mode, jane, impersonated),
            ]);
        }
        subjects.extend(users.iter().map(|caller| PermissionKey::identity(mode, caller, joe)));
        let mut seen = HashSet::new();
        for (at, subject) in subjects.into_iter().enumerate() {
            assert!(seen.insert(subject), "{at}");
        }
    }

    #[test]
    fn cached_permissions_expire_and_are_bounded() {
        let user = User::new("u", [""; 0]);
        let of = |at: usize| PermissionKey::identity(&at.to_string(), &user, &user);
        let (permitted, start) = (Permitted::default(), Instant::now());
        permitted.keep_at(of(0), start);
        for (after, is_kept) in [(Duration::ZERO, true), (LIFETIME / 2, true), (LIFETIME, false)] {
            assert_eq!(permitted.has_at(of(0), start + after), is_kept, "{after:?}");
        }
        assert!(!permitted.has_at(of(1), start));
        // The full cache drops the expired entry.
        let later = start + LIFETIME;
        (1..=KEPT_MAX).for_each(|at| permitted.keep_at(of(at), later));
        assert_eq!(permitted.0.lock().len(), KEPT_MAX);
        assert!(permitted.has_at(of(1), later) && permitted.has_at(of(KEPT_MAX), later));
        // No entry has expired, so the full cache drops all entries.
        permitted.keep_at(of(0), later);
        assert_eq!(permitted.0.lock().len(), 1);
        assert!(permitted.has_at(of(0), later) && !permitted.has_at(of(1), later));
    }
}
