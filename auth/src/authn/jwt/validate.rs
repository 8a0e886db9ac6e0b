//! Validation of the settings of issuers, with the field errors of kube-apiserver.

use go::quote;
use go::url::Url;

use super::expression::Expression;
use super::file::AnonymousSettings;
use super::settings::{ClaimRule, IssuerSettings, JwtSettings, Mapping, Mappings, Settings, ValidationRule};
use crate::domain_keys;
use crate::expression_fault::ExpressionFault;

/// Maximum number of issuers.
const ISSUERS_MAX: usize = 64;

/// Domains that keys of extra values may not use, including all subdomains.
const RESERVED_DOMAINS: [&str; 2] = ["k8s.io", "kubernetes.io"];

/// Field errors, in the order in which they were found.
#[derive(Default)]
struct Errors(Vec<String>);

impl Errors {
    fn invalid(&mut self, path: &str, value: &str, why: impl std::fmt::Display) {
        self.0.push(format!("{path}: Invalid value: {}: {why}", quote(value)));
    }

    fn required(&mut self, path: &str, why: &str) {
        let separator = if why.is_empty() { "" } else { ": " };
        self.0.push(format!("{path}: Required value{separator}{why}"));
    }

    fn duplicate(&mut self, path: &str, value: &str) {
        self.0.push(format!("{path}: Duplicate value: {}", quote(value)));
    }

    /// Compiles an expression. Adds an error at `path` if the expression is invalid.
    fn compiled(
        &mut self,
        path: &str,
        text: &str,
        compile: fn(&str) -> Result<Expression, ExpressionFault>,
    ) -> Option<Expression> {
        compile(text).map_err(|fault| self.0.push(fault.at(path, text))).ok()
    }
}

impl Settings {
    /// Checks these settings and the settings of anonymous requests, which are in the same file.
    /// `own_issuers` are the issuers of service account tokens; other issuers must not use these names.
    /// [`faults`](Self::faults) describes `may_name_networks`.
    ///
    /// # Errors
    /// Returns all problems as one line of text. If an expression has several problems, the text has more
    /// lines.
    pub fn validate(
        &self,
        own_issuers: &[String],
        anonymous: Option<&AnonymousSettings>,
        may_name_networks: bool,
    ) -> Result<(), String> {
        let mut faults = self.faults(may_name_networks);
        if self.jwt.len() <= ISSUERS_MAX {
            faults.extend(anonymous.and_then(AnonymousSettings::fault));
        }
        if let Some(faults) = go::join_errors(&faults) {
            return Err(format!("invalid authentication configuration: {faults}"));
        }
        for jwt in &self.jwt {
            if own_issuers.contains(&jwt.issuer.url) {
                let why =
                    format!("URL must not overlap with disallowed issuers: [{}]", own_issuers.join(" "));
                return Err(format!("issuer.url: Invalid value: {}: {why}", quote(&jwt.issuer.url)));
            }
        }
        Ok(())
    }

    /// Returns the errors of all issuers, in the order of the settings. `may_name_networks` says whether the
    /// settings of an issuer may select the network through which the server reaches the issuer.
    pub fn faults(&self, may_name_networks: bool) -> Vec<String> {
        let mut errors = Errors::default();
        if self.jwt.len() > ISSUERS_MAX {
            let why = format!("jwt: Too many: {}: must have at most {ISSUERS_MAX} items", self.jwt.len());
            return vec![why];
        }
        for (at, jwt) in self.jwt.iter().enumerate() {
            let path = format!("jwt[{at}]");
            validate_jwt(&mut errors, &path, jwt, may_name_networks);
            let before = &self.jwt[..at];
            let url = &jwt.issuer.url;
            if before.iter().any(|other| other.issuer.url == *url) {
                errors.duplicate(&format!("{path}.issuer.url"), url);
            }
            let discovery = &jwt.issuer.discovery_url;
            if !discovery.is_empty() && before.iter().any(|other| other.issuer.discovery_url == *discovery) {
                errors.duplicate(&format!("{path}.issuer.discoveryURL"), discovery);
            }
        }
        errors.0
    }
}

fn validate_jwt(errors: &mut Errors, path: &str, jwt: &JwtSettings, may_name_networks: bool) {
    let issuer_path = format!("{path}.issuer");
    validate_issuer(errors, &issuer_path, &jwt.issuer);
    validate_network(errors, &issuer_path, &jwt.issuer.egress_selector_type, may_name_networks);
    let selects_verified = validate_claim_rules(errors, path, &jwt.claim_rules);
    validate_mappings(errors, &format!("{path}.claimMappings"), &jwt.mappings, selects_verified);
    validate_user_rules(errors, path, &jwt.user_rules);
}

fn validate_issuer(errors: &mut Errors, path: &str, issuer: &IssuerSettings) {
    validate_url(errors, &format!("{path}.url"), &issuer.url);
    let discovery = &issuer.discovery_url;
    if !discovery.is_empty() {
        let path = format!("{path}.discoveryURL");
        let is_same = discovery.trim_end_matches('/') == issuer.url.trim_end_matches('/');
        if is_same && !issuer.url.is_empty() {
            errors.invalid(&path, discovery, "discoveryURL must be different from URL");
        }
        validate_url(errors, &path, discovery);
    }
    validate_audiences(errors, path, issuer);
    if let Err(why) = authorities(&issuer.certificate_authority) {
        errors.invalid(&format!("{path}.certificateAuthority"), "<omitted>", why);
    }
}

fn validate_network(errors: &mut Errors, path: &str, network: &str, may_be_named: bool) {
    let path = format!("{path}.egressSelectorType");
    if !may_be_named && !network.is_empty() {
        let why = "egress selector is not supported when StructuredAuthenticationConfigurationEgressSelector feature \
                   gate is disabled";
        errors.invalid(&path, network, why);
    }
    if !matches!(network, "" | "controlplane" | "cluster") {
        errors.invalid(&path, network, "egress selector must be either controlplane or cluster");
    }
}

fn validate_audiences(errors: &mut Errors, path: &str, issuer: &IssuerSettings) {
    let (audiences, policy) = (&issuer.audiences, issuer.audience_match_policy.as_str());
    let audiences_path = format!("{path}.audiences");
    if audiences.is_empty() {
        errors.required(&audiences_path, &format!("at least one {audiences_path} is required"));
        return;
    }
    for (at, audience) in audiences.iter().enumerate() {
        let path = format!("{audiences_path}[{at}]");
        if audience.is_empty() {
            errors.required(&path, "");
        }
        if audiences[..at].contains(audience) {
            errors.duplicate(&path, audience);
        }
    }
    let policy_path = format!("{path}.audienceMatchPolicy");
    if audiences.len() > 1 && policy != "MatchAny" {
        errors.invalid(&policy_path, policy, "audienceMatchPolicy must be MatchAny for multiple audiences");
    } else if !matches!(policy, "" | "MatchAny") {
        let why = "audienceMatchPolicy must be empty or MatchAny for single audience";
        errors.invalid(&policy_path, policy, why);
    }
}

/// Checks the text of a CA bundle. An empty text means the authorities of the operating system.
fn authorities(pem: &str) -> Result<(), &'static str> {
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;
    use x509_parser::prelude::{FromDer, X509Certificate};
    if pem.is_empty() {
        return Ok(());
    }
    let mut certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok).peekable();
    if certificates.peek().is_none() {
        return Err("data does not contain any valid RSA or ECDSA certificates");
    }
    if certificates.all(|certificate| X509Certificate::from_der(&certificate).is_ok()) {
        Ok(())
    } else {
        Err("x509: malformed certificate")
    }
}

fn validate_url(errors: &mut Errors, path: &str, text: &str) {
    if text.is_empty() {
        errors.required(path, "");
        return;
    }
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(why) => return errors.invalid(path, text, why),
    };
    if url.scheme() != "https" {
        errors.invalid(path, text, "URL scheme must be https");
    }
    if url.user().is_some() {
        errors.invalid(path, text, "URL must not contain a username or password");
    }
    if !url.raw_query().is_empty() {
        errors.invalid(path, text, "URL must not contain a query");
    }
    if !url.fragment().is_empty() {
        errors.invalid(path, text, "URL must not contain a fragment");
    }
}

/// Checks the rules about claims. Returns whether an expression of a rule reads `email_verified`.
fn validate_claim_rules(errors: &mut Errors, path: &str, rules: &[ClaimRule]) -> bool {
    let mut selects_verified = false;
    for (at, rule) in rules.iter().enumerate() {
        let path = format!("{path}.claimValidationRules[{at}]");
        // A rule with both a claim and an expression is invalid. Therefore a later rule with the same claim
        // or expression is not reported as a duplicate.
        let mut before =
            rules[..at].iter().filter(|rule| rule.claim.is_empty() != rule.expression.is_empty());
        match (rule.claim.is_empty(), rule.expression.is_empty()) {
            (false, false) => errors.invalid(&path, &rule.claim, "claim and expression can't both be set"),
            (true, true) => errors.required(&path, "claim or expression is required"),
            (false, true) => {
                if !rule.message.is_empty() {
                    let why = "may not be specified when claim is set";
                    errors.invalid(&format!("{path}.message"), &rule.message, why);
                }
                if before.any(|other| other.claim == rule.claim) {
                    errors.duplicate(&format!("{path}.claim"), &rule.claim);
                }
            }
            (true, false) => {
                if !rule.required_value.is_empty() {
                    let why = "may not be specified when expression is set";
                    errors.invalid(&format!("{path}.requiredValue"), &rule.required_value, why);
                }
                let path = format!("{path}.expression");
                if before.any(|other| other.expression == rule.expression) {
                    errors.duplicate(&path, &rule.expression);
                    continue;
                }
                if let Some(expression) =
                    errors.compiled(&path, &rule.expression, Expression::condition_of_claims)
                {
                    selects_verified |= expression.selects_claim("email_verified");
                }
            }
        }
    }
    selects_verified
}

fn validate_mappings(errors: &mut Errors, path: &str, mappings: &Mappings, selects_verified: bool) {
    let username = validate_mapping(errors, &format!("{path}.username"), &mappings.username, true);
    validate_mapping(errors, &format!("{path}.groups"), &mappings.groups, false);
    let uid = Mapping { prefix: Some(String::new()), ..mappings.uid.clone() };
    let uid = if uid.expression.is_empty() { uid } else { Mapping { prefix: None, ..uid } };
    validate_mapping(errors, &format!("{path}.uid"), &uid, false);
    let mut selects_verified = selects_verified;
    for (at, (key, text)) in mappings.extra.iter().enumerate() {
        let path = format!("{path}.extra[{at}]");
        validate_extra_key(errors, &format!("{path}.key"), key);
        if mappings.extra[..at].iter().any(|(other, _)| other == key) {
            errors.duplicate(&format!("{path}.key"), key);
            continue;
        }
        let path = format!("{path}.valueExpression");
        if text.is_empty() {
            errors.required(&path, "");
        } else if let Some(expression) = errors.compiled(&path, text, Expression::of_claims) {
            selects_verified |= expression.selects_claim("email_verified");
        }
    }
    if let Some(username) = username
        && username.selects_claim("email")
        && !selects_verified
        && !username.selects_claim("email_verified")
    {
        let why = "claims.email_verified must be used in claimMappings.username.expression or \
                   claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is \
                   used in claimMappings.username.expression";
        errors.invalid(&format!("{path}.username.expression"), &username.text, why);
    }
}

/// Checks a mapping. Returns the compiled expression if the mapping is valid and has an expression.
fn validate_mapping(
    errors: &mut Errors,
    path: &str,
    mapping: &Mapping,
    is_required: bool,
) -> Option<Expression> {
    match (mapping.claim.is_empty(), mapping.expression.is_empty()) {
        (false, false) => {
            errors.invalid(path, "", "claim and expression can't both be set");
            None
        }
        (true, true) => {
            if is_required {
                errors.required(path, "claim or expression is required");
            }
            None
        }
        (false, true) => {
            if mapping.prefix.is_none() {
                let why = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                errors.required(&format!("{path}.prefix"), why);
            }
            None
        }
        (true, false) => {
            if let Some(prefix) = &mapping.prefix {
                let why = "may not be specified when expression is set";
                errors.invalid(&format!("{path}.prefix"), prefix, why);
            }
            let path = format!("{path}.expression");
            let compiled = errors.compiled(&path, &mapping.expression, Expression::of_claims);
            compiled.filter(|_| mapping.prefix.is_none())
        }
    }
}

fn validate_extra_key(errors: &mut Errors, path: &str, key: &str) {
    if key.is_empty() {
        errors.required(path, "");
        return;
    }
    for fault in domain_keys::domain_prefixed_path(key) {
        errors.invalid(path, fault.value, fault.why);
    }
    // The following checks also apply to a key that is not a valid path.
    if key.chars().any(char::is_uppercase) {
        errors.invalid(path, key, "must be lowercase");
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_reserved = |reserved: &&str| {
        domain.strip_suffix(*reserved).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if RESERVED_DOMAINS.iter().any(is_reserved) {
        let why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
        errors.invalid(path, key, why);
    }
}

fn validate_user_rules(errors: &mut Errors, path: &str, rules: &[ValidationRule]) {
    for (at, rule) in rules.iter().enumerate() {
        let path = format!("{path}.userValidationRules[{at}].expression");
        if rule.expression.is_empty() {
            errors.required(&path, "");
        } else if rules[..at].iter().any(|other| other.expression == rule.expression) {
            errors.duplicate(&path, &rule.expression);
        } else {
            errors.compiled(&path, &rule.expression, Expression::condition_of_user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::jwt::settings::IssuerSettings;

    fn jwt(url: &str, audiences: &[&str], policy: &str) -> JwtSettings {
        JwtSettings {
            issuer: IssuerSettings {
                url: url.to_owned(),
                audiences: audiences.iter().map(|audience| (*audience).to_owned()).collect(),
                audience_match_policy: policy.to_owned(),
                ..IssuerSettings::default()
            },
            mappings: Mappings {
                username: Mapping { claim: "sub".into(), prefix: Some(String::new()), ..Mapping::default() },
                ..Mappings::default()
            },
            ..JwtSettings::default()
        }
    }

    #[test]
    fn missing_and_duplicate_values_are_each_reported_once() {
        let mut twice = jwt("https://a", &["m"], "");
        twice.mappings.extra = vec![("x.io/a".into(), "claims.a".into()), ("x.io/a".into(), String::new())];
        let mut long = jwt("https://a", &["m"], "");
        let domain = "a".repeat(254);
        long.mappings.extra = vec![(format!("{domain}/a"), "claims.a".into())];
        let too_long = format!(
            "jwt[0].claimMappings.extra[0].key: Invalid value: \"{domain}\": must be no more than 253 characters"
        );
        let mut odd = jwt("https://a", &["m"], "");
        odd.mappings.extra =
            vec![("K8s.io".into(), "claims.a".into()), ("k8s.io/".into(), "claims.a".into())];
        let mut both = jwt("https://a", &["m"], "");
        let rule = |claim: &str, expression: &str| ClaimRule {
            claim: claim.into(),
            expression: expression.into(),
            ..ClaimRule::default()
        };
        both.claim_rules = vec![rule("a", "true"), rule("a", ""), rule("a", ""), rule("", "true")];
        let mut prefixed = jwt("https://a", &["m"], "");
        prefixed.mappings.username =
            Mapping { prefix: Some("p".into()), expression: "claims.email".into(), ..Mapping::default() };
        let mut constant = jwt("https://a", &["m"], "");
        constant.claim_rules = vec![rule("", "int('x') == 1"), rule("", "int('x')")];
        let anonymous = AnonymousSettings { enabled: false, paths: vec!["/x".into()] };
        for (settings, anonymous, want) in [
            (vec![jwt("https://a", &["m"], "")], None, ""),
            (vec![jwt("", &["m"], "")], None, "jwt[0].issuer.url: Required value"),
            (
                vec![jwt("https://a", &[], "x")],
                None,
                "jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required",
            ),
            (
                vec![jwt("https://a", &["", ""], "x")],
                None,
                "[jwt[0].issuer.audiences[0]: Required value, jwt[0].issuer.audiences[1]: Required value, \
                 jwt[0].issuer.audiences[1]: Duplicate value: \"\", jwt[0].issuer.audienceMatchPolicy: Invalid value: \
                 \"x\": audienceMatchPolicy must be MatchAny for multiple audiences]",
            ),
            (vec![twice], None, "jwt[0].claimMappings.extra[1].key: Duplicate value: \"x.io/a\""),
            (vec![long], None, &too_long),
            (
                vec![odd],
                None,
                "[jwt[0].claimMappings.extra[0].key: Invalid value: \"K8s.io\": must be a domain-prefixed path (such as \
                 \"acme.io/foo\"), jwt[0].claimMappings.extra[0].key: Invalid value: \"K8s.io\": must be lowercase, \
                 jwt[0].claimMappings.extra[1].key: Invalid value: \"k8s.io/\": must be a domain-prefixed path (such as \
                 \"acme.io/foo\"), jwt[0].claimMappings.extra[1].key: Invalid value: \"k8s.io/\": k8s.io, kubernetes.io and \
                 their subdomains are reserved for Kubernetes use]",
            ),
            (
                vec![both],
                None,
                "[jwt[0].claimValidationRules[0]: Invalid value: \"a\": claim and expression can't both be set, \
                 jwt[0].claimValidationRules[2].claim: Duplicate value: \"a\"]",
            ),
            (
                vec![constant],
                None,
                "[jwt[0].claimValidationRules[0].expression: Internal error: program instantiation failed: type conversion \
                 error from 'string' to 'int', jwt[0].claimValidationRules[1].expression: Invalid value: \"int('x')\": must \
                 evaluate to bool]",
            ),
            (
                vec![prefixed],
                None,
                "jwt[0].claimMappings.username.prefix: Invalid value: \"p\": may not be specified when expression is set",
            ),
            (vec![jwt("", &["m"], ""); 65], None, "jwt: Too many: 65: must have at most 64 items"),
            (
                vec![jwt("", &["m"], "")],
                Some(&anonymous),
                "[jwt[0].issuer.url: Required value, anonymous.conditions: Invalid value: [{\"Path\":\"/x\"}]: enabled \
                 should be set to true when conditions are defined]",
            ),
        ] {
            let got = Settings { jwt: settings }.validate(&[], anonymous, true).err().unwrap_or_default();
            let got = got.strip_prefix("invalid authentication configuration: ").unwrap_or(&got);
            assert_eq!(got, want);
        }
    }

    #[test]
    fn an_egress_selector_may_be_named_only_if_its_gate_is_enabled() {
        const CLOSED: &str = "jwt[0].issuer.egressSelectorType: Invalid value: \"NETWORK\": egress selector is not supported \
                              when StructuredAuthenticationConfigurationEgressSelector feature gate is disabled";
        const ODD: &str = "jwt[0].issuer.egressSelectorType: Invalid value: \"NETWORK\": egress selector must be either \
                           controlplane or cluster";
        for (network, may_be_named, want) in [
            ("", false, vec![]),
            ("cluster", true, vec![]),
            ("cluster", false, vec![CLOSED]),
            ("etcd", true, vec![ODD]),
            ("etcd", false, vec![CLOSED, ODD]),
        ] {
            let mut settings = jwt("https://a", &["m"], "");
            settings.issuer.egress_selector_type = network.to_owned();
            let want: Vec<String> = want.iter().map(|why| why.replace("NETWORK", network)).collect();
            assert_eq!(
                Settings { jwt: vec![settings] }.faults(may_be_named),
                want,
                "{network} {may_be_named}"
            );
        }
    }
}
