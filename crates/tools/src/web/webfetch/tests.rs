use super::*;
use crate::tool::registry::testing::Workspace;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::Redirect;
use axum::routing::get;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

/// A server on loopback, and its address.
async fn serve() -> String {
    let html = |body: &'static str| ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], body);
    let app = Router::new()
        .route("/page", get(move || async move { html("<h1>Heading</h1><p>Hello <b>page</b></p>") }))
        .route("/json", get(|| async { ([(header::CONTENT_TYPE, "application/json")], "{\"a\": \"<b>\"}") }))
        .route(
            "/latin",
            get(|| async { ([(header::CONTENT_TYPE, "text/plain; charset=ISO-8859-1")], b"caf\xe9".as_slice()) }),
        )
        .route("/png", get(|| async { ([(header::CONTENT_TYPE, "image/png")], b"\x89PNG\r\n\x1a\nx".as_slice()) }))
        .route("/binary", get(|| async { ([(header::CONTENT_TYPE, "application/zip")], b"PK\0\0\0".as_slice()) }))
        .route("/missing", get(|| async { StatusCode::NOT_FOUND }))
        .route("/big", get(|| async { "x".repeat(fetch::MAX_BYTES + 1) }))
        .route("/long", get(|| async { "line\n".repeat(5000) }))
        .route("/hop", get(|| async { Redirect::temporary("/page") }))
        .route("/loop", get(|| async { Redirect::temporary("/loop") }))
        .route("/file", get(|| async { Redirect::temporary("file:///etc/passwd") }))
        .route("/inward", get(|| async { Redirect::temporary("http://127.0.0.2:1/secret") }))
        .route("/never", get(std::future::pending::<StatusCode>));
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

/// Stands in for the public internet: the test server and nothing else.
fn only_server(address: IpAddr) -> bool {
    address == IpAddr::V4(Ipv4Addr::LOCALHOST)
}

fn input(url: String, format: &str) -> Input {
    serde_json::from_value(json!({"url": url, "format": format})).unwrap()
}

async fn fetch(ws: &Workspace, url: String, format: &str) -> Result<Output, String> {
    fetch_with(input(url, format), ws.context(), only_server).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn formats() {
    let (ws, server) = (Workspace::new(), serve().await);
    let page = format!("{server}/page");
    let markdown = fetch(&ws, page.clone(), "markdown").await.unwrap();
    assert_eq!(markdown.title, format!("{page} (text/html)"));
    assert_eq!(
        (markdown.output.as_str(), markdown.metadata),
        ("# Heading\n\nHello **page**", object(json!({"truncated": false})))
    );
    assert_eq!(fetch(&ws, page.clone(), "text").await.unwrap().output, "Heading\nHello page");
    assert_eq!(fetch(&ws, page, "html").await.unwrap().output, "<h1>Heading</h1><p>Hello <b>page</b></p>");
    assert_eq!(fetch(&ws, format!("{server}/json"), "markdown").await.unwrap().output, "{\"a\": \"<b>\"}");
    assert_eq!(fetch(&ws, format!("{server}/latin"), "text").await.unwrap().output, "café");
    let image = fetch(&ws, format!("{server}/png"), "markdown").await.unwrap();
    assert_eq!(
        (image.output.as_str(), image.attachments[0].mime.as_str()),
        ("Image fetched successfully", "image/png")
    );
    let long = fetch(&ws, format!("{server}/long"), "text").await.unwrap();
    assert!(long.metadata["truncated"] == true && long.output.contains("5000 lines"));
}

#[tokio::test]
async fn failures_are_reported() {
    let (ws, server) = (Workspace::new(), serve().await);
    let fail = async |path: &str| fetch(&ws, format!("{server}{path}"), "text").await.unwrap_err();
    assert!(fail("/missing").await.contains("status 404"));
    assert!(fail("/binary").await.contains("is binary (application/zip, 5 bytes)"));
    assert!(fail("/big").await.contains("larger than 5 MB"));
    assert!(fail("/loop").await.contains("more than 5 times"));
    assert!(fail("/file").await.contains("scheme file is not known"));
    assert!(ws.fail("webfetch", json!({"url": "file:///etc/passwd"})).await.contains("scheme file"));
    assert!(ws.fail("webfetch", json!({"url": "no address"})).await.contains("Give a full http"));
    assert!(ws.fail("webfetch", json!({"url": "http://x", "format": "pdf"})).await.contains("Expected one of"));
}

#[tokio::test]
async fn private_addresses_are_refused_even_behind_a_redirect_or_a_name() {
    let (mut ws, server) = (Workspace::new(), serve().await);
    assert_eq!(fetch(&ws, format!("{server}/hop"), "text").await.unwrap().output, "Heading\nHello page");
    assert!(
        fetch(&ws, format!("{server}/inward"), "text").await.unwrap_err().contains("127.0.0.2 is a private address")
    );
    let by_name = input("http://localhost:1/".into(), "text");
    let error = fetch_with(by_name, ws.context(), ::web::is_public).await.unwrap_err();
    assert!(error.to_string().contains("localhost is a private address"), "{error}");
    let port = server.rsplit(':').next().unwrap().to_owned();
    for host in
        ["127.0.0.1", "localhost", "[::1]", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1"]
    {
        let error = ws.fail("webfetch", json!({"url": format!("http://{host}:{port}/page")})).await;
        assert!(error.contains("private address"), "{host}: {error}");
        assert!(error.contains("TREFOIL_ALLOW_PRIVATE_FETCH=1"), "{host}: {error}");
    }
    ws.options.allow_private_fetch = true;
    let output = ws.run("webfetch", json!({"url": format!("http://127.0.0.1:{port}/page")})).await.unwrap();
    assert_eq!(output.output, "# Heading\n\nHello **page**");
}

#[tokio::test]
async fn a_silent_server_times_out() {
    let (ws, server) = (Workspace::new(), serve().await);
    let never = Input { timeout: Some(0.0), ..input(format!("{server}/never"), "text") };
    let started = Instant::now();
    let error = fetch_with(never, ws.context(), only_server).await.unwrap_err();
    assert!(error.to_string().contains("did not answer within 1 s"), "{error}");
    assert!(started.elapsed() < DEFAULT_TIME, "its own timeout counted: {:?}", started.elapsed());
    let ctx = ws.context();
    ctx.cancel.cancel();
    let stopped = fetch_with(input(format!("{server}/never"), "text"), ctx, only_server).await;
    assert_eq!(stopped, Err(ToolError::Aborted));
}

#[tokio::test]
async fn needs_name_the_address() {
    let ws = Workspace::new();
    let needs = ws.needs("webfetch", json!({"url": "https://example.com/a", "timeout": 5})).await.unwrap();
    assert_eq!((needs[0].permission.as_str(), needs[0].patterns[0].as_str()), ("webfetch", "https://example.com/a"));
    assert_eq!(
        needs[0].metadata,
        object(json!({"url": "https://example.com/a", "format": "markdown", "timeout": 5.0}))
    );
}
