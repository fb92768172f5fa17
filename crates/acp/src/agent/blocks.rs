//! Parses prompts: content blocks become prompt parts.

use api::{PromptPart, Scope};
use base64::Engine as _;
use serde_json::Value;

use crate::rpc::Error;

/// The most blocks of one prompt.
const MAX_BLOCKS: usize = 500;

/// A parsed prompt.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedPrompt {
    /// Ordinary prompt parts.
    Prompt(Vec<PromptPart>),
    /// A command: its name, its arguments, and the remaining parts.
    Command(String, String, Vec<PromptPart>),
}

/// Parses the blocks of a prompt. `commands` are the names that may follow a slash, `agents` those that may follow an
/// @.
pub fn parse(blocks: &Value, commands: &[&str], agents: &[&str]) -> Result<ParsedPrompt, Error> {
    let Some(blocks) = blocks.as_array() else { return Err(Error::invalid_params("prompt must be a list of blocks")) };
    if blocks.len() > MAX_BLOCKS {
        return Err(Error::invalid_params(format!("A prompt has at most {MAX_BLOCKS} blocks, got {}", blocks.len())));
    }
    let mut parts = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        let part = parse_part(block).map_err(|what| Error::invalid_params(format!("prompt[{index}] {what}")))?;
        parts.push(part);
    }
    let first = blocks.first().and_then(|block| block["text"].as_str()).map(str::trim_start);
    if let Some((name, rest)) = first.and_then(|text| command(text, commands)) {
        return Ok(ParsedPrompt::Command(name, rest, parts.split_off(1)));
    }
    let mentioned = parts.iter().filter_map(|part| match part {
        PromptPart::Text { text, synthetic: None, .. } => Some(mentions(text, agents)),
        _ => None,
    });
    let mentioned: Vec<PromptPart> = mentioned.flatten().collect();
    parts.extend(mentioned);
    Ok(ParsedPrompt::Prompt(parts))
}

/// Parses `/name arguments`, if there is such a command.
fn command(text: &str, commands: &[&str]) -> Option<(String, String)> {
    let typed = text.strip_prefix('/')?;
    let (name, rest) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
    commands.contains(&name).then(|| (name.to_owned(), rest.trim().to_owned()))
}

/// The subagents that a text mentions.
fn mentions(text: &str, agents: &[&str]) -> Vec<PromptPart> {
    let mut found: Vec<PromptPart> = Vec::new();
    let mut at = 0;
    for word in text.split_inclusive(char::is_whitespace) {
        let start = at;
        at += word.chars().count();
        let name = word.trim_end().trim_end_matches(['.', ',', ':', ';', '!', '?', ')']);
        let Some(name) = name.strip_prefix('@').filter(|name| agents.contains(name)) else { continue };
        let known = found.iter().any(|part| matches!(part, PromptPart::Agent { name: other, .. } if other == name));
        if !known {
            let value = format!("@{name}");
            let (start, end) = (start as u64, (start + value.chars().count()) as u64);
            let source = Some(api::AgentSource { value, start, end });
            found.push(PromptPart::Agent { id: None, name: name.to_owned(), source });
        }
    }
    found
}

fn parse_part(block: &Value) -> Result<PromptPart, String> {
    let text = |key: &str| block[key].as_str().map(str::to_owned).ok_or_else(|| format!("needs {key:?}, a string"));
    match block["type"].as_str() {
        Some("text") => {
            let text = text("text")?;
            // Text for the model alone is not shown as the user's.
            let synthetic = (audience(block) == Some("assistant")).then_some(true);
            Ok(PromptPart::Text { id: None, text, synthetic, ignored: None, time: None, metadata: None })
        }
        Some("image") => {
            let (data, mime) = (block["data"].as_str().unwrap_or_default(), text("mimeType")?);
            if data.is_empty() {
                let uri = text("uri").map_err(|_| "needs \"data\" or \"uri\"".to_owned())?;
                return Ok(link_part(&uri, "image", Some(&mime)));
            }
            check_base64(data)?;
            Ok(data_part(&mime, data, name_of(block["uri"].as_str().unwrap_or("image"))))
        }
        Some("audio") => Err("is audio, which is not supported; write it as text".to_owned()),
        Some("resource_link") => {
            let uri = text("uri")?;
            let name = block["name"].as_str().map_or_else(|| name_of(&uri), str::to_owned);
            Ok(link_part(&uri, &name, block["mimeType"].as_str()))
        }
        Some("resource") => parse_resource(&block["resource"]),
        Some(other) => Err(format!("has the type {other:?}; expected text, image, resource or resource_link")),
        None => Err("needs a \"type\"".to_owned()),
    }
}

/// The audience of a block, if it is a single one.
fn audience(block: &Value) -> Option<&str> {
    match block["annotations"]["audience"].as_array().map(Vec::as_slice) {
        Some([only]) => only.as_str(),
        _ => None,
    }
}

fn parse_resource(resource: &Value) -> Result<PromptPart, String> {
    let uri = resource["uri"].as_str().ok_or("needs \"resource.uri\", a string")?;
    let mime = resource["mimeType"].as_str();
    if let Some(text) = resource["text"].as_str() {
        // Attach the text itself: the editor's may differ from the disk's.
        let data = base64::engine::general_purpose::STANDARD.encode(text);
        return Ok(resource_part("text/plain", &data, path_of(uri), uri));
    }
    let blob = resource["blob"].as_str().ok_or("needs \"resource.text\" or \"resource.blob\"")?;
    check_base64(blob)?;
    Ok(resource_part(mime.unwrap_or("application/octet-stream"), blob, name_of(uri), uri))
}

/// A resource keeps its whole URI, so that it can be replayed as it was given.
fn resource_part(mime: &str, data: &str, filename: String, uri: &str) -> PromptPart {
    let mut part = data_part(mime, data, filename);
    if let PromptPart::File { source, .. } = &mut part {
        let nowhere = serde_json::json!({ "value": "", "start": 0, "end": 0 });
        *source = Some(serde_json::json!({ "type": "file", "path": uri, "text": nowhere }));
    }
    part
}

fn check_base64(data: &str) -> Result<(), String> {
    let valid = base64::engine::general_purpose::STANDARD.decode(data);
    valid.map(drop).map_err(|error| format!("has data that is not base64: {error}"))
}

fn data_part(mime: &str, data: &str, filename: String) -> PromptPart {
    let url = format!("data:{mime};base64,{data}");
    PromptPart::File { id: None, mime: mime.to_owned(), filename: Some(filename), url, source: None }
}

/// A local file becomes a file part; any other URI is only named.
fn link_part(uri: &str, name: &str, mime: Option<&str>) -> PromptPart {
    let Some(file) = file_url(uri) else { return PromptPart::text(format!("[{name}]({uri})")) };
    let directory = file.path().ends_with('/');
    let mime = mime.unwrap_or(if directory { "application/x-directory" } else { "text/plain" });
    let filename = Some(name.to_owned());
    PromptPart::File { id: None, mime: mime.to_owned(), filename, url: file.to_string(), source: None }
}

/// Parses `file:` URIs and those of Zed. Lines in the fragment (`#L3`, `#L3:9`, `#L3-L9`) become a range.
fn file_url(uri: &str) -> Option<url::Url> {
    let mut parsed = url::Url::parse(uri).ok()?;
    if parsed.scheme() == "zed" {
        let path = parsed.query_pairs().find(|(key, _)| key == "path").map(|(_, path)| path.into_owned())?;
        let fragment = parsed.fragment().map(str::to_owned);
        parsed = url::Url::from_file_path(path).ok()?;
        parsed.set_fragment(fragment.as_deref());
    }
    if parsed.scheme() != "file" || parsed.to_file_path().is_err() {
        return None;
    }
    if let Some((start, end)) = parsed.fragment().and_then(line_range) {
        parsed.set_query(Some(&format!("start={start}&end={end}")));
    }
    parsed.set_fragment(None);
    Some(parsed)
}

fn line_range(fragment: &str) -> Option<(u64, u64)> {
    let number = |text: &str| text.trim_start_matches('L').parse::<u64>().ok();
    let range = fragment.strip_prefix('L')?;
    match range.split_once([':', '-']) {
        Some((start, end)) => Some((number(start)?, number(end)?)),
        None => number(range).map(|line| (line, line)),
    }
}

/// The last segment of a URI.
fn name_of(uri: &str) -> String {
    let path = uri.split(['#', '?']).next().unwrap_or(uri).trim_end_matches('/');
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("file").to_owned()
}

/// The path of a `file:` URI, else the URI.
fn path_of(uri: &str) -> String {
    let path = url::Url::parse(uri).ok().and_then(|parsed| parsed.to_file_path().ok());
    path.map_or_else(|| uri.to_owned(), |path| path.to_string_lossy().into_owned())
}

/// Checks that a directory can be a session's. With `local` it must exist.
pub fn check_directory(cwd: Option<&Value>, local: bool) -> Result<Scope, Error> {
    let wrong = |why: String| Error::invalid_params(why).with(serde_json::json!({ "cwd": cwd }));
    let Some(path) = cwd.and_then(Value::as_str).filter(|path| !path.is_empty()) else {
        return Err(wrong("cwd is missing: expected the absolute path of a directory".to_owned()));
    };
    if !std::path::Path::new(path).is_absolute() {
        return Err(wrong(format!("cwd must be an absolute path, got {path:?}")));
    }
    if local && !std::path::Path::new(path).is_dir() {
        return Err(wrong(format!("cwd is not a directory: {path}")));
    }
    let trimmed = path.trim_end_matches('/');
    Ok(Scope::new(if trimmed.is_empty() { "/" } else { trimmed }))
}

#[cfg(test)]
mod tests;
