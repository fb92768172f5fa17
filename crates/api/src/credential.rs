//! What a user is known to a model vendor by.

use std::fmt;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::tagged;

/// A credential. It shows nothing of itself in logs.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(!tag, untagged, rename = "Auth")]
pub enum Credential {
    /// What a vendor's login gave.
    Oauth(OAuthCredential),
    /// A key.
    Api(ApiCredential),
    /// A token of an organisation's own server.
    WellKnown(WellKnownCredential),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Oauth(_) => "Oauth(…)",
            Self::Api(_) => "Api(…)",
            Self::WellKnown(_) => "WellKnown(…)",
        })
    }
}

/// What a vendor's login gave.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "OAuth", transform = tagged("type", "oauth"))]
pub struct OAuthCredential {
    /// Gets a new access token.
    pub refresh: String,
    /// Goes with each request.
    pub access: String,
    /// When the access token ends.
    pub expires: u64,
    /// Whose it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
    /// Where the vendor is, if not at its usual address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enterprise_url: Option<String>,
}

/// A key.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ApiAuth", transform = tagged("type", "api"))]
pub struct ApiCredential {
    /// The key.
    pub key: String,
    /// What else the vendor needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<IndexMap<String, String>>,
}

/// A token of an organisation's own server.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WellKnownAuth", transform = tagged("type", "wellknown"))]
pub struct WellKnownCredential {
    /// The variable that carries it.
    pub key: String,
    /// The token.
    pub token: String,
}
