//! `GET /`: says what runs here, for people who open the address in a browser or with `curl`.

use axum::body::Body;
use axum::http::{HeaderValue, Method, Response, header};
use schemars::{JsonSchema as _, Schema, SchemaGenerator};

use crate::error::Error;
use crate::operation::request::Request;
use crate::operation::{Operation, Reply, operation};

pub fn operations() -> Vec<Operation> {
    vec![operation(Method::GET, "/", "trefoil.home", "A page that says what this server is.", home).global()]
}

/// A page that loads nothing: no scripts, no images.
struct Page(String);

impl Reply for Page {
    const STATUS: u16 = 200;

    fn schema(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some(("text/html", String::json_schema(generator)))
    }

    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.0));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; img-src data:"));
        response
    }
}

async fn home(request: Request) -> Result<Page, Error> {
    let version = &request.state.version;
    Ok(Page(format!(
        "<!doctype html>\n\
         <html lang=\"en\">\n\
         <meta charset=\"utf-8\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>Trefoil</title>\n\
         <h1>Trefoil {version}</h1>\n\
         <p>This is the server of a coding agent. It has no web page yet. Connect a client instead:</p>\n\
         <ul>\n\
         <li>a terminal: <code>opencode attach</code> with this address</li>\n\
         <li>one task from the command line: <code>trefoil run --attach</code> with this address, then the task</li>\n\
         <li>an editor: <code>trefoil acp</code>, or <code>/acp</code> at this address</li>\n\
         <li>a program: any client of OpenCode's HTTP API. <a href=\"/doc\">/doc</a> describes every operation, and\n\
         <a href=\"/global/health\">/global/health</a> tells whether the server is healthy.</li>\n\
         </ul>\n\
         </html>\n"
    )))
}
