//! Encrypts stored values. The configuration decides which values are encrypted, and with which keys
//! (docs/api/encryption.md).
//!
//! ```text
//! write: key of the log ─► resource ─► first rule that names it ─► its first provider ─► sealed, or unchanged
//! read:  head of the value ─► the key that it names, of any rule ─► value
//! ```
//!
//! A configuration is replaced as a whole. Values in etcd are encrypted in the same way; their keys in etcd are
//! the keys that kube-apiserver uses. This module reads no files: the server program reads the configuration,
//! and reads it again when it changes.

pub mod config;
mod kms;
mod provider;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use engine::{OpenedValue, Seal, SealError};

pub use self::kms::KeyService;
use self::kms::Wrapping;
use self::provider::Key;
use types::schema::registry::Registry;
use values::naming::Naming;

/// Plural names of resources that are stored once although two groups serve them. Rules for the core group
/// apply to these resources.
const OF_TWO_GROUPS: [&str; 1] = ["events"];

/// A rule of a configuration.
#[derive(Debug)]
pub struct Rule {
    resources: Vec<String>,
    providers: Vec<Provider>,
}

/// A provider of the configuration, which decides how values are stored.
#[derive(Debug)]
enum Provider {
    /// Values are stored unencrypted.
    Identity,
    /// Values are encrypted with the first key, and can be decrypted with each of the keys.
    Keys(Vec<Key>),
}

/// The encryption configuration in use.
pub struct Secrecy {
    rules: ArcSwap<Vec<Rule>>,
    /// Full names of built-in groups, by the name of the group in keys of the log.
    groups: BTreeMap<String, String>,
    mark: String,
}

impl fmt::Debug for Secrecy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrecy").field("rules", &self.rules.load().len()).finish_non_exhaustive()
    }
}

impl Secrecy {
    /// Returns a configuration with these rules, for the built-in types of `registry` and for custom types.
    pub fn new(rules: Vec<Rule>, registry: &Registry, naming: &Naming) -> Secrecy {
        // Types that are stored as a type of another group have the name of that group.
        let own = registry.resources().filter(|resource| resource.is_stored_form());
        let groups = own.filter_map(|resource| {
            let prefix = &resource.storage.as_ref()?.key_prefix;
            let group = prefix.split('/').nth(1)?;
            Some((group.to_owned(), resource.group.clone()))
        });
        Secrecy { rules: ArcSwap::from_pointee(rules), groups: groups.collect(), mark: config::mark(naming) }
    }

    /// Asks the key services for their status, and to wrap new seeds where necessary. This call blocks.
    ///
    /// # Errors
    /// A service reported an error, or was not reached.
    pub fn refresh(&self) -> Result<(), String> {
        refresh(&self.rules.load())
    }

    /// Checks that the last status of each key service was healthy.
    ///
    /// # Errors
    /// A service reported an error, or was not reached.
    pub fn health(&self) -> Result<(), String> {
        services(&self.rules.load()).try_for_each(|service| service.health())
    }

    /// Returns whether the configuration uses key services.
    pub fn has_services(&self) -> bool {
        services(&self.rules.load()).next().is_some()
    }

    /// Replaces the rules in use.
    pub fn replace(&self, rules: Vec<Rule>) {
        self.rules.store(Arc::new(rules));
    }

    /// Returns the encryption key for the values of a key of the log; `None` if the rules do not encrypt these
    /// values.
    fn writing<'r>(&self, rules: &'r [Rule], key: &[u8]) -> Option<&'r Key> {
        let mut parts = std::str::from_utf8(key).ok()?.split('/').skip(1);
        let (group, plural) = (parts.next()?, parts.next()?);
        let group = self.groups.get(group).map_or(group, String::as_str);
        let group = if OF_TWO_GROUPS.contains(&plural) { "" } else { group };
        let rule = rules.iter().find(|rule| rule.resources.iter().any(|name| names(name, group, plural)))?;
        match rule.providers.first()? {
            Provider::Identity => None,
            Provider::Keys(keys) => keys.first(),
        }
    }

    /// Encrypts a value that is stored outside the log under the key `place`. `key` is the key of the value in
    /// the log. The value is unchanged if the rules do not require encryption for `key`.
    ///
    /// # Errors
    /// The value cannot be encrypted.
    pub fn seal_outside(&self, key: &[u8], place: &[u8], value: Bytes) -> Result<Bytes, SealError> {
        let rules = self.rules.load();
        match self.writing(&rules, key) {
            Some(key) => key.seal(place, &value).map(Bytes::from),
            None => Ok(value),
        }
    }

    /// Decrypts the value that is stored under the key `place`. Returns `None` if the value is not encrypted.
    ///
    /// # Errors
    /// Returns an error if no configured key can open the value.
    pub fn opened(&self, place: &[u8], stored: &[u8]) -> Result<Option<Vec<u8>>, SealError> {
        if !stored.starts_with(self.mark.as_bytes()) {
            return Ok(None);
        }
        let rules = self.rules.load();
        let keys = rules.iter().flat_map(|rule| &rule.providers).flat_map(|provider| match provider {
            Provider::Identity => &[][..],
            Provider::Keys(keys) => keys,
        });
        let mut error = SealError("no matching prefix found".to_owned());
        for key in keys.filter(|key| key.is_named_by(stored)) {
            match key.open(place, stored) {
                Ok(value) => return Ok(Some(value)),
                Err(why) => error = why,
            }
        }
        Err(error)
    }
}

fn services(rules: &[Rule]) -> impl Iterator<Item = &Wrapping> {
    rules.iter().flat_map(|rule| &rule.providers).filter_map(|provider| match provider {
        Provider::Identity => None,
        Provider::Keys(keys) => keys.first()?.service(),
    })
}

/// Asks the key services of rules for their status. This call blocks.
///
/// # Errors
/// Returns the error of the first service that is not healthy; the status of the other services is requested
/// as well.
pub fn refresh(rules: &[Rule]) -> Result<(), String> {
    services(rules).map(Wrapping::refresh).fold(Ok(()), Result::and)
}

/// Returns whether a name in a rule matches a resource: `secrets`, `deployments.apps`, `*.apps`, `*.` or
/// `*.*`.
fn names(name: &str, group: &str, plural: &str) -> bool {
    match name.split_once('.') {
        None => group.is_empty() && name == plural,
        Some(("*", "*")) => true,
        Some((one, of)) => of == group && (one == "*" || one == plural),
    }
}

impl Seal for Secrecy {
    fn seals(&self, key: &[u8]) -> bool {
        self.writing(&self.rules.load(), key).is_some()
    }

    fn seal(&self, key: &[u8], value: &[u8]) -> Result<Vec<u8>, SealError> {
        let rules = self.rules.load();
        match self.writing(&rules, key) {
            Some(with) => with.seal(key, value),
            None => Err(SealError("the configuration changed meanwhile: try again".to_owned())),
        }
    }

    fn open(&self, key: &[u8], stored: &[u8]) -> Result<Option<OpenedValue>, SealError> {
        let value = self.opened(key, stored)?;
        let is_current = || self.writing(&self.rules.load(), key).is_some_and(|with| with.is_current(stored));
        Ok(value.map(|value| OpenedValue { value, outdated: !is_current() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::KUBERNETES;

    fn rules(text: &str) -> Vec<Rule> {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: ";
        config::read(format!("{head}{text}").as_bytes(), &KUBERNETES, &|_, _| panic!("no service")).unwrap()
    }

    const OLD: &str = "{aescbc: {keys: [{name: old, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}}";
    const NEW: &str = "{aesgcm: {keys: [{name: new, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}}";

    #[test]
    fn the_first_encryption_rule_that_names_a_resource_applies() {
        let text = format!(
            "[{{resources: [configmaps], providers: [{{identity: {{}}}}]}},
              {{resources: ['*.', deployments.apps, '*.networking.k8s.io', widgets.example.com], providers: [{NEW}]}}]"
        );
        let secrecy = Secrecy::new(rules(&text), &Registry::new(&KUBERNETES), &KUBERNETES);
        for (key, want) in [
            ("/core/secrets/a/b", true),
            ("/core/events/a/b", true),
            ("/core/configmaps/a/b", false),
            ("/apps/deployments/a/b", true),
            ("/apps/daemonsets/a/b", false),
            ("/networking/ingresses/a/b", true),
            ("/example.com/widgets/a", true),
            ("/example.com/others/a", false),
        ] {
            assert_eq!(secrecy.seals(key.as_bytes()), want, "{key}");
        }
    }

    #[test]
    fn a_replaced_key_opens_its_old_values_while_it_is_configured() {
        let with = |providers: &str| rules(&format!("[{{resources: [secrets], providers: [{providers}]}}]"));
        let secrecy = Secrecy::new(with(OLD), &Registry::new(&KUBERNETES), &KUBERNETES);
        let key = b"/core/secrets/a/b";
        let old = secrecy.seal(key, b"{}").unwrap();
        assert!(old.starts_with(b"k8s:enc:aescbc:v1:old:"));
        secrecy.replace(with(&format!("{NEW}, {OLD}")));
        let new = secrecy.seal(key, b"{}").unwrap();
        assert!(new.starts_with(b"k8s:enc:aesgcm:v1:new:"));
        for stored in [&old, &new] {
            let outdated = std::ptr::eq(stored, &old);
            let opened = OpenedValue { value: b"{}".to_vec(), outdated };
            assert_eq!(secrecy.open(key, stored), Ok(Some(opened)));
        }
        assert_eq!(secrecy.open(key, b"{}"), Ok(None));
        secrecy.replace(with(NEW));
        assert_eq!(secrecy.open(key, &old).unwrap_err().to_string(), "no matching prefix found");
    }
}
