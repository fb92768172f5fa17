//! OAuth as MCP servers want it: discovery, registration, a code with PKCE, tokens that are renewed.

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

pub(crate) use callback::Listener;
pub(crate) use store::Store;

use crate::error::{Challenge, Error};
use crate::http_client::{self, lost};
use crate::lock;
use store::{ClientInfo, Entry, Tokens};

/// Where a browser brings the code, unless the configuration says otherwise.
const PORT: u16 = 19876;
const PATH: &str = "/mcp/oauth/callback";
/// How long one request may take, and how large its answer may be.
const WAIT: Duration = Duration::from_secs(30);
const BODY_MAX: usize = 1 << 20;
/// A token is renewed so many seconds before its end.
const EARLY: f64 = 30.0;

/// How one server is signed in at.
pub(crate) struct Auth {
    name: String,
    server: Url,
    config: McpOAuthConfig,
    store: Store,
    /// Where the server's tokens come from, once that is known.
    known: Mutex<Option<Source>>,
    /// Held while tokens are renewed: a refresh token often counts only once.
    renewing: AsyncMutex<()>,
}

/// Where tokens come from.
#[derive(Debug, Clone)]
struct Source {
    endpoints: Endpoints,
    /// What the tokens are for, if the server says so.
    resource: Option<String>,
    scopes: Vec<String>,
}

/// What an authorization server says about itself.
#[derive(Debug, Clone, Deserialize)]
struct Endpoints {
    authorization_endpoint: String,
    token_endpoint: String,
    #[serde(default)]
    registration_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    code_challenge_methods_supported: Option<Vec<String>>,
}

/// What a server says about how it is protected.
#[derive(Debug, Deserialize)]
struct Protected {
    #[serde(default)]
    resource: Option<String>,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    refresh_token: Option<String>,
    expires_in: Option<f64>,
    scope: Option<String>,
}

/// A human who is about to sign in.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    /// Where.
    pub url: Url,
    /// What comes back with the code.
    pub state: String,
    /// Where the code comes back to.
    pub redirect: Url,
    verifier: String,
    client: ClientInfo,
    source: Source,
}

impl Auth {
    pub(crate) fn new(name: &str, server: Url, config: McpOAuthConfig, store: Store) -> Self {
        let (known, renewing) = Default::default();
        Self { name: name.to_owned(), server, config, store, known, renewing }
    }

    /// The token to send, if there is one.
    pub(crate) async fn token(&self) -> Option<String> {
        let tokens = self.entry().tokens?;
        if tokens.expires_at.is_some_and(|end| end < now() + EARLY) && tokens.refresh_token.is_some() {
            return self.renew(&tokens.access_token).await.or(Some(tokens.access_token));
        }
        Some(tokens.access_token)
    }

    /// Another token in place of one that is not taken any more.
    pub(crate) async fn renew(&self, old: &str) -> Option<String> {
        let _turn = self.renewing.lock().await;
        let mut entry = self.entry();
        let tokens = entry.tokens.clone()?;
        if tokens.access_token != old {
            // Somebody else was faster.
            return Some(tokens.access_token);
        }
        let refresh = tokens.refresh_token.clone()?;
        let renew = async {
            let client = self.client_of(&entry).ok_or_else(|| Error::OAuth("the client is not registered".into()))?;
            let source = self.source(&Challenge::default()).await?;
            let form = [("grant_type", "refresh_token"), ("refresh_token", refresh.as_str())];
            self.grant(&source, &client, &form).await
        };
        match renew.await {
            Ok(mut fresh) => {
                fresh.refresh_token = fresh.refresh_token.or(Some(refresh));
                let token = fresh.access_token.clone();
                entry.tokens = Some(fresh);
                let stored = self.store.put(&self.name, Some(&entry));
                stored.inspect_err(|error| tracing::warn!(%error, "a renewed token is not kept")).ok();
                Some(token)
            }
            Err(error) => {
                tracing::info!(server = self.name, %error, "the token could not be renewed");
                None
            }
        }
    }

    /// Begins to sign in.
    pub(crate) async fn begin(&self, challenge: &Challenge) -> Result<Flow, Error> {
        *lock(&self.known) = None;
        let source = self.source(challenge).await?;
        if source
            .endpoints
            .code_challenge_methods_supported
            .as_ref()
            .is_some_and(|all| !all.iter().any(|m| m == "S256"))
        {
            return Err(Error::OAuth("the authorization server does not support PKCE with S256".to_owned()));
        }
        let redirect = self.redirect()?;
        let mut entry = self.entry();
        let client = match self.client_of(&entry) {
            Some(client) => client,
            None => {
                let client = self.register(&source, &redirect).await?;
                entry.client_info = Some(client.clone());
                entry.server_url = Some(self.server.to_string());
                self.store.put(&self.name, Some(&entry))?;
                client
            }
        };
        let (verifier, state) = (random()?, random()?);
        let mut url = self.endpoint(&source.endpoints.authorization_endpoint)?;
        let scope = self.config.scope.clone().or_else(|| challenge.scope.clone());
        let scope = scope.or_else(|| Some(source.scopes.join(" ")).filter(|scope| !scope.is_empty()));
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.client_id)
            .append_pair("code_challenge", &URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes())))
            .append_pair("code_challenge_method", "S256")
            .append_pair("redirect_uri", redirect.as_str())
            .append_pair("state", &state)
            .extend_pairs(scope.iter().map(|scope| ("scope", scope)))
            .extend_pairs(source.resource.iter().map(|resource| ("resource", resource)));
        Ok(Flow { url, state, redirect, verifier, client, source })
    }

    /// Finishes with the code that the browser brought.
    pub(crate) async fn finish(&self, flow: &Flow, code: &str) -> Result<(), Error> {
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("code_verifier", flow.verifier.as_str()),
            ("redirect_uri", flow.redirect.as_str()),
        ];
        let tokens = self.grant(&flow.source, &flow.client, &form).await?;
        let server_url = Some(self.server.to_string());
        let entry = Entry { tokens: Some(tokens), server_url, ..self.entry() };
        self.store.put(&self.name, Some(&entry))
    }

    /// Forgets everything.
    pub(crate) fn forget(&self) -> Result<(), Error> {
        self.store.put(&self.name, None)
    }

    fn entry(&self) -> Entry {
        self.store.get(&self.name, self.server.as_str())
    }

    /// The configured client, or the registered one while its secret is good.
    fn client_of(&self, entry: &Entry) -> Option<ClientInfo> {
        if let Some(id) = &self.config.client_id {
            let client_secret = self.config.client_secret.clone();
            return Some(ClientInfo { client_id: id.clone(), client_secret, client_secret_expires_at: None });
        }
        let good = |client: &ClientInfo| client.client_secret_expires_at.is_none_or(|end| end <= 0.0 || end > now());
        entry.client_info.clone().filter(good)
    }

    fn redirect(&self) -> Result<Url, Error> {
        let port = self.config.callback_port.unwrap_or(PORT);
        let text = self.config.redirect_uri.clone().unwrap_or_else(|| format!("http://127.0.0.1:{port}{PATH}"));
        http_client::address(&text)
    }

    /// Asks where tokens come from.
    async fn source(&self, challenge: &Challenge) -> Result<Source, Error> {
        if let Some(known) = lock(&self.known).clone() {
            return Ok(known);
        }
        let mut places: Vec<Url> = challenge.metadata.iter().filter_map(|url| self.endpoint(url).ok()).collect();
        places.extend(well_known(&self.server, "oauth-protected-resource"));
        let mut protected = None;
        for place in places {
            protected = self.fetch::<Protected>(&place).await;
            if protected.is_some() {
                break;
            }
        }
        let named = protected.as_ref().and_then(|protected| protected.authorization_servers.first());
        let issuer = match named {
            Some(named) => self.endpoint(named)?,
            None => self.server.join("/").map_err(|error| Error::OAuth(error.to_string()))?,
        };
        let mut places = well_known(&issuer, "oauth-authorization-server");
        places.extend(well_known(&issuer, "openid-configuration"));
        if issuer.path() != "/" {
            let below = format!("{}/.well-known/openid-configuration", issuer.as_str().trim_end_matches('/'));
            places.extend(Url::parse(&below));
        }
        let mut endpoints = None;
        for place in places {
            endpoints = self.fetch::<Endpoints>(&place).await;
            if endpoints.is_some() {
                break;
            }
        }
        if endpoints.is_none() && named.is_some() {
            return Err(Error::OAuth(format!("the authorization server {issuer} does not describe itself")));
        }
        // Servers of before 2025-06 have no description: then the places are agreed on.
        let at = |path: &str| issuer.join(path).map(|url| url.to_string()).unwrap_or_default();
        let endpoints = endpoints.unwrap_or_else(|| Endpoints {
            authorization_endpoint: at("/authorize"),
            token_endpoint: at("/token"),
            registration_endpoint: Some(at("/register")),
            token_endpoint_auth_methods_supported: Vec::new(),
            code_challenge_methods_supported: None,
        });
        let resource = protected.as_ref().map(|p| p.resource.clone().unwrap_or_else(|| self.server.to_string()));
        let source = Source { endpoints, resource, scopes: protected.map(|p| p.scopes_supported).unwrap_or_default() };
        *lock(&self.known) = Some(source.clone());
        Ok(source)
    }

    /// An address that a server named: encrypted, or on this machine, or on the very server that was configured so.
    fn endpoint(&self, text: &str) -> Result<Url, Error> {
        let url = http_client::address(text)?;
        if url.scheme() == "https" || ::web::is_local(&url) || url.origin() == self.server.origin() {
            return Ok(url);
        }
        Err(Error::OAuth(format!("{url} is not encrypted, so nothing secret is sent there")))
    }

    /// A description, if there is one at that place.
    async fn fetch<T: DeserializeOwned>(&self, url: &Url) -> Option<T> {
        let get = async {
            let response = http_client::client(url)?.get(url.clone()).send().await.map_err(lost)?;
            if !response.status().is_success() {
                return Err(Error::Http { status: response.status().as_u16(), text: String::new() });
            }
            http_client::body(response, BODY_MAX).await
        };
        let body = tokio::time::timeout(WAIT, get).await.ok()?.ok()?;
        serde_json::from_slice(&body).ok()
    }

    async fn register(&self, source: &Source, redirect: &Url) -> Result<ClientInfo, Error> {
        #[derive(Deserialize)]
        struct Registered {
            client_id: String,
            client_secret: Option<String>,
            client_secret_expires_at: Option<f64>,
        }
        let Some(endpoint) = &source.endpoints.registration_endpoint else {
            return Err(Error::Registration(
                "The server does not register clients by itself: register one there, and put its `clientId` into the \
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
        let endpoint = self.endpoint(endpoint)?;
        let post = async {
            let response =
                http_client::client(&endpoint)?.post(endpoint.clone()).json(&client).send().await.map_err(lost)?;
            if !response.status().is_success() {
                return Err(http_client::refused(response).await);
            }
            http_client::body(response, BODY_MAX).await
        };
        let refused = |why: String| {
            Error::Registration(format!(
                "The server did not register this client ({why}); put a `clientId` into the server's `oauth` configuration"
            ))
        };
        let body = tokio::time::timeout(WAIT, post).await.map_err(|_| Error::Timeout(WAIT))?;
        let body = body.map_err(|error| refused(error.to_string()))?;
        let made: Registered = serde_json::from_slice(&body).map_err(|error| refused(error.to_string()))?;
        Ok(ClientInfo {
            client_id: made.client_id,
            client_secret: made.client_secret,
            client_secret_expires_at: made.client_secret_expires_at,
        })
    }

    /// Asks for tokens.
    async fn grant(&self, source: &Source, client: &ClientInfo, form: &[(&str, &str)]) -> Result<Tokens, Error> {
        let request = self.grant_request(source, client, form)?;
        let post = async {
            let response = request.send().await.map_err(lost)?;
            if !response.status().is_success() {
                return Err(http_client::refused(response).await);
            }
            http_client::body(response, BODY_MAX).await
        };
        let body = tokio::time::timeout(WAIT, post).await.map_err(|_| Error::Timeout(WAIT))??;
        let granted: Granted =
            serde_json::from_slice(&body).map_err(|_| Error::OAuth("the answer has no access_token".to_owned()))?;
        Ok(Tokens {
            access_token: granted.access_token,
            refresh_token: granted.refresh_token,
            expires_at: granted.expires_in.map(|seconds| now() + seconds),
            scope: granted.scope,
        })
    }

    fn grant_request(
        &self,
        source: &Source,
        client: &ClientInfo,
        form: &[(&str, &str)],
    ) -> Result<RequestBuilder, Error> {
        let endpoint = self.endpoint(&source.endpoints.token_endpoint)?;
        let mut body = Serializer::new(String::new());
        body.extend_pairs(form);
        if let Some(resource) = &source.resource {
            body.append_pair("resource", resource);
        }
        let mut request = http_client::client(&endpoint)?.post(endpoint).header("accept", "application/json");
        let methods = &source.endpoints.token_endpoint_auth_methods_supported;
        match &client.client_secret {
            // Without a word about it, the standard says basic.
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

/// The places where something is described: with the path of the address, then without.
fn well_known(url: &Url, what: &str) -> Vec<Url> {
    let path = url.path().trim_end_matches('/');
    let with = (!path.is_empty()).then(|| url.join(&format!("/.well-known/{what}{path}")).ok()).flatten();
    with.into_iter().chain(url.join(&format!("/.well-known/{what}")).ok()).collect()
}

fn now() -> f64 {
    api::now() as f64 / 1000.0
}

/// 256 bits that nobody can guess.
fn random() -> Result<String, Error> {
    let mut bytes = [0_u8; 32];
    let failed = |error: std::io::Error| Error::OAuth(format!("there are no random numbers: {error}"));
    getrandom(&mut bytes[..], GetRandomFlags::empty()).map_err(|error| failed(error.into()))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_descriptions() {
        let url = Url::parse("https://x.org/a/b/").unwrap();
        let places: Vec<String> = well_known(&url, "p").iter().map(Url::to_string).collect();
        assert_eq!(places, ["https://x.org/.well-known/p/a/b", "https://x.org/.well-known/p"]);
        assert_eq!(well_known(&Url::parse("https://x.org").unwrap(), "p").len(), 1);
    }

    #[test]
    fn secrets_are_not_sent_in_the_clear() {
        let store = Store::new(std::path::Path::new("/nowhere"));
        let auth = Auth::new("x", Url::parse("http://inner/mcp").unwrap(), McpOAuthConfig::default(), store);
        for good in ["https://x.org/t", "http://127.0.0.1:1/t", "http://inner/t"] {
            assert!(auth.endpoint(good).is_ok(), "{good}");
        }
        for bad in ["http://x.org/t", "ftp://x", "t"] {
            assert!(auth.endpoint(bad).is_err(), "{bad}");
        }
        assert_ne!(random().unwrap(), random().unwrap());
    }
}
