//! The operator's settings for token issuers, from flags or from a configuration file.

/// The settings of all issuers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// Settings of each issuer, in order.
    pub jwt: Vec<JwtSettings>,
}

/// The settings of one issuer: its keys, its audiences, and the mapping of claims to a user.
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
    /// Address of the discovery document; empty if it is below `url`.
    pub discovery_url: String,
    /// PEM of the authorities that sign the issuer's serving certificate; empty for the authorities of the
    /// system.
    pub certificate_authority: String,
    /// Accepted audiences; a token must have one of them.
    pub audiences: Vec<String>,
    /// How a token must match several audiences.
    pub audience_match_policy: String,
    /// Network through which the issuer is reached.
    pub egress_selector_type: String,
}

/// A rule about claims: either a required value or an expression.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClaimRule {
    /// Claim that must have the value `required_value`.
    pub claim: String,
    /// Value that `claim` must have.
    pub required_value: String,
    /// Expression over `claims` that must be true.
    pub expression: String,
    /// Error message if the expression is false.
    pub message: String,
}

/// A rule about the mapped user.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ValidationRule {
    /// Expression over `user` that must be true.
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
    /// Source of the uid; the prefix is not used.
    pub uid: Mapping,
    /// Extra values: the key, and the expression of the value.
    pub extra: Vec<(String, String)>,
}

/// The source of a property: a claim with an optional prefix, or an expression.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Mapping {
    /// Name of the claim; empty if `expression` is used.
    pub claim: String,
    /// Text that is put in front of the claim's value.
    pub prefix: Option<String>,
    /// Expression over `claims`; empty if `claim` is used.
    pub expression: String,
}
