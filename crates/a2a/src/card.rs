//! Agent cards and the contracts that they publish. Pure: settings in, JSON out.
//!
//! A card is one document for both lines: each reads the fields that it knows. What belongs to a line alone, like the names of
//! its methods, stands under that line's identifiers of extensions: the older ones for 0.3, those that begin with `urn:` for 1.0.

mod canonical;
mod contract;
mod extensions;
mod known;
mod openapi;
mod profile;
mod sign;
mod skills;
#[cfg(test)]
mod tests;

use std::path::Path;

use api::{Json, JsonMap, sha256_hex};
use serde_json::json;

use crate::wire::{self, Extension, OUTPUT_MODES};
use crate::{ExecutionBoundary, Line, Scheme, Settings};

pub use sign::{CardKey, CardKeyError, sign};

/// What messages may contain.
const INPUT_MODES: [&str; 2] = ["text/plain", "application/octet-stream"];
/// The transport of the card's own URL.
const PREFERRED_TRANSPORT: &str = "HTTP+JSON";
/// All transports, as 0.3 and 1.0 name them, the preferred one first.
const TRANSPORTS: [&str; 2] = [PREFERRED_TRANSPORT, "JSONRPC"];

/// What the cards say.
#[derive(Debug, Clone)]
pub struct CardInput {
    name: String,
    description: String,
    version: String,
    documentation_url: Option<String>,
    project: Option<String>,
    url: String,
    schemes: Vec<Scheme>,
    /// What the wire knows of the settings: lines, and which methods are enabled.
    wire: wire::Settings,
    push: bool,
    metrics: bool,
    accept_data_parts: bool,
    allow_directory_override: bool,
    boundary: ExecutionBoundary,
    /// The path of the workspace, if it is shown.
    workspace_root: Option<String>,
    /// Whether an OpenCode server does the work.
    upstream: bool,
}

/// A document as it is sent.
pub struct Document {
    /// Its bytes.
    pub body: Vec<u8>,
    /// Its entity tag, with `W/` and quotes.
    pub etag: String,
}

impl CardInput {
    /// What the cards of a service with these settings say.
    pub fn new(
        settings: &Settings,
        public_url: &str,
        schemes: &[Scheme],
        workspace_root: &Path,
        version: &str,
    ) -> Self {
        Self {
            name: settings.title.clone(),
            description: settings.description.clone().unwrap_or_else(|| skills::DESCRIPTION.to_owned()),
            version: settings.version.clone().unwrap_or_else(|| version.to_owned()),
            documentation_url: settings.documentation_url.clone(),
            project: settings.project.clone(),
            url: public_url.trim_end_matches('/').to_owned(),
            schemes: schemes.to_vec(),
            wire: wire::Settings {
                default_line: settings.default_line,
                supported: settings.lines.clone(),
                session_shell: settings.session_shell_enabled(),
                workspace_mutations: settings.workspace_mutations_enabled(),
            },
            push: settings.push,
            metrics: settings.metrics,
            accept_data_parts: settings.accept_data_parts,
            allow_directory_override: settings.allow_directory_override,
            boundary: settings.boundary.clone(),
            workspace_root: settings.expose_workspace_root.then(|| workspace_root.display().to_string()),
            upstream: settings.upstream_url.is_some(),
        }
    }

    fn serves(&self, line: Line) -> bool {
        self.wire.supported.contains(&line)
    }

    /// Where gRPC is, as its clients name it: at the root of the address alone, since a path is no part of it.
    fn grpc_address(&self) -> Option<String> {
        let url = url::Url::parse(&self.url).ok().filter(|url| cfg!(feature = "grpc") && url.path() == "/")?;
        Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
    }

    /// The lines that are served, the newest first.
    fn lines(&self) -> impl Iterator<Item = Line> + '_ {
        Line::ALL.into_iter().rev().filter(|line| self.serves(*line))
    }
}

/// How much a card tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// What everybody may know.
    Public,
    /// All.
    Extended,
}

/// The card that everybody may read.
pub fn public_card(input: &CardInput) -> Json {
    card(input, Detail::Public)
}

/// The card for authenticated clients.
pub fn extended_card(input: &CardInput) -> Json {
    card(input, Detail::Extended)
}

fn card(input: &CardInput, detail: Detail) -> Json {
    let mut card = JsonMap::new();
    let mut put = |field: &str, value: Json| card.insert(field.to_owned(), value);
    put("name", input.name.as_str().into());
    put("description", skills::description(input, detail).into());
    put("version", input.version.as_str().into());
    if let Some(url) = &input.documentation_url {
        put("documentationUrl", url.as_str().into());
    }
    put("supportedInterfaces", interfaces(input).into());
    if input.serves(Line::V03) {
        // Not `0.3.0`: SDKs leave that default out of what they verify.
        put("protocolVersion", Line::V03.version().into());
        put("url", input.url.as_str().into());
        put("preferredTransport", PREFERRED_TRANSPORT.into());
        let interface = |transport| json!({ "transport": transport, "url": input.url });
        put("additionalInterfaces", TRANSPORTS.map(interface).to_vec().into());
        put("supportsAuthenticatedExtendedCard", true.into());
    }
    put("capabilities", capabilities(input, detail));
    if !input.schemes.is_empty() {
        put("securitySchemes", input.schemes.iter().map(|scheme| security_scheme(input, *scheme)).collect());
        if input.serves(Line::V03) {
            put("security", input.schemes.iter().map(|scheme| json!({ scheme_name(*scheme): [] })).collect());
        }
        if input.serves(Line::V10) {
            let requirement = |scheme: &Scheme| json!({ "schemes": { scheme_name(*scheme): { "list": [] } } });
            put("securityRequirements", input.schemes.iter().map(requirement).collect());
        }
    }
    put("defaultInputModes", input_modes(input).into());
    put("defaultOutputModes", OUTPUT_MODES.to_vec().into());
    put("skills", skills::skills(input, detail));
    Json::Object(card)
}

fn input_modes(input: &CardInput) -> Vec<&'static str> {
    let data = input.accept_data_parts.then_some("application/json");
    INPUT_MODES.into_iter().chain(data).collect()
}

/// The interfaces of all lines, those of 1.0 first.
fn interfaces(input: &CardInput) -> Vec<Json> {
    let interface = |line: Line, transport| json!({ "url": input.url, "protocolBinding": transport, "protocolVersion": line.version() });
    let mut interfaces: Vec<Json> =
        input.lines().flat_map(|line| TRANSPORTS.map(|transport| interface(line, transport))).collect();
    if let Some(address) = input.grpc_address().filter(|_| input.serves(Line::V10)) {
        let grpc = json!({ "url": address, "protocolBinding": "GRPC", "protocolVersion": Line::V10.version() });
        interfaces.insert(TRANSPORTS.len(), grpc);
    }
    interfaces
}

fn capabilities(input: &CardInput, detail: Detail) -> Json {
    let mut capabilities = json!({ "streaming": true, "pushNotifications": input.push });
    if input.serves(Line::V10) {
        capabilities["extendedAgentCard"] = true.into();
    }
    capabilities["extensions"] = extensions::entries(input, detail).into();
    capabilities
}

fn scheme_name(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Bearer => "bearerAuth",
        Scheme::Basic => "basicAuth",
    }
}

/// A scheme as 0.3 spells it, with a `type`, and as 1.0 does, wrapped in its kind.
fn security_scheme(input: &CardInput, scheme: Scheme) -> (String, Json) {
    let mut plain = match scheme {
        Scheme::Bearer => json!({
            "scheme": "bearer", "bearerFormat": "opaque", "description": "A token of this service.",
        }),
        Scheme::Basic => json!({ "scheme": "basic", "description": "A user name and a password of this service." }),
    };
    let wrapped = plain.clone();
    if !input.serves(Line::V03) {
        plain = json!({});
    } else {
        plain["type"] = "http".into();
    }
    if input.serves(Line::V10) {
        plain["httpAuthSecurityScheme"] = wrapped;
    }
    (scheme_name(scheme).to_owned(), plain)
}

/// The answer of `GET /health`.
pub fn health(input: &CardInput) -> Json {
    json!({
        "status": "ok",
        "service": "trefoil",
        "version": input.version,
        "profile": profile::profile(input, input.wire.default_line),
    })
}

/// The OpenAPI document.
pub fn openapi(input: &CardInput) -> Json {
    openapi::document(input)
}

/// The bytes and the entity tag of a document.
pub fn document(json: &Json) -> Document {
    let etag = format!("W/\"{}\"", sha256_hex(canonical::canonical(json).as_bytes()));
    Document { body: json.to_string().into_bytes(), etag }
}

/// The identifier of an extension in a line.
fn identifier(extension: Extension, line: Line) -> String {
    match line {
        Line::V03 => extension.older_identifier().unwrap_or_else(|| extension.urn().to_owned()),
        Line::V10 => extension.urn().to_owned(),
    }
}
