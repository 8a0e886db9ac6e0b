//! What an operator says about issuers of tokens, in flags or in a configuration file.

/// All issuers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// One entry for each issuer.
    pub jwt: Vec<JwtSettings>,
}

/// One issuer: where its keys are, whom its tokens are for, and how claims become a user.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct JwtSettings {
    /// The issuer.
    pub issuer: IssuerSettings,
    /// What must hold of the claims.
    pub claim_rules: Vec<ClaimRule>,
    /// How claims become a user.
    pub mappings: Mappings,
    /// What must hold of the user.
    pub user_rules: Vec<Rule>,
}

/// The issuer of tokens.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct IssuerSettings {
    /// Its name, an https address.
    pub url: String,
    /// Address of its discovery document, if it is not below `url`.
    pub discovery_url: String,
    /// PEM of the authorities of its certificate; empty: those of the system.
    pub certificate_authority: String,
    /// Audiences; a token must have one of them.
    pub audiences: Vec<String>,
    /// How a token matches several audiences.
    pub audience_match_policy: String,
    /// Network that the issuer is reached through.
    pub egress_selector_type: String,
}

/// A rule about claims: a required value, or an expression.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClaimRule {
    /// Claim that must have `required_value`.
    pub claim: String,
    /// Value of `claim`.
    pub required_value: String,
    /// Expression that must be true.
    pub expression: String,
    /// What the error says.
    pub message: String,
}

/// A rule about the user.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rule {
    /// Expression that must be true.
    pub expression: String,
    /// What the error says.
    pub message: String,
}

/// How claims become a user.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Mappings {
    /// The name.
    pub username: Mapping,
    /// The groups.
    pub groups: Mapping,
    /// The uid; the prefix is not used.
    pub uid: Mapping,
    /// Extra values: key, and the expression of their value.
    pub extra: Vec<(String, String)>,
}

/// A claim, perhaps with a prefix, or an expression.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Mapping {
    /// The claim.
    pub claim: String,
    /// Written before its value.
    pub prefix: Option<String>,
    /// The expression.
    pub expression: String,
}
