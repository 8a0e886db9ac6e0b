//! The operator's settings for token issuers, from flags or from a configuration file.

/// The settings of all issuers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// Settings of each issuer, in order.
    pub jwt: Vec<JwtSettings>,
}

/// The settings of one issuer: the keys, the audiences, and the mapping of claims to a user.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct JwtSettings {
    /// Issuer that signs the tokens.
    pub issuer: IssuerSettings,
    /// Rules that the claims must meet.
    pub claim_rules: Vec<ClaimRule>,
    /// Mapping of claims to a user.
    pub mappings: Mappings,
    /// Rules that the mapped user must meet.
    pub user_rules: Vec<ValidationRule>,
}

/// The issuer of tokens and its keys.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct IssuerSettings {
    /// Name of the issuer, an https URL.
    pub url: String,
    /// Address of the discovery document; empty if the document is at the standard path below `url`.
    pub discovery_url: String,
    /// PEM of the authorities that sign the issuer's serving certificate. Empty means the authorities of the
    /// operating system.
    pub certificate_authority: String,
    /// Accepted audiences. A token must have at least one of these audiences.
    pub audiences: Vec<String>,
    /// The match policy if the issuer has several audiences; `MatchAny` or empty.
    pub audience_match_policy: String,
    /// Network through which the server reaches the issuer.
    pub egress_selector_type: String,
}

/// A rule about claims: either a required value or an expression.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClaimRule {
    /// Claim that must have the value `required_value`.
    pub claim: String,
    /// Value that `claim` must have.
    pub required_value: String,
    /// Expression that reads `claims` and must be true.
    pub expression: String,
    /// Error message if the expression is false.
    pub message: String,
}

/// A rule about the mapped user.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ValidationRule {
    /// Expression that reads `user` and must be true.
    pub expression: String,
    /// Error message if the expression is false.
    pub message: String,
}

/// The mapping of claims to a user.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Mappings {
    /// Source of the user name.
    pub username: Mapping,
    /// Source of the groups.
    pub groups: Mapping,
    /// Source of the uid. The prefix is ignored.
    pub uid: Mapping,
    /// Extra values: the key, and the expression of the value.
    pub extra: Vec<(String, String)>,
}

/// The source of a property: a claim with an optional prefix, or an expression.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Mapping {
    /// Name of the claim; empty if `expression` is used.
    pub claim: String,
    /// Text that is inserted before the value of the claim.
    pub prefix: Option<String>,
    /// Expression that reads `claims`; empty if `claim` is used.
    pub expression: String,
}
