//! The configuration of the two webhook plugins. The configuration names a kubeconfig file with the
//! credentials of this server for webhooks (docs/api/webhooks.md#credentials).

use crate::writes::admission::Files;
use values::field::FieldError;
use values::json::Value;
use wire::outgoing::Identities;

/// Reads the configuration and the kubeconfig file that it names. Returns the credentials and connection
/// settings for webhooks.
///
/// # Errors
/// Fails if the configuration or the file is invalid; the text describes the error.
pub(super) fn read(config: Option<&Value>, files: &dyn Files) -> Result<Identities, String> {
    let known =
        |identities: Identities| identities.believing(files.system_authorities()).reaching(files.networks());
    let Some(config) = config else { return Ok(known(Identities::default())) };
    let file = config.str_at(&["kubeConfigFile"]);
    if !file.starts_with('/') {
        let detail = "must be an absolute file path";
        return Err(FieldError::invalid("kubeConfigFile", &file.into(), detail).to_string());
    }
    files.identities(file).map(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::yaml;

    struct Named;

    impl Files for Named {
        fn read(&self, path: &str) -> Result<Vec<u8>, String> {
            Err(format!("{path} is not read"))
        }
    }

    #[test]
    fn a_webhook_credentials_configuration_names_an_existing_absolute_file() {
        for (text, want) in [
            ("{kubeConfigFile: a}", "kubeConfigFile: Invalid value: \"a\": must be an absolute file path"),
            ("{kubeConfigFile: /a}", "stat /a: no such file or directory"),
        ] {
            let config = yaml::parse(text.as_bytes()).unwrap().value;
            assert_eq!(read(Some(&config), &Named).err().unwrap_or_default(), want, "{text}");
        }
        assert!(read(None, &Named).is_ok());
    }
}
