//! Rules for the volumes of pods, and for the volume sources that persistent volumes have as well.

use hashbrown::HashSet;

use super::super::path::FieldPath;
use super::super::{Validator, metadata, names, scalar_formats};
use super::{StructView, common};
use types::schema::table::ValueFormat;
use values::json::Value;

/// Maximum total length of the name and the portal of a volume with an initiator.
const PORTAL_MAX: usize = 64;
const TENANT_MAX: usize = 64;
const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;
/// Permitted lifetimes of a pod certificate in seconds.
const CERTIFICATE_SECONDS: std::ops::RangeInclusive<i64> = 3600..=7_862_400;

/// Checks a volume with the rules that depend on its name.
pub(super) fn volume(validator: &mut Validator, path: &FieldPath, volume: StructView) {
    let name = volume.text("name");
    let iscsi = volume.child("iscsi");
    if iscsi.has("initiatorName") && name.len() + 1 + iscsi.text("targetPortal").len() > PORTAL_MAX {
        validator.invalid(path.child("name"), name, PORTAL);
    }
}

const PORTAL: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                      iscsi.initiatorName is specified.";

/// Checks an image volume. A template may leave the reference unset.
pub(super) fn image(validator: &mut Validator, path: &FieldPath, image: StructView) {
    if image.text("reference").is_empty() && validator.kind == "Pod" {
        validator.required(path.child("reference"), "");
    }
}

/// Checks the secret of a CSI driver, which must have a name.
pub(super) fn csi(validator: &mut Validator, path: &FieldPath, csi: StructView) {
    if !csi.has("nodePublishSecretRef") {
        return;
    }
    let secret = csi.child("nodePublishSecretRef").text("name");
    if secret.is_empty() {
        validator.required(path.child("nodePublishSecretRef").child("name"), "");
    } else {
        validator.refuse(&path.child("name"), secret, names::subdomain(secret));
    }
}

/// Checks a host path. If the path is missing, its type is not checked.
pub(super) fn host_path(validator: &mut Validator, path: &FieldPath, source: StructView) {
    if source.text("path").is_empty() {
        validator.forget(&path.child("type"));
    }
}

/// Checks that the size limit of an empty directory is not negative.
pub(super) fn empty_directory(validator: &mut Validator, path: &FieldPath, directory: StructView) {
    if directory.quantity("sizeLimit").is_some_and(|limit| limit.is_negative()) {
        validator.forbidden(path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity");
    }
}

/// Checks that the paths of all files in a projected volume differ.
pub(super) fn projections(validator: &mut Validator, path: &FieldPath, projected: StructView) {
    let mut taken = HashSet::new();
    for source in projected.structs("sources") {
        for kind in ["secret", "configMap", "downwardAPI"] {
            let reference = source.child(kind);
            for item in reference.structs("items") {
                let file = item.text("path");
                if !file.is_empty() && !taken.insert(file) && !validator.has_enough() {
                    let shown = if kind == "downwardAPI" { file } else { reference.text("name") };
                    validator.invalid(path, shown, "conflicting duplicate paths");
                }
            }
        }
        let bundle = source.child("clusterTrustBundle");
        if bundle.is_there() && !taken.insert(bundle.text("path")) && !validator.has_enough() {
            validator.invalid(path, bundle.text("path"), "conflicting duplicate paths");
        }
    }
}

/// Checks a source of a projected volume.
pub(super) fn projection(validator: &mut Validator, path: &FieldPath, source: StructView) {
    if source.members().count() > 1 {
        validator.forbidden(path, "may not specify more than 1 volume type per source");
    }
    let token = path.child("serviceAccountToken");
    if let Some(seconds) = source.child("serviceAccountToken").int("expirationSeconds") {
        let place = token.child("expirationSeconds");
        if seconds < TOKEN_SECONDS_MIN {
            validator.invalid(place, seconds, "may not specify a duration less than 10 minutes");
        } else if seconds > TOKEN_SECONDS_MAX {
            validator.invalid(place, seconds, "may not specify a duration larger than 2^32 seconds");
        }
    }
    if source.has("serviceAccountToken") {
        // As in the reference server, the error has the path of the volume.
        let volume = path.parent().parent();
        let file = source.child("serviceAccountToken").text("path");
        match file {
            "" => validator.required(volume.child("path"), ""),
            file => {
                scalar_formats::text(ValueFormat::Local, &volume.child("path"), file, &mut validator.errors)
            }
        }
    }
    trust_bundle(validator, &path.child("clusterTrustBundle"), source.child("clusterTrustBundle"));
    certificate(validator, &path.child("podCertificate"), source.child("podCertificate"));
}

fn trust_bundle(validator: &mut Validator, path: &FieldPath, bundle: StructView) {
    if !bundle.is_there() {
        return;
    }
    match (bundle.has("name"), bundle.has("signerName")) {
        (true, true) => {
            validator.invalid(path, bundle.to_value(), "only one of name and signerName may be used");
        }
        (true, false) => {
            let name = bundle.text("name");
            if name.is_empty() {
                validator.required(path.child("name"), "must be a valid object name");
            } else if !name.contains(':') {
                for fault in names::subdomain(name) {
                    let detail = format!("not a valid clustertrustbundlename: {fault}");
                    validator.invalid(path.child("name"), name, detail);
                }
            }
            if bundle.has("labelSelector") {
                let selector = bundle.child("labelSelector").to_value();
                let detail = "labelSelector must be unset if name is specified";
                validator.invalid(path.child("labelSelector"), selector, detail);
            }
        }
        (false, true) if bundle.text("signerName").is_empty() => {
            validator.required(path.child("signerName"), "must be a valid signer name");
        }
        (false, true) => common::signer(validator, &path.child("signerName"), bundle.text("signerName")),
        (false, false) => validator.required(path, "either name or signerName must be specified"),
    }
}

fn certificate(validator: &mut Validator, path: &FieldPath, certificate: StructView) {
    if !certificate.is_there() {
        return;
    }
    let signer = certificate.text("signerName");
    if !signer.is_empty() {
        common::signer(validator, &path.child("signerName"), signer);
    }
    const KEYS: [&str; 6] = ["ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072", "RSA4096"];
    let key = certificate.text("keyType");
    if !key.is_empty() && !KEYS.contains(&key) {
        validator.not_supported(path.child("keyType"), key, &KEYS);
    }
    if let Some(seconds) =
        certificate.int("maxExpirationSeconds").filter(|n| !CERTIFICATE_SECONDS.contains(n))
    {
        let detail = if seconds < *CERTIFICATE_SECONDS.start() {
            format!("if provided, maxExpirationSeconds must be >= {}", CERTIFICATE_SECONDS.start())
        } else {
            format!("if provided, maxExpirationSeconds must be <= {}", CERTIFICATE_SECONDS.end())
        };
        validator.invalid(path.child("maxExpirationSeconds"), seconds, detail);
    }
}

/// Checks the metadata of the template of an ephemeral claim. Only labels and annotations are permitted.
pub(super) fn claim_template(validator: &mut Validator, path: &FieldPath, template: StructView) {
    let place = path.child("metadata");
    let given = template.child("metadata");
    metadata::annotations(&place.child("annotations"), given.get("annotations"), &mut validator.errors);
    metadata::labels(&place.child("labels"), given.get("labels"), &mut validator.errors);
    for (name, _) in given.members().filter(|(name, _)| !matches!(*name, "labels" | "annotations")) {
        validator.forbidden(place.child(name), "cannot be set");
    }
}

/// Checks a Fibre Channel volume, which must have either target names or worldwide identifiers.
pub(super) fn fibre_channel(validator: &mut Validator, path: &FieldPath, source: StructView) {
    let (names, ids) = (source.items("targetWWNs"), source.items("wwids"));
    let place = path.child("targetWWNs");
    if names.is_empty() && ids.is_empty() {
        validator.required(place, "must specify either targetWWNs or wwids, but not both");
    }
    if !names.is_empty() && !ids.is_empty() {
        let value = source.get("targetWWNs").cloned().unwrap_or_default();
        validator.invalid(place, value, "targetWWNs and wwids can not be specified simultaneously");
    }
    if names.is_empty() {
        return;
    }
    match source.int("lun") {
        None => validator.required(path.child("lun"), "lun is required if targetWWNs is specified"),
        Some(0..=255) => {}
        Some(lun) => validator.invalid(path.child("lun"), lun, "must be between 0 and 255, inclusive"),
    }
}

/// Checks the names of iSCSI targets and initiators, and the secret for CHAP authentication.
pub(super) fn iscsi(validator: &mut Validator, path: &FieldPath, source: StructView) {
    // The message for a persistent volume is shorter.
    let is_persistent = validator.kind == "PersistentVolume";
    for (field, place) in [("iqn", "iqn"), ("initiatorName", "initiatorname")] {
        let name = source.text(field);
        if name.is_empty() && (field == "iqn" || !source.has(field)) {
            continue;
        }
        if !["iqn", "eui", "naa"].iter().any(|prefix| name.starts_with(prefix)) {
            let detail = if is_persistent {
                "must be valid format"
            } else {
                "must be valid format starting with iqn, eui, or naa"
            };
            validator.invalid(path.child(place), name, detail);
        } else if !is_iscsi_name(name) {
            validator.invalid(path.child(place), name, "must be valid format");
        }
    }
    let checks = source.is_true("chapAuthDiscovery") || source.is_true("chapAuthSession");
    if checks && !source.has("secretRef") {
        validator.required(path.child("secretRef"), "");
    }
    if is_persistent {
        let portal = source.text("targetPortal");
        let name = validator.object.child("metadata").text("name");
        if source.has("initiatorName") && name.len() + 1 + portal.len() > PORTAL_MAX {
            validator.invalid(path.child("targetportal"), portal, PORTAL);
        }
        if source.has("secretRef") && source.child("secretRef").text("name").is_empty() {
            let reference = path.child("secretRef");
            validator.required(reference.child("name"), "");
        }
    }
}

/// Returns whether a name has the form `iqn.2001-04.com.example:disk`, `eui.` with 16 digits, or `naa.` with
/// 32 digits.
fn is_iscsi_name(name: &str) -> bool {
    let alphanumeric =
        |text: &str, len: usize| text.len() == len && text.bytes().all(|b| b.is_ascii_alphanumeric());
    if let Some(rest) = name.strip_prefix("iqn.") {
        let Some((date, rest)) = rest.split_once('.') else { return false };
        let is_date = matches!(date.split_once('-'), Some((year, month))
            if year.len() == 4 && month.len() == 2 && (year.to_owned() + month).bytes().all(|b| b.is_ascii_digit()));
        let Some((authority, own)) = rest.split_once(':') else { return false };
        let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
        let is_own =
            |b: u8| !matches!(b, b',' | b';' | b'*' | b'&' | b'$' | b'|') && !b.is_ascii_whitespace();
        return is_date
            && !authority.is_empty()
            && authority.bytes().all(fits)
            && !own.is_empty()
            && own.bytes().all(is_own);
    }
    let id = name.get(4..).unwrap_or_default();
    (name.starts_with("eui") && alphanumeric(id, 16)) || (name.starts_with("naa") && alphanumeric(id, 32))
}

/// Checks a Flocker volume, which must have either a name or a UUID.
pub(super) fn flocker(validator: &mut Validator, path: &FieldPath, source: StructView) {
    let (name, id) = (source.text("datasetName"), source.text("datasetUUID"));
    match (name.is_empty(), id.is_empty()) {
        (true, true) => validator.required(path, "one of datasetName and datasetUUID is required"),
        (false, false) => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            validator.invalid(path, "resource", detail);
        }
        _ => {}
    }
    if name.contains('/') {
        validator.invalid(path.child("datasetName"), name, "must not contain '/'");
    }
}

/// Checks that the options do not have a prefix that is reserved for the system.
pub(super) fn flex(validator: &mut Validator, path: &FieldPath, source: StructView) {
    let (domain, suffix) = (validator.naming.domain, validator.naming.group_suffix);
    let options = path.child("options");
    for (key, _) in source.map("options") {
        if validator.has_enough() {
            break;
        }
        let namespace = format!(".{}", key.split('/').next().unwrap_or_default().to_lowercase());
        if namespace.ends_with(&format!(".{domain}")) || namespace.ends_with(suffix) {
            let detail = format!("{domain} and {} namespaces are reserved", suffix.trim_start_matches('.'));
            validator.invalid(options.key(key), key, detail);
        }
    }
}

/// Checks that a Quobyte registry is a list of hosts with ports.
pub(super) fn quobyte(validator: &mut Validator, path: &FieldPath, source: StructView) {
    let registry = source.text("registry");
    if registry.is_empty() {
        return; // the schema refuses it
    }
    if source.text("tenant").len() > TENANT_MAX {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        return validator.required(path.child("tenant"), detail);
    }
    let is_pair = |pair: &str| {
        let host = pair.rsplit_once(':').map(|(host, _)| host);
        host.is_some_and(|host| !host.contains(':') || (host.starts_with('[') && host.ends_with(']')))
    };
    for _ in registry.split(',').filter(|pair| !is_pair(pair)) {
        if validator.has_enough() {
            return;
        }
        let detail = "must be a host:port pair or multiple pairs separated by commas";
        validator.invalid(path.child("registry"), registry, detail);
    }
}

/// Checks an NFS volume.
pub(super) fn nfs(validator: &mut Validator, path: &FieldPath, source: StructView) {
    let directory = source.text("path");
    if !directory.starts_with('/') {
        validator.invalid(path.child("path"), directory, "must be an absolute path");
    }
}

/// Checks a disk of the cloud provider. As in the reference server, the error contains another name of the
/// member.
pub(super) fn compute_disk(validator: &mut Validator, path: &FieldPath, source: StructView) {
    let place = path.parent().child("persistentDisk");
    if source.text("pdName").is_empty() {
        validator.required(place.child("pdName"), "");
    }
    if let Some(partition) = source.int("partition").filter(|partition| !(0..=255).contains(partition)) {
        validator.invalid(place.child("partition"), partition, "must be between 1 and 255, inclusive");
    }
}

/// Checks the namespace of the endpoints of a Glusterfs volume.
pub(super) fn glusterfs(validator: &mut Validator, path: &FieldPath, source: StructView) {
    let place = path.child("endpointsNamespace");
    match source.get("endpointsNamespace").and_then(Value::as_str) {
        None => {}
        Some("") => {
            let detail = "if the endpointnamespace is set, it must be a valid namespace name";
            validator.invalid(place, "", detail);
        }
        Some(name) => validator.refuse(&place, name, names::label(name)),
    }
}

/// Checks the namespace of a secret. The namespace may be unset.
pub(super) fn azure_file(validator: &mut Validator, path: &FieldPath, source: StructView) {
    if source.has("secretNamespace") && source.text("secretNamespace").is_empty() {
        validator.required(path.child("secretNamespace"), "");
    }
}

/// Checks that the URI of an Azure disk matches its kind.
pub(super) fn azure_disk(validator: &mut Validator, path: &FieldPath, source: StructView) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    if !source.has("kind") {
        return;
    }
    let address = source.text("diskURI");
    let (start, form) =
        if source.text("kind") == "Managed" { ("/subscriptions/", MANAGED) } else { ("https://", BLOB) };
    if !address.starts_with(start) {
        validator.not_supported(path.child("diskURI"), address, &[form]);
    }
}

/// Checks that a referenced secret has a name.
pub(super) fn secret_named(validator: &mut Validator, path: &FieldPath, source: StructView) {
    if source.has("secretRef") && source.child("secretRef").text("name").is_empty() {
        let place = path.child("secretRef");
        validator.required(place.child("name"), "");
    }
}

/// Checks that a referenced secret has a name and a namespace.
pub(super) fn secret_placed(validator: &mut Validator, path: &FieldPath, source: StructView) {
    secret_named(validator, path, source);
    if source.has("secretRef") && source.child("secretRef").text("namespace").is_empty() {
        let place = path.child("secretRef");
        validator.required(place.child("namespace"), "");
    }
}
