//! Renders tool calls for the client. Pure.

use std::path::{Path, PathBuf};

use agent_client_protocol_schema::v1::{
    BlobResourceContents, Content, ContentBlock, Diff, EmbeddedResource, EmbeddedResourceResource, ImageContent,
    ResourceLink, Terminal, TextContent, TextResourceContents, ToolCall, ToolCallContent, ToolCallLocation,
    ToolCallStatus, ToolCallUpdateFields, ToolKind,
};
use api::{Json, JsonMap, Part, ToolPart, ToolState};
use base64::Engine as _;
use serde::Serialize;
use serde_json::json;

use super::unified_diff;
use crate::editor::{FileChange, PendingChanges};
use crate::size;

/// The most files of one call whose changes are shown.
const MAX_DIFFS: usize = 50;

/// The ACP kind of a tool.
pub fn kind(tool: &str) -> ToolKind {
    match tool {
        "bash" => ToolKind::Execute,
        "webfetch" => ToolKind::Fetch,
        "edit" | "write" | "apply_patch" => ToolKind::Edit,
        "grep" | "glob" | "websearch" => ToolKind::Search,
        "read" | "list" | "read_mcp_resource" => ToolKind::Read,
        "task" => ToolKind::Think,
        _ => mcp_kind(tool),
    }
}

/// Guesses the kind of an MCP server's tool from its name. All tools of Context7 look something up.
fn mcp_kind(tool: &str) -> ToolKind {
    let tool = tool.to_ascii_lowercase();
    let mut words = tool.split(|char: char| !char.is_ascii_alphanumeric());
    if words.next() == Some("context7") || words.any(|word| ["search", "lookup"].contains(&word)) {
        ToolKind::Search
    } else {
        ToolKind::Other
    }
}

/// A `tool_call` update. The schema types omit a default status or kind, but clients look for them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCallNotice<'a> {
    session_update: &'static str,
    #[serde(flatten)]
    call: &'a ToolCall,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<ToolCallStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<ToolKind>,
}

impl<'a> ToolCallNotice<'a> {
    /// The update that announces a call.
    pub fn new(call: &'a ToolCall) -> Self {
        Self {
            session_update: "tool_call",
            call,
            status: Some(call.status).filter(|status| *status == ToolCallStatus::default()),
            kind: Some(call.kind).filter(|kind| *kind == ToolKind::default()),
        }
    }
}

/// A tool call to render.
pub struct ToolCallView<'a> {
    /// The call.
    pub part: &'a ToolPart,
    /// The session's directory.
    pub directory: &'a Path,
    /// Whether it happens now: only then do the editor's terminals still exist.
    pub live: bool,
}

impl ToolCallView<'_> {
    /// The first message about a call.
    pub fn announcement(&self) -> ToolCall {
        ToolCall::new(self.part.head.id.to_string(), self.title())
            .name(self.part.tool.clone())
            .kind(kind(&self.part.tool))
            .status(ToolCallStatus::Pending)
            .locations(self.locations())
            .raw_input(self.raw_input())
    }

    /// The state of a call. It is complete, so that a newer update can replace an older one.
    pub fn update_fields(&self, changes: &PendingChanges) -> ToolCallUpdateFields {
        let fields = ToolCallUpdateFields::new()
            .kind(kind(&self.part.tool))
            .title(self.title())
            .locations(self.locations())
            .raw_input(self.raw_input());
        match &self.part.state {
            ToolState::Pending(_) => fields.status(ToolCallStatus::Pending),
            ToolState::Running(running) => {
                let content = running.metadata.as_ref().map(|metadata| self.progress(metadata)).unwrap_or_default();
                let fields = fields.status(ToolCallStatus::InProgress);
                if content.is_empty() { fields } else { fields.content(content) }
            }
            ToolState::Completed(done) => {
                let mut raw = json!({"output": done.output, "metadata": done.metadata});
                let mut content = self.result(&done.output, &done.metadata, changes);
                for file in done.attachments.iter().flatten() {
                    content.extend(attachment(file).map(|block| ToolCallContent::Content(Content::new(block))));
                    raw["attachments"] = json!(done.attachments.as_ref().map_or(0, Vec::len));
                }
                fields.status(ToolCallStatus::Completed).content(content).raw_output(size::fit(raw, size::MAX_RAW))
            }
            ToolState::Error(error) => {
                let mut raw = json!({"error": error.error});
                if let Some(metadata) = &error.metadata {
                    raw["metadata"] = json!(metadata);
                }
                let content = vec![text_content(&error.error)];
                fields.status(ToolCallStatus::Failed).content(content).raw_output(size::fit(raw, size::MAX_RAW))
            }
        }
    }

    /// The title.
    pub fn title(&self) -> String {
        let input = self.part.state.input();
        let named = |key: &str| input[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let title = match &self.part.state {
            ToolState::Completed(done) => Some(done.title.clone()).filter(|title| !title.is_empty()),
            ToolState::Running(running) => running.title.clone(),
            ToolState::Pending(_) | ToolState::Error(_) => None,
        };
        let title = title.or_else(|| match self.part.tool.as_str() {
            "bash" => named("command"),
            "task" => named("description"),
            _ => None,
        });
        size::truncate(&title.unwrap_or_else(|| self.part.tool.clone()), 4 << 10)
    }

    /// The files that the call is about.
    pub fn locations(&self) -> Vec<ToolCallLocation> {
        let input = self.part.state.input();
        match self.part.tool.as_str() {
            "bash" => vec![ToolCallLocation::new(self.path(input["workdir"].as_str().unwrap_or_default()))],
            "read" | "edit" | "write" => {
                let line = input["offset"].as_u64().and_then(|line| u32::try_from(line).ok());
                let location = |path: &str| ToolCallLocation::new(self.path(path)).line(line);
                input["filePath"].as_str().map(location).into_iter().collect()
            }
            "grep" | "glob" | "list" => {
                input["path"].as_str().map(|path| ToolCallLocation::new(self.path(path))).into_iter().collect()
            }
            "apply_patch" => {
                let files = patched_files(self.metadata());
                files.filter_map(|file| file["filePath"].as_str()).take(MAX_DIFFS).map(ToolCallLocation::new).collect()
            }
            _ => Vec::new(),
        }
    }

    fn raw_input(&self) -> Json {
        let mut input = self.part.state.input().clone();
        if self.part.tool == "bash"
            && let Json::Object(input) = &mut input
        {
            let directory = input.get("workdir").and_then(Json::as_str).unwrap_or_default();
            input.insert("cwd".to_owned(), self.path(directory).to_string_lossy().into());
        }
        size::fit(input, size::MAX_RAW)
    }

    fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.directory.to_owned() } else { self.directory.join(path) }
    }

    fn metadata(&self) -> Option<&JsonMap> {
        match &self.part.state {
            ToolState::Completed(done) => Some(&done.metadata),
            ToolState::Running(running) => running.metadata.as_ref(),
            ToolState::Error(error) => error.metadata.as_ref(),
            ToolState::Pending(_) => None,
        }
    }

    /// The content of a running call.
    fn progress(&self, metadata: &JsonMap) -> Vec<ToolCallContent> {
        if let Some(terminal) = self.terminal(metadata) {
            return vec![terminal];
        }
        let output = metadata.get("output").and_then(Json::as_str).filter(|output| !output.is_empty());
        output.map(text_content).into_iter().collect()
    }

    fn terminal(&self, metadata: &JsonMap) -> Option<ToolCallContent> {
        let id = metadata.get("terminalId").and_then(Json::as_str).filter(|_| self.live)?;
        Some(ToolCallContent::Terminal(Terminal::new(id.to_owned())))
    }

    /// The content of a completed call.
    fn result(&self, output: &str, metadata: &JsonMap, changes: &PendingChanges) -> Vec<ToolCallContent> {
        match self.part.tool.as_str() {
            "bash" => vec![self.terminal(metadata).unwrap_or_else(|| text_content(output))],
            "read" => {
                let file = metadata.get("display").filter(|display| display["type"] == "file");
                vec![text_content(file.and_then(|file| file["text"].as_str()).unwrap_or(output))]
            }
            "edit" | "write" | "apply_patch" => {
                let diffs = self.file_changes(metadata, changes).into_iter().take(MAX_DIFFS);
                let mut content = vec![text_content(output)];
                let mut budget = size::MAX_BLOB;
                content.extend(diffs.map(|change| diff_content(change, &mut budget)));
                content
            }
            _ => vec![text_content(output)],
        }
    }

    /// The changed files: as the editor environment saw them, else from the call's diff.
    fn file_changes(&self, metadata: &JsonMap, changes: &PendingChanges) -> Vec<FileChange> {
        let input = self.part.state.input();
        if self.part.tool == "apply_patch" {
            return patched_files(Some(metadata)).filter_map(|file| patched_change(file, changes)).collect();
        }
        let Some(path) = input["filePath"].as_str().map(|path| self.path(path)) else { return Vec::new() };
        if let Some(change) = changes.take(&path) {
            return vec![change];
        }
        if self.part.tool == "write" {
            let new = input["content"].as_str().unwrap_or_default().to_owned();
            return vec![FileChange { path, old: None, new }];
        }
        let parts = metadata.get("diff").and_then(Json::as_str).and_then(unified_diff::changed_parts);
        parts.map(|(old, new)| FileChange { path, old: Some(old), new }).into_iter().collect()
    }
}

fn patched_files(metadata: Option<&JsonMap>) -> impl Iterator<Item = &Json> {
    metadata.and_then(|metadata| metadata.get("files")).and_then(Json::as_array).into_iter().flatten()
}

/// What a patch changes in one file.
fn patched_change(file: &Json, changes: &PendingChanges) -> Option<FileChange> {
    let path = PathBuf::from(file["movePath"].as_str().or(file["filePath"].as_str())?);
    changes.take(&path).or_else(|| {
        let (old, new) = unified_diff::changed_parts(file["patch"].as_str()?)?;
        Some(FileChange { path, old: (file["type"] != "add").then_some(old), new })
    })
}

/// A diff, or a link to the file if the diff is too large.
pub fn diff_content(change: FileChange, budget: &mut usize) -> ToolCallContent {
    let length = size::json_len(&change.new) + change.old.as_deref().map_or(0, size::json_len);
    if length > *budget {
        return ToolCallContent::Content(Content::new(resource_link(&change.path, None)));
    }
    *budget -= length;
    ToolCallContent::Diff(Diff::new(change.path, change.new).old_text(change.old))
}

/// Text content.
pub fn text_content(text: &str) -> ToolCallContent {
    ToolCallContent::Content(Content::new(ContentBlock::Text(TextContent::new(size::truncate(text, size::MAX_TEXT)))))
}

/// A link to a file instead of its content.
fn resource_link(path: &Path, mime: Option<&str>) -> ContentBlock {
    let name = path.file_name().map_or_else(|| path.to_string_lossy(), |name| name.to_string_lossy());
    let uri = url::Url::from_file_path(path).map_or_else(|()| path.to_string_lossy().into_owned(), Into::into);
    ContentBlock::ResourceLink(ResourceLink::new(name, uri).mime_type(mime.map(str::to_owned)))
}

/// A resource that the client embedded in a prompt, as it was given: text or bytes. Images are not resources.
pub fn embedded_resource(part: &Part) -> Option<ContentBlock> {
    let Part::File(file) = part else { return None };
    let (_, data) = file.url.strip_prefix("data:")?.split_once(";base64,")?;
    if file.mime.starts_with("image/") || data.len() > size::MAX_BLOB {
        return None;
    }
    let given = file.source.as_ref().and_then(|source| source["path"].as_str());
    let uri = given.or(file.filename.as_deref()).unwrap_or("file");
    let bytes = base64::engine::general_purpose::STANDARD.decode(data).ok()?;
    let resource = match String::from_utf8(bytes) {
        Ok(text) if file.mime.starts_with("text/") && size::json_len(&text) <= size::MAX_BLOB => {
            let contents = TextResourceContents::new(text, uri).mime_type(file.mime.clone());
            EmbeddedResourceResource::TextResourceContents(contents)
        }
        _ => {
            let contents = BlobResourceContents::new(data, uri).mime_type(file.mime.clone());
            EmbeddedResourceResource::BlobResourceContents(contents)
        }
    };
    Some(ContentBlock::Resource(EmbeddedResource::new(resource)))
}

/// An image or another file of a message or a tool call.
pub fn attachment(part: &Part) -> Option<ContentBlock> {
    let Part::File(file) = part else { return None };
    let name = || file.filename.clone().unwrap_or_else(|| "file".to_owned());
    match file.url.strip_prefix("data:").and_then(|data| data.split_once(";base64,")) {
        Some((_, data)) if file.mime.starts_with("image/") && data.len() <= size::MAX_BLOB => {
            Some(ContentBlock::Image(ImageContent::new(data, file.mime.clone())))
        }
        _ if file.url.starts_with("data:") => {
            let note = format!("[{}: {}, {} KB]", name(), file.mime, file.url.len() * 3 / 4 / 1024);
            Some(ContentBlock::Text(TextContent::new(note)))
        }
        _ => {
            let link = ResourceLink::new(name(), file.url.clone()).mime_type(file.mime.clone());
            Some(ContentBlock::ResourceLink(link))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_has_status_and_kind_once() {
        for status in [ToolCallStatus::Pending, ToolCallStatus::InProgress, ToolCallStatus::Completed] {
            for kind in [ToolKind::Other, ToolKind::Read] {
                let call = ToolCall::new("id", "title").status(status).kind(kind);
                let text = serde_json::to_string(&ToolCallNotice::new(&call)).unwrap();
                let value: Json = serde_json::from_str(&text).unwrap();
                assert_eq!((&value["status"], &value["kind"]), (&json!(status), &json!(kind)), "{text}");
                assert!(text.matches("\"status\"").count() == 1 && text.matches("\"kind\"").count() == 1, "{text}");
                assert_eq!((&value["sessionUpdate"], &value["toolCallId"]), (&json!("tool_call"), &json!("id")));
            }
        }
    }

    #[test]
    fn tool_kinds() {
        for (tool, wanted) in [
            ("bash", ToolKind::Execute),
            ("webfetch", ToolKind::Fetch),
            ("websearch", ToolKind::Search),
            ("context7_resolve-library-id", ToolKind::Search),
            ("context7_get_library_docs", ToolKind::Search),
            ("Context7_query-docs", ToolKind::Search),
            ("exa_web_search_exa", ToolKind::Search),
            ("github_search-code", ToolKind::Search),
            ("context7", ToolKind::Search),
            ("mycontext7_x", ToolKind::Other),
            ("research_notes", ToolKind::Other),
            ("todowrite", ToolKind::Other),
            ("", ToolKind::Other),
        ] {
            assert_eq!(kind(tool), wanted, "{tool}");
        }
    }
}
