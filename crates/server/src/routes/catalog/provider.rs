//! Providers and their credentials.

use api::{Credential, Json, Provider, ProviderCatalog, ProviderSource};
use axum::http::Method;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::Error;
use crate::operation::request::{JsonBody, NoParams, Request};
use crate::operation::{JsonReply, NeverReply, Operation, operation};

pub fn operations() -> Vec<Operation> {
    const AUTH: &str = "/auth/{providerID}";
    const AUTHORIZE: &str = "/provider/{providerID}/oauth/authorize";
    const CALLBACK: &str = "/provider/{providerID}/oauth/callback";
    const NO_LOGIN: &str = "no provider has a login here; store a key with auth.set";
    let refused: &[&str] = &["ProviderAuthError1", "BadRequestError"];
    vec![
        operation(Method::GET, "/provider", "provider.list", "All providers, and which are connected.", list),
        operation(Method::GET, "/provider/auth", "provider.auth", "How providers can be connected.", methods),
        operation(Method::POST, AUTHORIZE, "provider.oauth.authorize", "Start a login.", authorize)
            .not_offered(NO_LOGIN)
            .error(400, refused),
        operation(Method::POST, CALLBACK, "provider.oauth.callback", "Finish a login.", callback)
            .not_offered(NO_LOGIN)
            .error(400, refused),
        operation(Method::GET, "/config/providers", "config.providers", "The providers that can be used.", usable),
        operation(Method::PUT, AUTH, "auth.set", "Store the credential of a provider.", set)
            .partial("only API keys are used; other credentials are only stored")
            .global(),
        operation(Method::DELETE, AUTH, "auth.remove", "Forget the credential of a provider.", remove).global(),
    ]
}

/// A provider in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct ProviderPath {
    #[serde(rename = "providerID")]
    provider: String,
}

async fn list(request: Request) -> Result<JsonReply<ProviderCatalog>, Error> {
    Ok(JsonReply(request.host.provider_catalog(&request.scope).await?))
}

/// The providers that can be used.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct UsableProviders {
    providers: Vec<Provider>,
    /// The default model of each.
    default: IndexMap<String, String>,
}

async fn usable(request: Request) -> Result<JsonReply<UsableProviders>, Error> {
    let ProviderCatalog { all: mut providers, mut default, connected } =
        request.host.provider_catalog(&request.scope).await?;
    providers.retain(|provider| connected.contains(&provider.id));
    default.retain(|provider, _| connected.contains(provider));
    Ok(JsonReply(UsableProviders { providers, default }))
}

/// A way to connect a provider.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProviderAuthMethod")]
struct AuthMethod {
    #[serde(rename = "type")]
    kind: AuthKind,
    label: &'static str,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum AuthKind {
    Api,
}

async fn methods(request: Request) -> Result<JsonReply<IndexMap<String, Vec<AuthMethod>>>, Error> {
    let connected = request.host.providers(&request.scope).await?;
    let loaded = request.engine.loaded(&request.scope);
    // Scripts need no key.
    let with_key = connected.iter().filter(|provider| provider.source != ProviderSource::Custom);
    let method = || vec![AuthMethod { kind: AuthKind::Api, label: "API key" }];
    Ok(JsonReply(with_key.chain(&loaded.connectable).map(|provider| (provider.id.clone(), method())).collect()))
}

/// The login to start.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "a refused body is still checked and documented")]
#[schemars(inline)]
struct AuthorizeBody {
    method: f64,
    inputs: Option<IndexMap<String, String>>,
}

/// Where to log in.
#[derive(JsonSchema)]
#[schemars(rename = "ProviderAuthAuthorization")]
#[expect(dead_code, reason = "only its schema is used")]
struct Authorization {
    url: String,
    method: AuthorizationMethod,
    instructions: String,
}

#[derive(JsonSchema)]
#[schemars(inline, rename_all = "lowercase")]
#[expect(dead_code, reason = "only its schema is used")]
enum AuthorizationMethod {
    Auto,
    Code,
}

async fn authorize(
    request: Request<ProviderPath, NoParams, JsonBody<AuthorizeBody>>,
) -> Result<NeverReply<Authorization>, Error> {
    Err(no_login(&request.path.provider))
}

/// The result of the login.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "a refused body is still checked and documented")]
#[schemars(inline)]
struct CallbackBody {
    method: f64,
    code: Option<String>,
}

async fn callback(request: Request<ProviderPath, NoParams, JsonBody<CallbackBody>>) -> Result<NeverReply<bool>, Error> {
    Err(no_login(&request.path.provider))
}

fn no_login(provider: &str) -> Error {
    let message = format!("{provider:?} has no login here; store a key with PUT /auth/{{providerID}}");
    let body: Json =
        json!({ "name": "ProviderAuthOauthMissing", "data": { "providerID": provider, "message": message } });
    Error::not_offered(body)
}

async fn set(request: Request<ProviderPath, NoParams, JsonBody<Credential>>) -> Result<JsonReply<bool>, Error> {
    request.engine.set_credential(request.path.provider, Some(request.body.0)).await?;
    Ok(JsonReply(true))
}

async fn remove(request: Request<ProviderPath>) -> Result<JsonReply<bool>, Error> {
    request.engine.set_credential(request.path.provider, None).await?;
    Ok(JsonReply(true))
}
