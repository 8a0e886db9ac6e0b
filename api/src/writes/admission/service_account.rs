//! The plugin ServiceAccount: a pod runs under a service account of its namespace, and the containers of the
//! pod get a token of the account.
//!
//! ```text
//! pod ─► account (`default` if it names none) ─► exists? ─► token volume and mounts, pull secrets
//! ```

use std::sync::Arc;

use super::Parsed;
use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::pod;
use crate::writes::server::Server;
use crate::writes::server::store::ObjectStorage;
use crate::writes::server::types::TypeCatalog;
use values::json::{Object, Value};
use values::names;
use values::status::Status;

/// The service account of pods that name no account.
const DEFAULT: &str = "default";

/// Lifetime of a token in seconds: one hour, and seven seconds that distinguish tokens of this volume from
/// other tokens.
const TOKEN_SECONDS: i64 = 3607;

/// Mode of the files in the token volume: readable by all, `0644`.
const MODE: i64 = 0o644;

/// The admission plugin ServiceAccount.
pub struct ServiceAccount {
    store: Arc<ObjectStorage>,
    types: Arc<TypeCatalog>,
    accounts: Parsed<Account>,
    /// Prefix of the names of token volumes.
    volume_prefix: String,
    mount_path: String,
    /// The annotation of mirror pods. A node agent creates a mirror pod for each pod that the agent runs from
    /// a file.
    mirror: String,
}

/// The settings of a service account that the plugin reads.
struct Account {
    name: String,
    /// Whether pods of the account get a token; `None` if the field is not set.
    wants_token: Option<bool>,
    /// Names of the secrets with which pods of the account pull images.
    pull_secrets: Vec<String>,
    /// Names of the secrets that pods of the account may use; `None` if the pods may use all secrets.
    secrets: Option<Vec<String>>,
}

impl Account {
    /// Reads a service account. `enforce_secrets` is the annotation of accounts whose pods may use only the
    /// listed secrets.
    fn read(account: &Object, enforce_secrets: &str) -> Account {
        let names = |list: &str| {
            let list = account.get(list).and_then(Value::as_array).unwrap_or_default();
            list.iter().map(|reference| reference.str_at(&["name"]).to_owned()).collect()
        };
        let is_limited = matches!(
            pod::annotation(account, enforce_secrets),
            Some("1" | "t" | "T" | "true" | "TRUE" | "True")
        );
        Account {
            name: values::object::meta(account, "name").to_owned(),
            wants_token: account.get(AUTOMOUNT_TOKEN).and_then(Value::as_bool),
            pull_secrets: names("imagePullSecrets"),
            secrets: is_limited.then(|| names("secrets")),
        }
    }
}

impl ServiceAccount {
    /// Returns the plugin for this store.
    pub fn new(server: &Server) -> ServiceAccount {
        let naming = server.types.naming;
        let enforce_secrets = naming.label("enforce-mountable-secrets");
        let accounts = server.types.resource("", "v1", "serviceaccounts");
        ServiceAccount {
            store: server.store.clone(),
            types: server.types.clone(),
            accounts: Parsed::new(&server.store, accounts, move |account| {
                Account::read(account, &enforce_secrets)
            }),
            volume_prefix: format!("{}-", naming.system("api-access")),
            mount_path: format!("/var/run/secrets/{}/serviceaccount", naming.domain),
            mirror: naming.label("config.mirror"),
        }
    }

    fn is_mirror(&self, pod: &Object) -> bool {
        pod::annotation(pod, &self.mirror).is_some()
    }

    fn account<N>(&self, record: &AdmissionRecord<'_, N>, name: &str) -> Result<Arc<Account>, String> {
        let namespace = record.write.namespace;
        let why = match self.accounts.get(&self.store, namespace, name) {
            Ok(Some(account)) => return Ok(account),
            Ok(None) => format!("serviceaccount {name:?} not found"),
            Err(status) => status.into_message(),
        };
        Err(format!("error looking up service account {namespace}/{name}: {why}"))
    }

    fn complete(&self, record: &mut AdmissionRecord<'_, &mut Object>) -> Result<(), Status> {
        let Some(new) = record.new.as_deref_mut() else { return Ok(()) };
        if self.is_mirror(new) {
            // The agent compares a mirror pod with the file of the pod, so the mirror pod must not be
            // changed.
            return self.check_mirror(new).map_err(|why| record.forbidden(why));
        }
        if pod::text(new, "serviceAccountName").is_empty() {
            let spec = new.object_entry("spec");
            spec.insert("serviceAccountName", DEFAULT.into());
            spec.insert("serviceAccount", DEFAULT.into());
        }
        let name = pod::text(new, "serviceAccountName").to_owned();
        let account = self.account(record, &name).map_err(|why| record.forbidden(&why))?;
        let Some(new) = record.new.as_deref_mut() else { return Ok(()) };
        if wants_token(new, &account) {
            self.mount_token(new);
        }
        if pod::list(new, "imagePullSecrets").is_empty() && !account.pull_secrets.is_empty() {
            let reference = |name: &String| Object::from_iter([("name".into(), name.as_str().into())]).into();
            let references = account.pull_secrets.iter().map(reference);
            new.object_entry("spec").insert("imagePullSecrets", Value::Array(references.collect()));
        }
        // Check here, so that a pod that the account forbids is refused before other plugins and the
        // validation run.
        match record.new.as_deref() {
            Some(new) => check_secrets(new, &account).map_err(|why| record.forbidden(&why)),
            None => Ok(()),
        }
    }

    /// Mounts a token into every container that has no other mount at the path of the token.
    fn mount_token(&self, pod: &mut Object) {
        let volumes = pod::list(pod, "volumes").iter().map(|volume| volume.str_at(&["name"]));
        let there = volumes.into_iter().find(|name| name.starts_with(&self.volume_prefix)).map(str::to_owned);
        let is_there = there.is_some();
        let name = there.unwrap_or_else(|| names::generated(&self.volume_prefix));
        let mut is_mounted = false;
        for list in [pod::INIT, pod::MAIN] {
            for container in pod::list_mut(pod, list) {
                let mounts = container.get("volumeMounts").and_then(Value::as_array).unwrap_or_default();
                if mounts.iter().any(|mount| mount.str_at(&["mountPath"]) == self.mount_path) {
                    continue;
                }
                let mount = Object::from_iter([
                    ("name".into(), name.as_str().into()),
                    ("readOnly".into(), true.into()),
                    ("mountPath".into(), self.mount_path.as_str().into()),
                ]);
                pod::append(container, "volumeMounts", mount.into());
                is_mounted = true;
            }
        }
        if is_mounted && !is_there {
            pod::append(pod.object_entry("spec"), "volumes", self.token_volume(&name));
        }
    }

    /// Returns a volume with three files: a token of the pod's account, the authorities with which clients
    /// verify the server, and the name of the namespace.
    fn token_volume(&self, name: &str) -> Value {
        let object = |members: Vec<(&'static str, Value)>| {
            Value::Object(Object::from_iter(members.into_iter().map(|(name, value)| (name.into(), value))))
        };
        let root = self.types.naming.root_ca_config_map;
        let token = object(vec![("expirationSeconds", Value::Int(TOKEN_SECONDS)), ("path", "token".into())]);
        let authority = object(vec![("key", "ca.crt".into()), ("path", "ca.crt".into())]);
        let authorities = object(vec![("name", root.into()), ("items", Value::Array(vec![authority]))]);
        let reference = object(vec![("apiVersion", "v1".into()), ("fieldPath", "metadata.namespace".into())]);
        let namespace = object(vec![("path", "namespace".into()), ("fieldRef", reference)]);
        let sources = vec![
            object(vec![("serviceAccountToken", token)]),
            object(vec![("configMap", authorities)]),
            object(vec![("downwardAPI", object(vec![("items", Value::Array(vec![namespace]))]))]),
        ];
        let projected = object(vec![("sources", Value::Array(sources)), ("defaultMode", Value::Int(MODE))]);
        object(vec![("name", name.into()), ("projected", projected)])
    }

    fn check(&self, record: &AdmissionRecord<'_, &Object>) -> Result<(), Status> {
        let Some(new) = record.new else { return Ok(()) };
        if record.subresource == "ephemeralcontainers" {
            let account = self.account(record, pod::text(new, "serviceAccountName"));
            let account = account.map_err(|why| record.forbidden(&why))?;
            return check_environments(new, &account, pod::EPHEMERAL, "ephemeral container")
                .map_err(|why| record.forbidden(&why));
        }
        if self.is_mirror(new) {
            return self.check_mirror(new).map_err(|why| record.forbidden(why));
        }
        let name = pod::text(new, "serviceAccountName");
        if name.is_empty() {
            let why = format!(
                "no service account specified for pod {}/{}",
                record.write.namespace, record.write.name
            );
            return Err(record.forbidden(&why));
        }
        let account = self.account(record, name).map_err(|why| record.forbidden(&why))?;
        check_secrets(new, &account).map_err(|why| record.forbidden(&why))
    }

    fn check_mirror(&self, pod: &Object) -> Result<(), &'static str> {
        if !pod::text(pod, "serviceAccountName").is_empty() {
            return Err("a mirror pod may not reference service accounts");
        }
        if references_secrets(pod) {
            return Err("a mirror pod may not reference secrets");
        }
        let mut sources = pod::list(pod, "volumes")
            .iter()
            .filter_map(|volume| volume.at(&["projected", "sources"]))
            .filter_map(Value::as_array)
            .flatten();
        if sources.any(|source| has(source, "serviceAccountToken")) {
            return Err("a mirror pod may not use ServiceAccountToken volume projections");
        }
        Ok(())
    }
}

fn has(value: &Value, name: &str) -> bool {
    value.get(name).is_some_and(|member| !member.is_null())
}

/// The member of accounts and pod specifications that says whether a token is mounted.
const AUTOMOUNT_TOKEN: &str = "automountServiceAccountToken";

/// Returns whether to mount a token. The setting of the pod overrides the setting of its account; the default
/// is true.
fn wants_token(pod: &Object, account: &Account) -> bool {
    let own = pod.get("spec").and_then(|spec| spec.get(AUTOMOUNT_TOKEN)).and_then(Value::as_bool);
    own.or(account.wants_token).unwrap_or(true)
}

/// Members of a volume whose values can name a secret.
const SECRET_VOLUMES: [&str; 10] =
    ["azureFile", "cephfs", "cinder", "flexVolume", "rbd", "secret", "scaleIO", "iscsi", "storageos", "csi"];

fn references_secrets(pod: &Object) -> bool {
    let in_volumes = |volume: &Value| {
        let by_volume = SECRET_VOLUMES.iter().filter_map(|name| volume.get(name)).any(|source| {
            !source.str_at(&["secretName"]).is_empty()
                || has(source, "secretRef")
                || has(source, "nodePublishSecretRef")
        });
        let projected = volume.at(&["projected", "sources"]).and_then(Value::as_array).unwrap_or_default();
        by_volume || projected.iter().any(|source| has(source, "secret"))
    };
    let in_container = |container: &Value| {
        let list = |name: &str| container.get(name).and_then(Value::as_array).unwrap_or_default();
        list("envFrom").iter().any(|from| has(from, "secretRef"))
            || list("env").iter().any(|variable| variable.at(&["valueFrom", "secretKeyRef"]).is_some())
    };
    !pod::list(pod, "imagePullSecrets").is_empty()
        || pod::list(pod, "volumes").iter().any(in_volumes)
        || [pod::INIT, pod::MAIN, pod::EPHEMERAL]
            .iter()
            .any(|list| pod::list(pod, list).iter().any(in_container))
}

/// If the account limits secrets, refuses a pod that uses a secret outside the list of the account.
fn check_secrets(pod: &Object, account: &Account) -> Result<(), String> {
    let Account { name: owner, secrets: Some(mountable), .. } = account else { return Ok(()) };
    for volume in pod::list(pod, "volumes").iter().filter(|volume| has(volume, "secret")) {
        let secret = volume.str_at(&["secret", "secretName"]);
        if !mountable.iter().any(|known| known == secret) {
            return Err(format!(
                "volume with secret.secretName=\"{secret}\" is not allowed because service account {owner} does not \
                 reference that secret"
            ));
        }
    }
    check_environments(pod, account, pod::INIT, "init container")?;
    check_environments(pod, account, pod::MAIN, "container")?;
    for (at, reference) in pod::list(pod, "imagePullSecrets").iter().enumerate() {
        let name = reference.str_at(&["name"]);
        if !account.pull_secrets.iter().any(|known| known == name) {
            return Err(format!(
                "imagePullSecrets[{at}].name=\"{name}\" is not allowed because service account {owner} does not \
                 reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

fn check_environments(pod: &Object, account: &Account, list: &str, what: &str) -> Result<(), String> {
    let Account { name: owner, secrets: Some(mountable), .. } = account else { return Ok(()) };
    for container in pod::list(pod, list) {
        for variable in container.get("env").and_then(Value::as_array).unwrap_or_default() {
            let Some(reference) = variable.at(&["valueFrom", "secretKeyRef"]) else { continue };
            let secret = reference.str_at(&["name"]);
            if !mountable.iter().any(|known| known == secret) {
                return Err(format!(
                    "{what} {} with envVar {} referencing secret.secretName=\"{secret}\" is not allowed because \
                     service account {owner} does not reference that secret",
                    container.str_at(&["name"]),
                    variable.str_at(&["name"]),
                ));
            }
        }
    }
    Ok(())
}

impl Plugin for ServiceAccount {
    fn handles(&self, target: &Target<'_>) -> bool {
        target.creates("", "pods")
            || target.operation == Operation::Update
                && target.subresource == "ephemeralcontainers"
                && target.resource.is_of("", "pods")
    }

    fn mutate<'p>(&'p self, record: &'p mut AdmissionRecord<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        if record.write.operation == Operation::Create { self.complete(record).into() } else { Ok(()).into() }
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        self.check(record).into()
    }
}
