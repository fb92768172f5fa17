//! Waits for the browser to deliver the authorization code.

use std::collections::HashMap;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use super::AuthFlow;
use crate::error::Error;
use crate::truncated;

/// How long the user may take.
const USER_TIMEOUT: Duration = Duration::from_secs(300);
/// How long a browser may take to send its request, and the largest request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_MAX: usize = 16 << 10;

/// Listens for the redirect with the code.
pub(crate) struct CallbackListener {
    listener: TcpListener,
    path: String,
    state: String,
}

impl CallbackListener {
    /// Listens at the flow's redirect URL.
    pub(crate) async fn open(flow: &AuthFlow) -> Result<Self, Error> {
        let redirect = &flow.redirect;
        if !::web::is_local(redirect) || redirect.scheme() != "http" {
            return Err(Error::OAuth(format!(
                "the code goes to {redirect}, which is not on this machine; enter it yourself"
            )));
        }
        let port = redirect.port_or_known_default().unwrap_or(80);
        let listener = TcpListener::bind(("127.0.0.1", port)).await.map_err(|error| {
            Error::OAuth(format!(
                "port {port} is needed for the browser's redirect: {error}; set `oauth.callbackPort` to use another"
            ))
        })?;
        Ok(Self { listener, path: redirect.path().to_owned(), state: flow.state.clone() })
    }

    /// Waits for the code.
    pub(crate) async fn wait_for_code(self) -> Result<String, Error> {
        let wait = async {
            loop {
                let Ok((stream, _)) = self.listener.accept().await else { continue };
                if let Ok(Some(answer)) = tokio::time::timeout(REQUEST_TIMEOUT, self.serve(stream)).await {
                    return answer;
                }
            }
        };
        let late = || Error::OAuth(format!("nobody signed in within {} minutes", USER_TIMEOUT.as_secs() / 60));
        tokio::time::timeout(USER_TIMEOUT, wait).await.map_err(|_| late())?
    }

    /// Serves one request, from the browser or anything else on this machine: only one that knows the state counts.
    async fn serve(&self, mut stream: TcpStream) -> Option<Result<String, Error>> {
        let mut request = Vec::new();
        let mut buffer = [0; 2048];
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            let count = stream.read(&mut buffer).await.ok()?;
            request.extend_from_slice(&buffer[..count]);
            if count == 0 || request.len() > REQUEST_MAX {
                return None;
            }
        }
        let text = String::from_utf8_lossy(&request);
        let target = text.strip_prefix("GET ")?.split(' ').next()?;
        let url = Url::parse("http://127.0.0.1").ok()?.join(target).ok()?;
        let query: HashMap<_, _> = url.query_pairs().into_owned().collect();
        let answer = if url.path() != self.path || query.get("state") != Some(&self.state) {
            None
        } else if let Some(code) = query.get("code") {
            Some(Ok(code.clone()))
        } else {
            let why = query.get("error_description").or_else(|| query.get("error"));
            Some(Err(Error::OAuth(truncated(why.map_or("the browser delivered no code", String::as_str), 300))))
        };
        let (status, page) = match &answer {
            Some(Ok(_)) => ("200 OK", "You are signed in. You can close this page."),
            Some(Err(_)) => ("200 OK", "Signing in failed. You can close this page."),
            None => ("404 Not Found", "There is nothing here."),
        };
        let length = page.len();
        let head = "content-type: text/plain; charset=utf-8\r\nconnection: close";
        let reply = format!("HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{page}");
        // The code counts even if the browser never gets the page.
        let _ = stream.write_all(reply.as_bytes()).await;
        let _ = stream.shutdown().await;
        answer
    }
}
