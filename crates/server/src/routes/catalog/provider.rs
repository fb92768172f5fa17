//! Providers and their credentials.

use api::{Credential, Host as _, Json, Provider, ProviderSource, Scope};
use axum::http::Method;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::State;
use crate::error::Error;
use crate::operation::request::{Call, JsonBody, Nothing};
use crate::operation::{Data, Never, Operation, operation};

pub fn operations() -> Vec<Operation> {
    const AUTH: &str = "/auth/{providerID}";
    const AUTHORIZE: &str = "/provider/{providerID}/oauth/authorize";
    const CALLBACK: &str = "/provider/{providerID}/oauth/callback";
    const NO_LOGIN: &str = "no provider has a login here; store a key with auth.set";
    let refused: &[&str] = &["ProviderAuthError1", "BadRequestError"];
    vec![
        operation(Method::GET, "/provider", "provider.list", "All providers, and which are connected.", list),
        operation(Method::GET, "/provider/auth", "provider.auth", "How providers can be connected.", methods),
        operation(Method::POST, AUTHORIZE, "provider.oauth.authorize", "Begin a login.", authorize)
            .not_offered(NO_LOGIN)
            .error(400, refused),
        operation(Method::POST, CALLBACK, "provider.oauth.callback", "End a login.", callback)
            .not_offered(NO_LOGIN)
            .error(400, refused),
        operation(Method::GET, "/config/providers", "config.providers", "The providers that can be used.", usable),
        operation(Method::PUT, AUTH, "auth.set", "Store the credential of a provider.", set)
            .partial("only keys are used; other credentials are kept")
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

/// The model of each provider that is used if none is named: that of the configuration, else its first.
async fn defaults(state: &State, scope: &Scope, providers: &[Provider]) -> IndexMap<String, String> {
    // A configured model that does not exist is told when it is used.
    let chosen = state.engine.default_model(scope).await.ok();
    let of = |provider: &Provider| match &chosen {
        Some(chosen) if chosen.provider_id == provider.id => Some(chosen.model_id.clone()),
        _ => provider.models.keys().next().cloned(),
    };
    providers.iter().filter_map(|provider| Some((provider.id.clone(), of(provider)?))).collect()
}

/// All providers.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct List {
    all: Vec<Provider>,
    /// The model of each that is used if none is named.
    default: IndexMap<String, String>,
    /// Those that can be used.
    connected: Vec<String>,
}

async fn list(call: Call) -> Result<Data<List>, Error> {
    let mut all = call.state.engine.providers(&call.scope).await?;
    let connected = all.iter().map(|provider| provider.id.clone()).collect();
    all.extend(call.state.engine.loaded(&call.scope).connectable.iter().cloned());
    let default = defaults(&call.state, &call.scope, &all).await;
    Ok(Data(List { all, default, connected }))
}

/// The providers that can be used.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Usable {
    providers: Vec<Provider>,
    /// The model of each that is used if none is named.
    default: IndexMap<String, String>,
}

async fn usable(call: Call) -> Result<Data<Usable>, Error> {
    let providers = call.state.engine.providers(&call.scope).await?;
    let default = defaults(&call.state, &call.scope, &providers).await;
    Ok(Data(Usable { providers, default }))
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

async fn methods(call: Call) -> Result<Data<IndexMap<String, Vec<AuthMethod>>>, Error> {
    let connected = call.state.engine.providers(&call.scope).await?;
    let loaded = call.state.engine.loaded(&call.scope);
    // Scripts need no key.
    let keyed = connected.iter().filter(|provider| provider.source != ProviderSource::Custom);
    let method = || vec![AuthMethod { kind: AuthKind::Api, label: "API key" }];
    Ok(Data(keyed.chain(&loaded.connectable).map(|provider| (provider.id.clone(), method())).collect()))
}

/// Which login.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "what is refused is still checked and documented")]
#[schemars(inline)]
struct Authorize {
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

async fn authorize(call: Call<ProviderPath, Nothing, JsonBody<Authorize>>) -> Result<Never<Authorization>, Error> {
    Err(no_login(&call.path.provider))
}

/// What the login gave.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "what is refused is still checked and documented")]
#[schemars(inline)]
struct Callback {
    method: f64,
    code: Option<String>,
}

async fn callback(call: Call<ProviderPath, Nothing, JsonBody<Callback>>) -> Result<Never<bool>, Error> {
    Err(no_login(&call.path.provider))
}

fn no_login(provider: &str) -> Error {
    let message = format!("{provider:?} has no login here; store a key with PUT /auth/{{providerID}}");
    let body: Json =
        json!({ "name": "ProviderAuthOauthMissing", "data": { "providerID": provider, "message": message } });
    Error::not_offered(body)
}

async fn set(call: Call<ProviderPath, Nothing, JsonBody<Credential>>) -> Result<Data<bool>, Error> {
    call.state.engine.set_credential(call.path.provider, Some(call.body.0)).await?;
    Ok(Data(true))
}

async fn remove(call: Call<ProviderPath>) -> Result<Data<bool>, Error> {
    call.state.engine.set_credential(call.path.provider, None).await?;
    Ok(Data(true))
}
