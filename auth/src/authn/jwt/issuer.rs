//! An issuer of tokens. This module verifies the tokens of the issuer, and maps their claims to a user.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use go::{QuotedList, quote};
use serde_json::Value;

use super::claims::{self, Registered, TokenClaims};
use super::distributed::Distributed;
use super::expression::Expression;
use super::provider::{Fetch, Provider};
use super::settings::{JwtSettings, Mapping};
use crate::authn::NameDomains;
use crate::authn::jws::{Algorithm, Compact};
use crate::identity::User;

/// Tolerance for clock differences: a token is accepted this long before the start of its validity. The end
/// of the validity has no tolerance.
const START_LEEWAY: Duration = Duration::from_secs(5 * 60);

/// The reason why a token of an issuer is refused, for logs and token reviews.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct TokenRefused(String);

fn refused(why: impl Into<String>) -> TokenRefused {
    TokenRefused(why.into())
}

/// An issuer whose tokens are accepted.
pub struct Issuer {
    provider: Provider,
    audiences: Vec<String>,
    algorithms: Vec<Algorithm>,
    required: Vec<(String, String)>,
    claim_rules: Vec<Condition>,
    username: Source,
    groups: Option<Source>,
    uid: Option<Source>,
    extra: Vec<(String, Expression)>,
    user_rules: Vec<Condition>,
    distributed: Option<Distributed>,
    url: String,
}

/// An expression that must be true, and the error message if the expression is false.
struct Condition {
    expression: Expression,
    message: String,
}

/// The source of a property of the user.
enum Source {
    Claim { name: String, prefix: String },
    Expression(Expression),
}

impl Source {
    fn compiled(mapping: &Mapping) -> Result<Option<Source>, String> {
        if !mapping.expression.is_empty() {
            return Ok(Some(Source::Expression(Expression::of_claims(&mapping.expression)?)));
        }
        let claim = Some(mapping.claim.clone()).filter(|claim| !claim.is_empty());
        let prefix = mapping.prefix.clone().unwrap_or_default();
        Ok(claim.map(|name| Source::Claim { name, prefix }))
    }
}

impl Issuer {
    /// Creates an issuer from validated `settings`. `fetch` reads the documents of the issuer.
    ///
    /// # Errors
    /// Fails if an expression does not compile.
    pub fn new(
        settings: &JwtSettings,
        algorithms: Vec<Algorithm>,
        fetch: Arc<dyn Fetch>,
    ) -> Result<Issuer, String> {
        let mut audiences = settings.issuer.audiences.clone();
        audiences.sort_unstable();
        let mut required = Vec::new();
        let mut claim_rules = Vec::new();
        for rule in &settings.claim_rules {
            if rule.expression.is_empty() {
                required.push((rule.claim.clone(), rule.required_value.clone()));
            } else {
                let expression = Expression::condition_of_claims(&rule.expression)?;
                claim_rules.push(Condition { expression, message: rule.message.clone() });
            }
        }
        let user_rules = settings.user_rules.iter().map(|rule| {
            let expression = Expression::condition_of_user(&rule.expression)?;
            Ok(Condition { expression, message: rule.message.clone() })
        });
        let extra = settings.mappings.extra.iter();
        let extra = extra.map(|(key, text)| Ok((key.clone(), Expression::of_claims(text)?)));
        let username = Source::compiled(&settings.mappings.username)?;
        let groups = Source::compiled(&settings.mappings.groups)?;
        let distributed = match &groups {
            Some(Source::Claim { name, .. }) => Some(Distributed::new(name.clone(), fetch.clone())),
            Some(Source::Expression(_)) | None => None,
        };
        let url = &settings.issuer.url;
        let elsewhere = Some(settings.issuer.discovery_url.as_str()).filter(|url| !url.is_empty());
        let provider = Provider::new(url, elsewhere, fetch);
        Ok(Issuer {
            provider,
            audiences,
            algorithms,
            required,
            claim_rules,
            username: username.ok_or_else(|| "a user name is required".to_owned())?,
            groups,
            uid: Source::compiled(&settings.mappings.uid)?,
            extra: extra.collect::<Result<_, String>>()?,
            user_rules: user_rules.collect::<Result<_, String>>()?,
            distributed,
            url: url.clone(),
        })
    }

    /// Returns the name of the issuer, an https URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the provider of the issuer's keys.
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    /// Authenticates a token that names this issuer and returns its user.
    pub(super) async fn user(
        &self,
        token: &str,
        domains: &NameDomains,
        now: SystemTime,
    ) -> Result<User, TokenRefused> {
        if !self.provider.is_ready() {
            return Err(refused("oidc: authenticator not initialized"));
        }
        let claims = self.verified(&self.provider, token, now).await;
        let mut claims = claims.map_err(|why| refused(format!("oidc: verify token: {why}")))?;
        self.expand(&mut claims, now)
            .await
            .map_err(|why| refused(format!("oidc: could not expand distributed claims: {why}")))?;
        self.mapped(&claims, domains)
    }

    /// Fetches the groups and adds them to `claims`, if the groups are a distributed claim.
    async fn expand(&self, claims: &mut TokenClaims, now: SystemTime) -> Result<(), String> {
        let Some(distributed) = &self.distributed else { return Ok(()) };
        let Some(found) = distributed.find(claims).await? else { return Ok(()) };
        let verified = self.verified(&found.provider, &found.token, now).await;
        let verified = verified.map_err(|why| format!("verify distributed claim token: {why}"))?;
        distributed.copy_claim(&found, verified, claims)
    }

    /// Verifies a token: a key of `provider` signed the token, the token has one of the audiences, and `now`
    /// is within its validity. Returns the claims of the token.
    async fn verified(
        &self,
        provider: &Provider,
        token: &str,
        now: SystemTime,
    ) -> Result<TokenClaims, String> {
        let token = Compact::parse(token).map_err(|why| format!("oidc: malformed jwt: {why}"))?;
        let claims: TokenClaims = serde_json::from_slice(&token.payload)
            .map_err(|error| format!("oidc: failed to unmarshal claims: {error}"))?;
        let Registered { audiences, end, start } = Registered::read(&claims)?;
        self.check_audience(&audiences)?;
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        if end.is_none_or(|end| seconds.as_secs_f64() > end as f64) {
            let end = end.map_or(NEVER.to_owned(), go_time);
            return Err(format!("oidc: token is expired (Token Expiry: {end})"));
        }
        if let Some(start) = start
            && (seconds + START_LEEWAY).as_secs_f64() < start as f64
        {
            let now = go_time(i64::try_from(seconds.as_secs()).unwrap_or(i64::MAX));
            return Err(format!(
                "oidc: current time {now} before the nbf (not before) time: {}",
                go_time(start)
            ));
        }
        let algorithm = Algorithm::by_name(&token.header.alg);
        if !algorithm.is_some_and(|algorithm| self.algorithms.contains(&algorithm)) {
            let accepted: Vec<String> = self.algorithms.iter().map(|known| known.name().to_owned()).collect();
            return Err(format!(
                "oidc: id token signed with unsupported algorithm, expected {} got {}",
                QuotedList(&accepted),
                quote(&token.header.alg)
            ));
        }
        let signed = provider.check_signature(&token).await;
        signed.map_err(|why| format!("failed to verify signature: {why}"))?;
        Ok(claims)
    }

    fn check_audience(&self, named: &[String]) -> Result<(), String> {
        if named.iter().any(|audience| self.audiences.contains(audience)) {
            return Ok(());
        }
        let got = QuotedList(named);
        Err(match self.audiences.as_slice() {
            [only] => format!("oidc: expected audience {} got {got}", quote(only)),
            several => format!("oidc: expected audience in {} got {got}", QuotedList(several)),
        })
    }

    /// Maps the claims to a user and checks all rules.
    fn mapped(&self, claims: &TokenClaims, domains: &NameDomains) -> Result<User, TokenRefused> {
        let name = self.name(claims)?;
        let mut user = User::new(name, self.groups(claims)?);
        user.uid = self.uid(claims)?;
        let extra = self.extra.iter().map(|(key, from)| Ok((key, from, from.on_claims(claims)?)));
        // Evaluate all expressions before any result is converted, so that an evaluation error is reported
        // before an error about a result's type.
        for (key, expression, value) in extra.collect::<Result<Vec<_>, String>>().map_err(refused)? {
            let values = expression.texts(&value).map_err(|why| {
                refused(format!("oidc: error evaluating extra claim expression: {}: {why}", expression.text))
            })?;
            if !values.is_empty() {
                user.extra.insert(key.clone(), values);
            }
        }
        if let Some(Value::String(id)) = claims.get("jti")
            && !id.is_empty()
        {
            user.extra.insert(domains.extra("credential-id"), vec![format!("JTI={id}")]);
        }
        for (claim, expected) in &self.required {
            if !claims.contains_key(claim) {
                return Err(refused(format!("oidc: required claim {claim} not present in ID token")));
            }
            let got = claims::text(claims, claim)
                .map_err(|why| refused(format!("oidc: parse claim {claim}: {why}")))?;
            if got != *expected {
                let why = format!("value does not match. Got = {got}, want = {expected}");
                return Err(refused(format!("oidc: required claim {claim} {why}")));
            }
        }
        check(&self.claim_rules, "claim validation expression", |rule| rule.on_claims(claims))?;
        check(&self.user_rules, "user info validation rule", |rule| rule.on_user(&user))?;
        user.mark_authenticated();
        Ok(user)
    }

    fn name(&self, claims: &TokenClaims) -> Result<String, TokenRefused> {
        match &self.username {
            Source::Claim { name, prefix } => {
                let value = claims::text(claims, name)
                    .map_err(|why| refused(format!("oidc: parse username claims {}: {why}", quote(name))))?;
                if name == "email"
                    && let Some(verified) = claims.get("email_verified")
                {
                    let verified = claims::flag(verified)
                        .map_err(|why| refused(format!("oidc: parse 'email_verified' claim: {why}")))?;
                    if !verified {
                        return Err(refused("oidc: email not verified"));
                    }
                }
                Ok(format!("{prefix}{value}"))
            }
            Source::Expression(expression) => {
                let value = one_text(expression, claims, "username")?;
                if value.is_empty() {
                    return Err(refused("oidc: empty username via CEL expression is not allowed"));
                }
                Ok(value)
            }
        }
    }

    fn groups(&self, claims: &TokenClaims) -> Result<Vec<String>, TokenRefused> {
        match &self.groups {
            None => Ok(Vec::new()),
            Some(Source::Claim { name, prefix }) => {
                let Some(value) = claims.get(name) else { return Ok(Vec::new()) };
                let groups = claims::texts(value)
                    .map_err(|why| refused(format!("oidc: parse groups claim {}: {why}", quote(name))))?;
                Ok(groups.into_iter().map(|group| format!("{prefix}{group}")).collect())
            }
            Some(Source::Expression(expression)) => {
                let value = expression.on_claims(claims);
                value
                    .and_then(|value| expression.texts(&value))
                    .map_err(|why| refused(format!("oidc: error evaluating group claim expression: {why}")))
            }
        }
    }

    fn uid(&self, claims: &TokenClaims) -> Result<String, TokenRefused> {
        match &self.uid {
            None => Ok(String::new()),
            Some(Source::Claim { name, .. }) => claims::text(claims, name)
                .map_err(|why| refused(format!("oidc: parse uid claim {}: {why}", quote(name)))),
            Some(Source::Expression(expression)) => one_text(expression, claims, "uid"),
        }
    }
}

/// Evaluates an expression whose result must be a string.
fn one_text(expression: &Expression, claims: &TokenClaims, what: &str) -> Result<String, TokenRefused> {
    let value = expression.on_claims(claims).and_then(|value| match value {
        cel::value::Value::String(text) => Ok(text.to_string()),
        _ => Err(format!("{what} claim expression must return a string")),
    });
    value.map_err(|why| refused(format!("oidc: error evaluating {what} claim expression: {why}")))
}

/// Checks that all conditions are true. If the evaluation of a condition fails, the error is returned even if
/// an earlier condition is false.
fn check<'v>(
    conditions: &'v [Condition],
    what: &str,
    evaluate: impl Fn(&'v Expression) -> Result<cel::value::Value<'v>, String>,
) -> Result<(), TokenRefused> {
    let results = conditions.iter().map(|condition| Ok((condition, evaluate(&condition.expression)?)));
    let why = match results.collect::<Result<Vec<_>, String>>() {
        Err(why) => why,
        Ok(results) => {
            let mut results = results.into_iter();
            let failed = results.find(|(_, value)| !matches!(value, cel::value::Value::Bool(true)));
            let Some((failed, _)) = failed else { return Ok(()) };
            format!("validation expression '{}' failed: {}", failed.expression.text, failed.message)
        }
    };
    Err(refused(format!("oidc: error evaluating {what}: {why}")))
}

/// The text that Go prints for an unset time.
const NEVER: &str = "0001-01-01 00:00:00 +0000 UTC";

/// Formats a time in the format of Go. `seconds` are counted from the Unix epoch.
fn go_time(seconds: i64) -> String {
    // A time outside the supported range is printed as a number.
    match jiff::Timestamp::from_second(seconds) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string(),
        Err(_) => seconds.to_string(),
    }
}
