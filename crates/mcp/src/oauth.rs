//! OAuth for MCP servers: discovery, client registration, authorization code with PKCE, token refresh.

mod callback;
mod store;

use std::sync::Mutex;
use std::time::Duration;

use api::{Json, McpOAuthConfig};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use reqwest::RequestBuilder;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex as AsyncMutex;
use url::Url;
use url::form_urlencoded::{Serializer, byte_serialize};

pub(crate) use callback::CallbackListener;
pub(crate) use store::CredentialStore;

use crate::error::{AuthChallenge, Error};
use crate::http_client::{self, connection_error};
use crate::lock;
use store::{ClientInfo, StoredCredentials, Tokens};

/// Where the browser delivers the code, unless configured.
const CALLBACK_PORT: u16 = 19876;
const CALLBACK_PATH: &str = "/mcp/oauth/callback";
/// How long one request may take, and how large its response may be.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const BODY_MAX: usize = 1 << 20;
/// A token is refreshed this many seconds before it expires.
const REFRESH_EARLY: f64 = 30.0;

/// The OAuth client of one server.
pub(crate) struct Auth {
    name: String,
    server: Url,
    config: McpOAuthConfig,
    store: CredentialStore,
    /// The server's authorization server, once known.
    discovered: Mutex<Option<AuthorizationServer>>,
    /// Held while tokens are refreshed: a refresh token is often valid only once.
    refreshing: AsyncMutex<()>,
}

/// Where to get tokens for a server.
#[derive(Debug, Clone)]
struct AuthorizationServer {
    metadata: ServerMetadata,
    /// The resource that the tokens are for, if the server names one.
    resource: Option<String>,
    scopes: Vec<String>,
}

/// Authorization server metadata (RFC 8414).
#[derive(Debug, Clone, Deserialize)]
struct ServerMetadata {
    authorization_endpoint: String,
    token_endpoint: String,
    #[serde(default)]
    registration_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    code_challenge_methods_supported: Option<Vec<String>>,
}

/// Protected resource metadata (RFC 9728).
#[derive(Debug, Deserialize)]
struct ResourceMetadata {
    #[serde(default)]
    resource: Option<String>,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    refresh_token: Option<String>,
    expires_in: Option<f64>,
    scope: Option<String>,
}

/// A sign-in in progress.
#[derive(Debug, Clone)]
pub(crate) struct AuthFlow {
    /// The URL to open.
    pub url: Url,
    /// The state that comes back with the code.
    pub state: String,
    /// Where the browser delivers the code.
    pub redirect: Url,
    verifier: String,
    client: ClientInfo,
    authorization_server: AuthorizationServer,
}

impl Auth {
    pub(crate) fn new(name: &str, server: Url, config: McpOAuthConfig, store: CredentialStore) -> Self {
        let (discovered, refreshing) = Default::default();
        Self { name: name.to_owned(), server, config, store, discovered, refreshing }
    }

    /// The token to send, if there is one.
    pub(crate) async fn token(&self) -> Option<String> {
        let tokens = self.credentials().tokens?;
        if tokens.expires_at.is_some_and(|end| end < now() + REFRESH_EARLY) && tokens.refresh_token.is_some() {
            return self.refresh(&tokens.access_token).await.or(Some(tokens.access_token));
        }
        Some(tokens.access_token)
    }

    /// Replaces a token that the server no longer accepts.
    pub(crate) async fn refresh(&self, old: &str) -> Option<String> {
        let _guard = self.refreshing.lock().await;
        let mut stored = self.credentials();
        let tokens = stored.tokens.clone()?;
        if tokens.access_token != old {
            // Another task has refreshed it already.
            return Some(tokens.access_token);
        }
        let refresh_token = tokens.refresh_token.clone()?;
        let request = async {
            let client =
                self.client_info(&stored).ok_or_else(|| Error::OAuth("the client is not registered".into()))?;
            let authorization_server = self.discover(&AuthChallenge::default()).await?;
            let form = [("grant_type", "refresh_token"), ("refresh_token", refresh_token.as_str())];
            self.request_tokens(&authorization_server, &client, &form).await
        };
        match request.await {
            Ok(mut fresh) => {
                fresh.refresh_token = fresh.refresh_token.or(Some(refresh_token));
                let token = fresh.access_token.clone();
                stored.tokens = Some(fresh);
                let stored = self.store.put(&self.name, Some(&stored));
                stored.inspect_err(|error| tracing::warn!(%error, "failed to store a refreshed token")).ok();
                Some(token)
            }
            Err(error) => {
                tracing::info!(server = self.name, %error, "failed to refresh the token");
                None
            }
        }
    }

    /// Starts a sign-in.
    pub(crate) async fn begin(&self, challenge: &AuthChallenge) -> Result<AuthFlow, Error> {
        *lock(&self.discovered) = None;
        let authorization_server = self.discover(challenge).await?;
        if authorization_server
            .metadata
            .code_challenge_methods_supported
            .as_ref()
            .is_some_and(|all| !all.iter().any(|m| m == "S256"))
        {
            return Err(Error::OAuth("the authorization server does not support PKCE with S256".to_owned()));
        }
        let redirect = self.redirect_url()?;
        let mut stored = self.credentials();
        let client = match self.client_info(&stored) {
            Some(client) => client,
            None => {
                let client = self.register(&authorization_server, &redirect).await?;
                stored.client_info = Some(client.clone());
                stored.server_url = Some(self.server.to_string());
                self.store.put(&self.name, Some(&stored))?;
                client
            }
        };
        let (verifier, state) = (random()?, random()?);
        let mut url = self.check_endpoint(&authorization_server.metadata.authorization_endpoint)?;
        let scope = self.config.scope.clone().or_else(|| challenge.scope.clone());
        let scope = scope.or_else(|| Some(authorization_server.scopes.join(" ")).filter(|scope| !scope.is_empty()));
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.client_id)
            .append_pair("code_challenge", &URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes())))
            .append_pair("code_challenge_method", "S256")
            .append_pair("redirect_uri", redirect.as_str())
            .append_pair("state", &state)
            .extend_pairs(scope.iter().map(|scope| ("scope", scope)))
            .extend_pairs(authorization_server.resource.iter().map(|resource| ("resource", resource)));
        Ok(AuthFlow { url, state, redirect, verifier, client, authorization_server })
    }

    /// Exchanges the code that the browser delivered.
    pub(crate) async fn finish(&self, flow: &AuthFlow, code: &str) -> Result<(), Error> {
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("code_verifier", flow.verifier.as_str()),
            ("redirect_uri", flow.redirect.as_str()),
        ];
        let tokens = self.request_tokens(&flow.authorization_server, &flow.client, &form).await?;
        let server_url = Some(self.server.to_string());
        let stored = StoredCredentials { tokens: Some(tokens), server_url, ..self.credentials() };
        self.store.put(&self.name, Some(&stored))
    }

    /// Forgets all credentials.
    pub(crate) fn forget(&self) -> Result<(), Error> {
        self.store.put(&self.name, None)
    }

    fn credentials(&self) -> StoredCredentials {
        self.store.get(&self.name, self.server.as_str())
    }

    /// The configured client, or the registered one if its secret is still valid.
    fn client_info(&self, stored: &StoredCredentials) -> Option<ClientInfo> {
        if let Some(id) = &self.config.client_id {
            let client_secret = self.config.client_secret.clone();
            return Some(ClientInfo { client_id: id.clone(), client_secret, client_secret_expires_at: None });
        }
        let good = |client: &ClientInfo| client.client_secret_expires_at.is_none_or(|end| end <= 0.0 || end > now());
        stored.client_info.clone().filter(good)
    }

    fn redirect_url(&self) -> Result<Url, Error> {
        let port = self.config.callback_port.unwrap_or(CALLBACK_PORT);
        let text =
            self.config.redirect_uri.clone().unwrap_or_else(|| format!("http://127.0.0.1:{port}{CALLBACK_PATH}"));
        http_client::parse_url(&text)
    }

    /// Discovers where to get tokens.
    async fn discover(&self, challenge: &AuthChallenge) -> Result<AuthorizationServer, Error> {
        if let Some(known) = lock(&self.discovered).clone() {
            return Ok(known);
        }
        let mut urls: Vec<Url> =
            challenge.metadata_url.iter().filter_map(|url| self.check_endpoint(url).ok()).collect();
        urls.extend(well_known(&self.server, "oauth-protected-resource"));
        let mut protected = None;
        for url in urls {
            protected = self.fetch_metadata::<ResourceMetadata>(&url).await;
            if protected.is_some() {
                break;
            }
        }
        let named = protected.as_ref().and_then(|protected| protected.authorization_servers.first());
        let issuer = match named {
            Some(named) => self.check_endpoint(named)?,
            None => self.server.join("/").map_err(|error| Error::OAuth(error.to_string()))?,
        };
        let mut urls = well_known(&issuer, "oauth-authorization-server");
        urls.extend(well_known(&issuer, "openid-configuration"));
        if issuer.path() != "/" {
            let fallback = format!("{}/.well-known/openid-configuration", issuer.as_str().trim_end_matches('/'));
            urls.extend(Url::parse(&fallback));
        }
        let mut metadata = None;
        for url in urls {
            metadata = self.fetch_metadata::<ServerMetadata>(&url).await;
            if metadata.is_some() {
                break;
            }
        }
        if metadata.is_none() && named.is_some() {
            return Err(Error::OAuth(format!("the authorization server {issuer} has no metadata")));
        }
        // Servers from before 2025-06 have no metadata, but agreed-upon paths.
        let at = |path: &str| issuer.join(path).map(|url| url.to_string()).unwrap_or_default();
        let metadata = metadata.unwrap_or_else(|| ServerMetadata {
            authorization_endpoint: at("/authorize"),
            token_endpoint: at("/token"),
            registration_endpoint: Some(at("/register")),
            token_endpoint_auth_methods_supported: Vec::new(),
            code_challenge_methods_supported: None,
        });
        let resource = protected.as_ref().map(|p| p.resource.clone().unwrap_or_else(|| self.server.to_string()));
        let authorization_server = AuthorizationServer {
            metadata,
            resource,
            scopes: protected.map(|p| p.scopes_supported).unwrap_or_default(),
        };
        *lock(&self.discovered) = Some(authorization_server.clone());
        Ok(authorization_server)
    }

    /// Checks a URL that a server named: encrypted, local, or on the configured server itself.
    fn check_endpoint(&self, text: &str) -> Result<Url, Error> {
        let url = http_client::parse_url(text)?;
        if url.scheme() == "https" || ::web::is_local(&url) || url.origin() == self.server.origin() {
            return Ok(url);
        }
        Err(Error::OAuth(format!("{url} is not encrypted, so nothing secret is sent there")))
    }

    /// Fetches metadata, if it exists at that URL.
    async fn fetch_metadata<T: DeserializeOwned>(&self, url: &Url) -> Option<T> {
        let get = async {
            let response = http_client::client(url)?.get(url.clone()).send().await.map_err(connection_error)?;
            if !response.status().is_success() {
                return Err(Error::Http { status: response.status().as_u16(), text: String::new() });
            }
            http_client::body(response, BODY_MAX).await
        };
        let body = tokio::time::timeout(REQUEST_TIMEOUT, get).await.ok()?.ok()?;
        serde_json::from_slice(&body).ok()
    }

    async fn register(&self, authorization_server: &AuthorizationServer, redirect: &Url) -> Result<ClientInfo, Error> {
        #[derive(Deserialize)]
        struct RegistrationResponse {
            client_id: String,
            client_secret: Option<String>,
            client_secret_expires_at: Option<f64>,
        }
        let Some(endpoint) = &authorization_server.metadata.registration_endpoint else {
            return Err(Error::Registration(
                "The server does not register clients automatically: register one there, and put its `clientId` into the \
                 server's `oauth` configuration"
                    .to_owned(),
            ));
        };
        let mut client = json!({
            "client_name": "Trefoil",
            "redirect_uris": [redirect.as_str()],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        });
        if let Some(scope) = &self.config.scope {
            client["scope"] = Json::from(scope.as_str());
        }
        let endpoint = self.check_endpoint(endpoint)?;
        let post = async {
            let response = http_client::client(&endpoint)?
                .post(endpoint.clone())
                .json(&client)
                .send()
                .await
                .map_err(connection_error)?;
            if !response.status().is_success() {
                return Err(http_client::status_error(response).await);
            }
            http_client::body(response, BODY_MAX).await
        };
        let refused = |why: String| {
            Error::Registration(format!(
                "The server did not register this client ({why}); put a `clientId` into the server's `oauth` configuration"
            ))
        };
        let body = tokio::time::timeout(REQUEST_TIMEOUT, post).await.map_err(|_| Error::Timeout(REQUEST_TIMEOUT))?;
        let body = body.map_err(|error| refused(error.to_string()))?;
        let made: RegistrationResponse = serde_json::from_slice(&body).map_err(|error| refused(error.to_string()))?;
        Ok(ClientInfo {
            client_id: made.client_id,
            client_secret: made.client_secret,
            client_secret_expires_at: made.client_secret_expires_at,
        })
    }

    /// Requests tokens.
    async fn request_tokens(
        &self,
        authorization_server: &AuthorizationServer,
        client: &ClientInfo,
        form: &[(&str, &str)],
    ) -> Result<Tokens, Error> {
        let request = self.token_request(authorization_server, client, form)?;
        let post = async {
            let response = request.send().await.map_err(connection_error)?;
            if !response.status().is_success() {
                return Err(http_client::status_error(response).await);
            }
            http_client::body(response, BODY_MAX).await
        };
        let body = tokio::time::timeout(REQUEST_TIMEOUT, post).await.map_err(|_| Error::Timeout(REQUEST_TIMEOUT))??;
        let response: TokenResponse =
            serde_json::from_slice(&body).map_err(|_| Error::OAuth("the response has no access_token".to_owned()))?;
        Ok(Tokens {
            access_token: response.access_token,
            refresh_token: response.refresh_token,
            expires_at: response.expires_in.map(|seconds| now() + seconds),
            scope: response.scope,
        })
    }

    fn token_request(
        &self,
        authorization_server: &AuthorizationServer,
        client: &ClientInfo,
        form: &[(&str, &str)],
    ) -> Result<RequestBuilder, Error> {
        let endpoint = self.check_endpoint(&authorization_server.metadata.token_endpoint)?;
        let mut body = Serializer::new(String::new());
        body.extend_pairs(form);
        if let Some(resource) = &authorization_server.resource {
            body.append_pair("resource", resource);
        }
        let mut request = http_client::client(&endpoint)?.post(endpoint).header("accept", "application/json");
        let methods = &authorization_server.metadata.token_endpoint_auth_methods_supported;
        match &client.client_secret {
            // The default of the standard is basic.
            Some(secret) if methods.is_empty() || methods.iter().any(|method| method == "client_secret_basic") => {
                let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
                let pair = STANDARD.encode(format!("{}:{}", encode(&client.client_id), encode(secret)));
                request = request.header("authorization", format!("Basic {pair}"));
            }
            Some(secret) => {
                body.append_pair("client_id", &client.client_id).append_pair("client_secret", secret);
            }
            None => {
                body.append_pair("client_id", &client.client_id);
            }
        }
        Ok(request.header("content-type", "application/x-www-form-urlencoded").body(body.finish()))
    }
}

/// The well-known URLs of some metadata: with the path of the URL, then without.
fn well_known(url: &Url, what: &str) -> Vec<Url> {
    let path = url.path().trim_end_matches('/');
    let with = (!path.is_empty()).then(|| url.join(&format!("/.well-known/{what}{path}")).ok()).flatten();
    with.into_iter().chain(url.join(&format!("/.well-known/{what}")).ok()).collect()
}

fn now() -> f64 {
    api::now() as f64 / 1000.0
}

/// 256 random bits.
fn random() -> Result<String, Error> {
    let mut bytes = [0_u8; 32];
    let failed = |error: std::io::Error| Error::OAuth(format!("random numbers are unavailable: {error}"));
    getrandom(&mut bytes[..], GetRandomFlags::empty()).map_err(|error| failed(error.into()))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_known_urls() {
        let url = Url::parse("https://x.org/a/b/").unwrap();
        let urls: Vec<String> = well_known(&url, "p").iter().map(Url::to_string).collect();
        assert_eq!(urls, ["https://x.org/.well-known/p/a/b", "https://x.org/.well-known/p"]);
        assert_eq!(well_known(&Url::parse("https://x.org").unwrap(), "p").len(), 1);
    }

    #[test]
    fn secrets_are_not_sent_in_the_clear() {
        let store = CredentialStore::new(std::path::Path::new("/nowhere"));
        let auth = Auth::new("x", Url::parse("http://inner/mcp").unwrap(), McpOAuthConfig::default(), store);
        for good in ["https://x.org/t", "http://127.0.0.1:1/t", "http://inner/t"] {
            assert!(auth.check_endpoint(good).is_ok(), "{good}");
        }
        for bad in ["http://x.org/t", "ftp://x", "t"] {
            assert!(auth.check_endpoint(bad).is_err(), "{bad}");
        }
        assert_ne!(random().unwrap(), random().unwrap());
    }
}
