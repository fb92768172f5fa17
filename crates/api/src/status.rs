//! How it is with what Trefoil works with: MCP servers, language servers, formatters.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How it is with an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
#[schemars(rename = "MCPStatus")]
pub enum McpStatus {
    /// It answers.
    #[schemars(title = "MCPStatusConnected")]
    Connected,
    /// It is switched off.
    #[schemars(title = "MCPStatusDisabled")]
    Disabled,
    /// It does not answer.
    #[schemars(title = "MCPStatusFailed")]
    Failed {
        /// Why.
        error: String,
    },
    /// The human must sign in.
    #[schemars(title = "MCPStatusNeedsAuth")]
    NeedsAuth,
    /// It wants to know the client beforehand.
    #[schemars(title = "MCPStatusNeedsClientRegistration")]
    NeedsClientRegistration {
        /// Why.
        error: String,
    },
}

/// Something to read that an MCP server has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpResource {
    /// Its name.
    pub name: String,
    /// Its address.
    pub uri: String,
    /// What it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The server.
    pub client: String,
}

/// How an MCP server is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(inline)]
pub enum McpConfig {
    /// A program of this machine.
    #[schemars(title = "McpLocalConfig")]
    Local {
        /// The program and its arguments.
        command: Vec<String>,
        /// Where it runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// Further variables.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        environment: Option<IndexMap<String, String>>,
        /// Whether it is used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        enabled: Option<bool>,
        /// How long an answer may take, in milliseconds.
        #[schemars(extend("exclusiveMinimum" = 0))]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout: Option<u64>,
    },
    /// A server with an address.
    #[schemars(title = "McpRemoteConfig")]
    Remote {
        /// The address.
        url: String,
        /// Whether it is used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        enabled: Option<bool>,
        /// Further headers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        headers: Option<IndexMap<String, String>>,
        /// How to sign in; `false` for not at all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        oauth: Option<McpOAuth>,
        /// How long an answer may take, in milliseconds.
        #[schemars(extend("exclusiveMinimum" = 0))]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout: Option<u64>,
    },
}

/// Whether and how to sign in at an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum McpOAuth {
    /// How.
    Config(McpOAuthConfig),
    /// `false`: not at all.
    Off(#[schemars(extend("enum" = [false]))] bool),
}

/// How to sign in at an MCP server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "McpOAuthConfig")]
pub struct McpOAuthConfig {
    /// As whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// With which secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// For what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The port on which the answer is awaited.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_port: Option<u16>,
    /// The address to which the answer goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
}

/// Where a human signs in at an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct McpAuthorization {
    /// The address; empty if that is not needed.
    pub authorization_url: String,
    /// What comes back with the code.
    pub oauth_state: String,
}

/// How it is with a language server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LSPStatus")]
pub struct LspStatus {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Where it looks.
    pub root: String,
    /// Whether it works.
    pub status: LspState,
}

/// Whether a language server works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum LspState {
    /// It does.
    Connected,
    /// It does not.
    Error,
}

/// How it is with a formatter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FormatterStatus {
    /// Its name.
    pub name: String,
    /// The files that it is for.
    pub extensions: Vec<String>,
    /// Whether it is used.
    pub enabled: bool,
}
