//! The `webfetch` tool: fetches a web page.

use std::time::Duration;

use ::web::{AddressFilter, AddressGuard};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::files::attachment;
use crate::files::write::object;
use crate::tool::context::Context;
use crate::tool::truncate::truncate;
use crate::tool::{Effect, Need, Output, ToolError, TypedTool};

mod fetch;
pub(crate) mod html;

use fetch::Page;

/// The default and maximum timeout of a fetch.
const DEFAULT_TIME: Duration = Duration::from_secs(30);
const MAX_TIME: Duration = Duration::from_secs(120);

/// Fetches a page from the web and returns its text.
///
/// Only for reading: `http` and `https`, up to 5 MB, public addresses. Long pages are shortened in the middle, and the
/// full text is saved to a file whose path you get.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Input {
    /// The full address.
    url: String,
    /// What a web page becomes: `markdown` (default), plain `text`, or `html` as it is.
    #[serde(default)]
    format: Format,
    /// How long it may take, in seconds; 30 if left out, at most 120.
    timeout: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Format {
    Text,
    #[default]
    Markdown,
    Html,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Markdown => "markdown",
            Self::Html => "html",
        }
    }

    /// Some servers offer markdown or plain text.
    fn accept(self) -> &'static str {
        match self {
            Self::Text => "text/plain;q=1.0, text/markdown;q=0.9, text/html;q=0.8, */*;q=0.1",
            Self::Markdown => "text/markdown;q=1.0, text/html;q=0.9, text/plain;q=0.8, */*;q=0.1",
            Self::Html => "text/html;q=1.0, application/xhtml+xml;q=0.9, */*;q=0.1",
        }
    }
}

pub(crate) struct WebFetch;

impl TypedTool for WebFetch {
    type Input = Input;
    const NAME: &'static str = "webfetch";
    const EFFECT: Effect = Effect::ReadOnly;

    async fn needs(&self, input: &Input, _: &Context) -> Result<Vec<Need>, ToolError> {
        fetch::parse(&input.url).map_err(|error| ToolError::failed(error.to_string()))?;
        let mut need =
            Need::new("webfetch", input.url.clone()).with("url", input.url.clone()).with("format", input.format.name());
        if let Some(timeout) = input.timeout {
            need = need.with("timeout", timeout);
        }
        Ok(vec![need])
    }

    async fn run(&self, input: Input, ctx: Context) -> Result<Output, ToolError> {
        let allowed: AddressFilter = if ctx.options.allow_private_fetch { |_| true } else { ::web::is_public };
        fetch_with(input, ctx, allowed).await
    }
}

async fn fetch_with(input: Input, ctx: Context, allowed: AddressFilter) -> Result<Output, ToolError> {
    let url = fetch::parse(&input.url).map_err(|error| ToolError::failed(error.to_string()))?;
    let seconds = input.timeout.map_or(DEFAULT_TIME.as_secs_f64(), |t| t.clamp(1.0, MAX_TIME.as_secs_f64()));
    let time = Duration::try_from_secs_f64(seconds).unwrap_or(DEFAULT_TIME);
    let guard = AddressGuard::new(allowed);
    let page = fetch::get(url, input.format.accept(), &ctx.options.user_agent, &guard);
    let page = tokio::select! {
        () = ctx.cancel.cancelled() => return Err(ToolError::Aborted),
        page = tokio::time::timeout(time, page) => page,
    };
    let page = match page {
        Ok(page) => page.map_err(|error| ToolError::failed(error.to_string()))?,
        Err(_) => return Err(ToolError::failed(format!("{} did not answer within {seconds} s.", input.url))),
    };
    let title = format!("{} ({})", input.url, page.mime);
    if let Some(mime) = attachment::sniff(&page.body) {
        return attached(title, mime, &page);
    }
    let text = text_of(page, input.format, &input.url).await?;
    let cut = truncate(text, &ctx.options).await;
    let metadata = object(json!({"truncated": cut.path.is_some()}));
    Ok(Output { title, output: cut.text, metadata, ..Output::default() })
}

fn attached(title: String, mime: &str, page: &Page) -> Result<Output, ToolError> {
    let what = if mime == "application/pdf" { "PDF" } else { "Image" };
    Ok(Output {
        title,
        output: format!("{what} fetched successfully"),
        metadata: object(json!({"truncated": false})),
        attachments: vec![attachment::attach(mime, None, &page.body)],
        ..Output::default()
    })
}

/// The page in the requested format. Only HTML is converted; other text is returned as it is.
async fn text_of(page: Page, format: Format, url: &str) -> Result<String, ToolError> {
    if attachment::is_binary(&page.body) {
        let (mime, size) = (page.mime, page.body.len());
        return Err(ToolError::failed(format!("{url} is binary ({mime}, {size} bytes) and cannot be shown as text.")));
    }
    let text = decode(&page.body, page.charset.as_deref());
    if !matches!(page.mime.as_str(), "text/html" | "application/xhtml+xml") || format == Format::Html {
        return Ok(text);
    }
    let work = tokio::task::spawn_blocking(move || match format {
        Format::Markdown => html::to_markdown(&text),
        _ => html::to_text(&text),
    });
    work.await.map_err(|error| ToolError::failed(format!("{url} could not be converted: {error}. Use format html.")))
}

/// Decodes UTF-8, or Latin 1 if the page says so; other encodings show replacement characters.
fn decode(body: &[u8], charset: Option<&str>) -> String {
    match charset {
        Some("iso-8859-1" | "latin1" | "windows-1252") if std::str::from_utf8(body).is_err() => {
            body.iter().map(|&byte| char::from(byte)).collect()
        }
        _ => String::from_utf8_lossy(body).trim_start_matches('\u{feff}').to_owned(),
    }
}

#[cfg(test)]
mod tests;
