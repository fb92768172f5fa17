//! What clients write to the log.

use api::{JsonMap, strip_control};
use axum::http::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::Error;
use crate::operation::request::{Call, JsonBody, Nothing};
use crate::operation::{Data, Operation, operation};

/// The longest text of a client in one line of the log, in bytes; the rest is cut off.
const MAX_TEXT: usize = 4 << 10;

pub fn operations() -> Vec<Operation> {
    vec![operation(Method::POST, "/log", "app.log", "Write a line to the log.", write)]
}

/// A line.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Line {
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

async fn write(call: Call<Nothing, Nothing, JsonBody<Line>>) -> Result<Data<bool>, Error> {
    let JsonBody(Line { service, level, message, extra }) = call.body;
    let (service, message) = (plain(&service), plain(&message));
    let extra = extra.map(|extra| plain(&serde_json::to_string(&extra).unwrap_or_default()));
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
    Ok(Data(true))
}

/// A text on one line, without what would move a cursor, and not too long.
fn plain(text: &str) -> String {
    let text = &text[..text.floor_char_boundary(MAX_TEXT)];
    strip_control(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(plain("a\n\tb\x1b[2J\r\0c"), "a  bc");
        assert_eq!(plain(&"é".repeat(MAX_TEXT)).len(), MAX_TEXT);
    }
}
