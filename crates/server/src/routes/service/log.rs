//! Log lines from clients.

use api::{JsonMap, strip_control};
use axum::http::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::Error;
use crate::operation::request::{JsonBody, NoParams, Request};
use crate::operation::{JsonReply, Operation, operation};

/// The longest text in a client's log line, in bytes; the rest is cut off.
const MAX_TEXT_BYTES: usize = 4 << 10;

pub fn operations() -> Vec<Operation> {
    vec![operation(Method::POST, "/log", "app.log", "Write a line to the log.", write)]
}

/// A log line.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct LogLine {
    service: String,
    level: Level,
    message: String,
    extra: Option<JsonMap>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Level {
    Debug,
    Info,
    Error,
    Warn,
}

async fn write(request: Request<NoParams, NoParams, JsonBody<LogLine>>) -> Result<JsonReply<bool>, Error> {
    let JsonBody(LogLine { service, level, message, extra }) = request.body;
    let (service, message) = (sanitize(&service), sanitize(&message));
    let extra = extra.map(|extra| sanitize(&serde_json::to_string(&extra).unwrap_or_default()));
    let extra = extra.unwrap_or_default();
    macro_rules! log {
        ($level:ident) => {
            tracing::$level!(target: "client", service, extra, "{message}")
        };
    }
    match level {
        Level::Debug => log!(debug),
        Level::Info => log!(info),
        Level::Warn => log!(warn),
        Level::Error => log!(error),
    }
    Ok(JsonReply(true))
}

/// The text on one line, without control sequences, and not too long.
fn sanitize(text: &str) -> String {
    let text = &text[..text.floor_char_boundary(MAX_TEXT_BYTES)];
    strip_control(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_on_one_line() {
        assert_eq!(sanitize("a\n\tb\x1b[2J\r\0c"), "a  bc");
        assert_eq!(sanitize(&"é".repeat(MAX_TEXT_BYTES)).len(), MAX_TEXT_BYTES);
    }
}
