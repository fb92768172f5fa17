//! Waits for the browser that brings the code of a human who signed in.

use std::collections::HashMap;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use super::Flow;
use crate::error::Error;
use crate::rpc::beginning;

/// How long a human may take.
const HUMAN: Duration = Duration::from_secs(300);
/// How long a browser may take to send its request, and how long that may be.
const REQUEST: Duration = Duration::from_secs(5);
const REQUEST_MAX: usize = 16 << 10;

/// The place where a code is awaited.
pub(crate) struct Listener {
    listener: TcpListener,
    path: String,
    state: String,
}

impl Listener {
    /// Listens where the flow's redirect leads.
    pub(crate) async fn open(flow: &Flow) -> Result<Self, Error> {
        let redirect = &flow.redirect;
        if !::web::is_local(redirect) || redirect.scheme() != "http" {
            return Err(Error::OAuth(format!(
                "the code goes to {redirect}, which is not here; hand it over by yourself"
            )));
        }
        let port = redirect.port_or_known_default().unwrap_or(80);
        let listener = TcpListener::bind(("127.0.0.1", port)).await.map_err(|error| {
            Error::OAuth(format!(
                "port {port} is needed for the browser's answer: {error}; `oauth.callbackPort` names another"
            ))
        })?;
        Ok(Self { listener, path: redirect.path().to_owned(), state: flow.state.clone() })
    }

    /// Waits for the code.
    pub(crate) async fn code(self) -> Result<String, Error> {
        let wait = async {
            loop {
                let Ok((stream, _)) = self.listener.accept().await else { continue };
                if let Ok(Some(answer)) = tokio::time::timeout(REQUEST, self.serve(stream)).await {
                    return answer;
                }
            }
        };
        let late = || Error::OAuth(format!("nobody signed in within {} minutes", HUMAN.as_secs() / 60));
        tokio::time::timeout(HUMAN, wait).await.map_err(|_| late())?
    }

    /// One request of a browser, or of anybody else on this machine: only what knows the state counts.
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
            Some(Err(Error::OAuth(beginning(why.map_or("the browser brought no code", String::as_str), 300))))
        };
        let (status, page) = match &answer {
            Some(Ok(_)) => ("200 OK", "You are signed in. This page can be closed."),
            Some(Err(_)) => ("200 OK", "Signing in did not work. This page can be closed."),
            None => ("404 Not Found", "There is nothing here."),
        };
        let length = page.len();
        let head = "content-type: text/plain; charset=utf-8\r\nconnection: close";
        let reply = format!("HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{page}");
        // The code counts, whether or not the browser hears so.
        let _ = stream.write_all(reply.as_bytes()).await;
        let _ = stream.shutdown().await;
        answer
    }
}
