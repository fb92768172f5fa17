//! An MCP server's tool as a [`Tool`].

use std::sync::Arc;

use ::mcp::{CallResult, Content, Error, ResourceContents, Servers};
use api::{Json, JsonMap, SerializedJson};
use futures::future::BoxFuture;
use tools::{
    Attachment, Context, Effect, MAX_ATTACHMENT_BYTES, Need, Output, ProgressUpdate, Tool, ToolError, truncate,
};

/// The file types that models accept.
const ATTACHABLE_MIMES: [&str; 5] = ["application/pdf", "image/gif", "image/jpeg", "image/png", "image/webp"];
/// The maximum number of files in one result.
const ATTACHMENTS_MAX: usize = 20;
/// The maximum size of all files together, in base64: they are stored with the call and sent in one event.
const ATTACHMENTS_BYTES_MAX: usize = 2 * MAX_ATTACHMENT_BYTES;

/// Wraps a tool of one of these servers.
pub(super) fn tool(servers: &Arc<Servers>, tool: ::mcp::Tool) -> Arc<dyn Tool> {
    let (description, schema) = (tool.description.as_str().into(), tool.schema.clone().into());
    Arc::new(ServerTool { servers: servers.clone(), tool, description, schema })
}

struct ServerTool {
    servers: Arc<Servers>,
    tool: ::mcp::Tool,
    description: Arc<str>,
    schema: SerializedJson,
}

impl Tool for ServerTool {
    fn name(&self) -> &str {
        &self.tool.name
    }

    fn description(&self) -> Arc<str> {
        self.description.clone()
    }

    fn schema(&self) -> SerializedJson {
        self.schema.clone()
    }

    /// A server's own claim about its effects is not trusted.
    fn effect(&self) -> Effect {
        Effect::SideEffect
    }

    /// The user sees the arguments in the request.
    fn needs<'a>(&'a self, input: &'a Json, _: &'a Context) -> BoxFuture<'a, Result<Vec<Need>, ToolError>> {
        Box::pin(async { Ok(vec![Need::new(&self.tool.name, "*").with("input", input.clone())]) })
    }

    fn run<'a>(&'a self, input: Json, ctx: Context) -> BoxFuture<'a, Result<Output, ToolError>> {
        Box::pin(async move {
            let input = if input.is_object() { input } else { Json::Object(JsonMap::new()) };
            let progress = {
                let progress = ctx.progress.clone();
                move |text: String| progress.send(ProgressUpdate { title: Some(text), metadata: None })
            };
            let result = self.servers.call(&self.tool, input, &ctx.cancel, &progress).await;
            let result = result.map_err(|error| match error {
                Error::Cancelled => ToolError::Aborted,
                error => ToolError::failed(format!("The MCP server {} failed: {error}", self.tool.server)),
            })?;
            if result.is_error {
                return Err(ToolError::failed(failure(result, &ctx).await));
            }
            Ok(output(String::new(), result.into_pieces(), &ctx).await)
        })
    }
}

/// A piece of a server's result.
pub(super) enum ContentPiece {
    Text(String),
    File(Attachment),
}

trait IntoPieces {
    fn into_pieces(self) -> Vec<ContentPiece>;
}

impl IntoPieces for CallResult {
    fn into_pieces(self) -> Vec<ContentPiece> {
        if self.content.is_empty() {
            return self.structured_content.map(|raw| ContentPiece::Text(raw.get().to_owned())).into_iter().collect();
        }
        self.content.into_iter().filter_map(piece).collect()
    }
}

fn piece(content: Content) -> Option<ContentPiece> {
    match content {
        Content::Text { text } => Some(ContentPiece::Text(text)),
        Content::Image { data, mime_type } | Content::Audio { data, mime_type } => {
            Some(attachment(None, Some(mime_type), data))
        }
        Content::Resource { resource } => resource_piece(resource),
        Content::ResourceLink { name, uri } => Some(ContentPiece::Text(format!("{name}: {uri}"))),
        Content::Other => None,
    }
}

/// The pieces of a resource.
pub(super) fn pieces(contents: Vec<ResourceContents>) -> Vec<ContentPiece> {
    contents.into_iter().filter_map(resource_piece).collect()
}

fn resource_piece(resource: ResourceContents) -> Option<ContentPiece> {
    match (resource.text, resource.blob) {
        (Some(text), _) if !text.is_empty() => Some(ContentPiece::Text(text)),
        (_, Some(blob)) if !blob.is_empty() => Some(attachment(Some(resource.uri), resource.mime_type, blob)),
        _ => None,
    }
}

/// A file if models accept its type, otherwise a note about it.
fn attachment(name: Option<String>, mime: Option<String>, base64: String) -> ContentPiece {
    let mime = mime.unwrap_or_else(|| "application/octet-stream".to_owned());
    let what = name.as_deref().unwrap_or("content");
    let bytes = base64.len() / 4 * 3;
    if !ATTACHABLE_MIMES.contains(&mime.as_str()) {
        return ContentPiece::Text(format!("[{what} is left out: {bytes} bytes of {mime}, which cannot be shown]"));
    }
    if bytes > MAX_ATTACHMENT_BYTES {
        return ContentPiece::Text(format!("[{what} is left out: {bytes} bytes of {mime} are more than can be shown]"));
    }
    let url = format!("data:{mime};base64,{base64}");
    ContentPiece::File(Attachment { mime, filename: name, url })
}

/// The result of a call: its texts, truncated, and its files.
pub(super) async fn output(title: String, pieces: Vec<ContentPiece>, ctx: &Context) -> Output {
    let (mut texts, mut attachments, mut bytes) = (Vec::new(), Vec::new(), 0);
    for piece in pieces {
        match piece {
            ContentPiece::Text(text) => texts.push(text),
            ContentPiece::File(file)
                if attachments.len() < ATTACHMENTS_MAX && bytes + file.url.len() <= ATTACHMENTS_BYTES_MAX =>
            {
                bytes += file.url.len();
                attachments.push(file);
            }
            ContentPiece::File(_) => texts.push(format!(
                "[A file is left out: there are more than {ATTACHMENTS_MAX}, or they have more than {} MB together]",
                ATTACHMENTS_BYTES_MAX >> 20
            )),
        }
    }
    let text = truncate(texts.join("\n\n"), &ctx.options).await;
    let mut metadata = JsonMap::from_iter([("truncated".to_owned(), text.path.is_some().into())]);
    if let Some(path) = text.path {
        metadata.insert("outputPath".to_owned(), path.to_string_lossy().into());
    }
    Output { title, output: text.text, metadata, attachments, changes: Vec::new() }
}

async fn failure(result: CallResult, ctx: &Context) -> String {
    let texts = result.into_pieces().into_iter().filter_map(|piece| match piece {
        ContentPiece::Text(text) if !text.trim().is_empty() => Some(text),
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n\n");
    if text.is_empty() { "The MCP tool returned an error".to_owned() } else { truncate(text, &ctx.options).await.text }
}
