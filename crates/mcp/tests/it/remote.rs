//! Remote servers on loopback: both transports, odd responses, and OAuth.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::common::{Rig, failure, soon};
use api::McpStatus;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::routing::{get, post};
use serde_json::{Value, json};
use trefoil_mcp::Error;

/// A test server, and how it behaves.
#[derive(Default)]
struct Lab {
    /// Responses are sent as server-sent events.
    events: bool,
    /// Requests must carry this token.
    token: Option<String>,
    /// The valid refresh token.
    refresh: String,
    /// Whether clients can register.
    registers: bool,
    /// The valid session; any other is unknown.
    session: String,
    base: String,
    /// The methods and grant types of the requests so far.
    seen: Vec<String>,
    challenge: String,
}

type Shared = Arc<Mutex<Lab>>;

/// Starts the server; returns its base URL.
async fn serve(lab: Lab) -> (String, Shared) {
    let lab = Arc::new(Mutex::new(lab));
    let app = Router::new()
        .route("/mcp", post(message).get(|| async { StatusCode::METHOD_NOT_ALLOWED }))
        .route("/.well-known/oauth-protected-resource/mcp", get(resource))
        .route("/.well-known/oauth-authorization-server", get(description))
        .route("/register", post(register))
        .route("/authorize", get(authorize))
        .route("/token", post(token))
        .route("/page", post(|| async { "<html>not what you want</html>" }))
        .route("/huge", post(|| async { Body::from(vec![b'x'; 20 << 20]) }))
        .with_state(lab.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    lab.lock().unwrap().base.clone_from(&base);
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (base, lab)
}

fn plain(status: u16, body: impl Into<Body>) -> Response<Body> {
    Response::builder().status(status).body(body.into()).unwrap()
}

async fn message(State(lab): State<Shared>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let mut lab = lab.lock().unwrap();
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    if let Some(token) = &lab.token
        && header("authorization") != format!("Bearer {token}")
    {
        let place = format!("{}/.well-known/oauth-protected-resource/mcp", lab.base);
        let mut response = plain(401, "who are you?");
        let value = format!("Bearer resource_metadata=\"{place}\"");
        response.headers_mut().insert("www-authenticate", value.parse().unwrap());
        return response;
    }
    let request: Value = serde_json::from_slice(&body).unwrap();
    let method = request["method"].as_str().unwrap_or_default().to_owned();
    lab.seen.push(method.clone());
    let result = match method.as_str() {
        "initialize" => {
            json!({"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}})
        }
        _ if header("mcp-session-id") != lab.session => return plain(404, "no such session"),
        _ if header("mcp-protocol-version") != "2025-03-26" => return plain(400, "which version?"),
        "tools/list" => json!({"tools": [{"name": "who", "inputSchema": {"type": "object"}}]}),
        "tools/call" => json!({"content": [{"type": "text", "text": format!("header {}", header("x-key"))}]}),
        _ => return plain(202, ""),
    };
    let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result}).to_string();
    let response = Response::builder().header("mcp-session-id", lab.session.as_str());
    if lab.events {
        // An unrelated event comes first, and the stream stays open: the response is enough.
        let first = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n";
        let text = Bytes::from(format!("{first}: a comment\nevent: message\ndata: {answer}\n\n"));
        let open = futures::stream::pending::<Result<Bytes, std::io::Error>>();
        let stream = futures::StreamExt::chain(futures::stream::iter([Ok(text)]), open);
        response.header("content-type", "text/event-stream").body(Body::from_stream(stream)).unwrap()
    } else {
        response.header("content-type", "application/json").body(answer.into()).unwrap()
    }
}

async fn resource(State(lab): State<Shared>) -> String {
    let base = &lab.lock().unwrap().base;
    json!({"resource": format!("{base}/mcp"), "authorization_servers": [base], "scopes_supported": ["a", "b"]})
        .to_string()
}

async fn description(State(lab): State<Shared>) -> String {
    let lab = lab.lock().unwrap();
    let base = &lab.base;
    let mut description = json!({
        "issuer": base, "authorization_endpoint": format!("{base}/authorize"), "token_endpoint": format!("{base}/token"),
        "code_challenge_methods_supported": ["S256"],
    });
    if lab.registers {
        description["registration_endpoint"] = format!("{base}/register").into();
    }
    description.to_string()
}

async fn register(State(lab): State<Shared>, body: Bytes) -> String {
    let client: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(client["grant_types"], json!(["authorization_code", "refresh_token"]));
    lab.lock().unwrap().seen.push("register".to_owned());
    json!({"client_id": "us"}).to_string()
}

/// The user agrees immediately: redirects with the code.
async fn authorize(State(lab): State<Shared>, Query(query): Query<HashMap<String, String>>) -> Response<Body> {
    assert_eq!((query["client_id"].as_str(), query["scope"].as_str()), ("us", "a b"));
    assert!(query["resource"].ends_with("/mcp"));
    lab.lock().unwrap().challenge.clone_from(&query["code_challenge"]);
    let place = format!("{}?code=the-code&state={}", query["redirect_uri"], query["state"]);
    Response::builder().status(302).header("location", place).body(Body::empty()).unwrap()
}

async fn token(State(lab): State<Shared>, body: Bytes) -> Response<Body> {
    use base64::Engine as _;
    use sha2::Digest as _;
    let form: HashMap<String, String> = serde_urlencoded::from_bytes(&body).unwrap();
    let mut lab = lab.lock().unwrap();
    lab.seen.push(form["grant_type"].clone());
    assert_eq!(form["client_id"], "us");
    match form["grant_type"].as_str() {
        "authorization_code" if form["code"] == "the-code" => {
            let digest = sha2::Sha256::digest(form["code_verifier"].as_bytes());
            let digest = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(digest);
            assert_eq!(digest, lab.challenge, "PKCE");
            lab.token = Some("first".to_owned());
            lab.refresh = "again".to_owned();
            plain(200, json!({"access_token": "first", "refresh_token": "again", "expires_in": 3600}).to_string())
        }
        "refresh_token" if form["refresh_token"] == lab.refresh => {
            lab.refresh = "once more".to_owned();
            let token = lab.token.clone();
            plain(200, json!({"access_token": token, "refresh_token": lab.refresh, "expires_in": 3600}).to_string())
        }
        _ => plain(400, json!({"error": "invalid_grant"}).to_string()),
    }
}

fn remote(url: String) -> Rig {
    let port = peer::free_port().unwrap();
    let oauth = json!({ "callbackPort": port });
    Rig::new(json!({ "far": { "type": "remote", "url": url, "headers": {"X-Key": "k"}, "oauth": oauth } }))
}

#[tokio::test]
async fn responses_as_json_and_as_events() {
    for events in [false, true] {
        let (base, lab) = serve(Lab { events, session: "one".to_owned(), ..Lab::default() }).await;
        let rig = remote(format!("{base}/mcp"));
        rig.ready().await;
        assert_eq!(rig.status("far"), McpStatus::Connected);
        assert_eq!(soon(rig.text("far_who", json!({}))).await, "header k");
        let seen = lab.lock().unwrap().seen.clone();
        assert_eq!(seen, ["initialize", "notifications/initialized", "tools/list", "tools/call"]);
    }
}

#[tokio::test]
async fn addresses_that_are_not_mcp_servers_are_reported() {
    let (base, _lab) = serve(Lab::default()).await;
    for (path, what) in [("page", "not a JSON-RPC"), ("nothing", "HTTP 404"), ("huge", "16 MB")] {
        let rig = remote(format!("{base}/{path}"));
        rig.ready().await;
        let error = failure(rig.status("far"));
        assert!(error.contains(what), "{path}: {error}");
    }
    let rig = remote("http://127.0.0.1:1/mcp".to_owned());
    rig.ready().await;
    assert!(failure(rig.status("far")).contains("cannot be reached"));
    let rig = remote("not an address".to_owned());
    rig.ready().await;
    assert!(failure(rig.status("far")).contains("is not a URL"));
}

#[tokio::test]
async fn a_lost_session_ends_the_connection() {
    let (base, lab) = serve(Lab { session: "one".to_owned(), ..Lab::default() }).await;
    let rig = remote(format!("{base}/mcp"));
    rig.ready().await;
    lab.lock().unwrap().session = "two".to_owned();
    assert_eq!(rig.call("far_who", json!({})).await.unwrap_err(), Error::SessionLost);
    assert_eq!(soon(rig.servers.connect("far")).await.unwrap(), McpStatus::Connected);
    assert_eq!(rig.text("far_who", json!({})).await, "header k");
}

#[tokio::test]
async fn a_user_signs_in_and_tokens_are_refreshed() {
    let secret =
        || Lab { token: Some("secret".to_owned()), registers: true, session: "one".to_owned(), ..Lab::default() };
    let (base, lab) = serve(secret()).await;
    let mut rig = remote(format!("{base}/mcp"));
    rig.ready().await;
    assert_eq!(rig.status("far"), McpStatus::NeedsAuth);
    assert!(rig.servers.tools().is_empty());
    // The browser: it follows our URL, then the server's redirect. A request with the wrong state does not count.
    let browser = async |url: &str| {
        let client = reqwest::Client::builder().tls_backend_preconfigured(no_tls()).build().unwrap();
        let redirect = reqwest::Url::parse(url).unwrap();
        let back = redirect.query_pairs().find(|(name, _)| name == "redirect_uri").unwrap().1.into_owned();
        let stranger = client.get(format!("{back}?code=evil&state=guess")).send().await.unwrap();
        assert_eq!(stranger.status(), 404);
        let page = client.get(url).send().await.unwrap().text().await.unwrap();
        assert!(page.contains("signed in"), "{page}");
    };
    assert_eq!(soon(rig.servers.authenticate("far", browser)).await.unwrap(), McpStatus::Connected);
    assert_eq!(rig.text("far_who", json!({})).await, "header k");
    let file = rig.folder.path().join("data/mcp-auth.json");
    let stored: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(stored["far"]["tokens"]["accessToken"], "first");
    assert_eq!(stored["far"]["clientInfo"]["clientId"], "us");
    // The server rejects the token: it is refreshed, and nobody notices.
    lab.lock().unwrap().token = Some("second".to_owned());
    assert_eq!(soon(rig.text("far_who", json!({}))).await, "header k");
    // Neither the token nor its refresh is valid any more.
    lab.lock().unwrap().token = Some("third".to_owned());
    lab.lock().unwrap().refresh = "lost".to_owned();
    let error = soon(rig.call("far_who", json!({}))).await.unwrap_err();
    assert!(matches!(error, Error::Unauthorized(_)), "{error}");
    let count = |what: &str| lab.lock().unwrap().seen.iter().filter(|seen| *seen == what).count();
    assert_eq!((count("register"), count("authorization_code"), count("refresh_token")), (1, 1, 2));
    rig.servers.forget_auth("far").unwrap();
    let stored: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(stored, json!({}));
    assert_eq!(soon(rig.servers.connect("far")).await.unwrap(), McpStatus::NeedsAuth);
    rig.changed.close();
}

#[tokio::test]
async fn a_code_can_be_entered_and_a_wrong_one_is_refused() {
    let (base, _lab) =
        serve(Lab { token: Some("secret".to_owned()), registers: true, session: "one".to_owned(), ..Lab::default() })
            .await;
    let rig = remote(format!("{base}/mcp"));
    let begun = soon(rig.servers.begin_auth("far")).await.unwrap();
    assert!(begun.url.starts_with(&base) && begun.url.contains(&begun.state), "{begun:?}");
    let error = soon(rig.servers.finish_auth("far", "wrong")).await.unwrap_err().to_string();
    assert!(error.contains("invalid_grant"), "{error}");
    let error = soon(rig.servers.finish_auth("far", "wrong")).await.unwrap_err().to_string();
    assert!(error.contains("is in progress"), "{error}");
    let begun = soon(rig.servers.begin_auth("far")).await.unwrap();
    let client = reqwest::Client::builder().tls_backend_preconfigured(no_tls());
    let client = client.redirect(reqwest::redirect::Policy::none()).build().unwrap();
    assert_eq!(client.get(&begun.url).send().await.unwrap().status(), 302);
    assert_eq!(soon(rig.servers.finish_auth("far", "the-code")).await.unwrap(), McpStatus::Connected);
}

#[tokio::test]
async fn a_server_without_registration_says_what_to_do() {
    let (base, _lab) = serve(Lab { token: Some("secret".to_owned()), ..Lab::default() }).await;
    let rig = remote(format!("{base}/mcp"));
    rig.ready().await;
    let McpStatus::NeedsClientRegistration { error } = rig.status("far") else { panic!("{:?}", rig.status("far")) };
    assert!(error.contains("clientId"), "{error}");
}

#[tokio::test]
async fn oauth_can_be_disabled() {
    let (base, _lab) = serve(Lab { token: Some("secret".to_owned()), ..Lab::default() }).await;
    let url = format!("{base}/mcp");
    let rig = Rig::new(json!({
        "off": { "type": "remote", "url": url, "oauth": false },
        "own": { "type": "remote", "url": url, "headers": {"Authorization": "Bearer wrong"} },
    }));
    rig.ready().await;
    for name in ["off", "own"] {
        assert!(failure(rig.status(name)).contains("HTTP 401"), "{name}");
    }
    assert_eq!(rig.servers.begin_auth("off").await.unwrap_err(), Error::NoOAuth("off".to_owned()));
}

fn no_tls() -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
}
