//! Converts stored messages to prompt messages for the model.

use api::{FilePart, JsonMap, Message, MessageError, MessageWithParts, Modalities, Part, ToolPart, ToolState};
use llm::{AssistantContent, CachedMessage, Content, PromptMessage, ToolResult};

use crate::remote;
use crate::turn::vendor_data;

/// Stands for the result of a call without an outcome.
const NO_OUTCOME: &str = "The call was interrupted; its outcome is unknown.";
/// How much of a runaway answer is repeated to the model: with all of it, the conversation would stay too long forever.
const RUNAWAY_BYTES: usize = 32 << 10;

/// Converts a message for any model. The messages of a step stay together: calls first, then their results.
pub(crate) fn prompt_messages(message: &MessageWithParts) -> Vec<CachedMessage> {
    let mut messages: Vec<PromptMessage> = Vec::new();
    match &message.info {
        Message::User(_) => {
            let content: Vec<Content> = message.parts.iter().filter_map(user_content).collect();
            if !content.is_empty() {
                messages.push(PromptMessage::User(content));
            }
        }
        Message::Assistant(info) => {
            let mut content = assistant_contents(&message.parts);
            if matches!(info.error, Some(MessageError::MessageOutputLengthError(_))) {
                shorten_runaway(&mut content);
            }
            if !content.is_empty() {
                messages.push(PromptMessage::Assistant(content));
                let tools = message.parts.iter().filter_map(Part::as_tool).filter(|tool| !is_vendor_call(tool));
                messages.extend(tools.map(|tool| PromptMessage::Tool(tool_result(tool))));
            }
        }
    }
    messages.into_iter().map(CachedMessage::from).collect()
}

/// Adapts a message to the file types a model supports. An unsupported file is replaced by a note, because it would
/// fail every later request too.
pub(crate) fn fit_modalities(said: &CachedMessage, supported: &Modalities) -> CachedMessage {
    let fits = |content: &Content| placeholder(content, supported).is_none();
    let replaced = |contents: &[Content]| -> Vec<Content> {
        let replace = |content: &Content| placeholder(content, supported).unwrap_or_else(|| content.clone());
        contents.iter().map(replace).collect()
    };
    match &**said {
        PromptMessage::User(contents) if !contents.iter().all(fits) => PromptMessage::User(replaced(contents)).into(),
        PromptMessage::Tool(result) if !result.attachments.iter().all(fits) => {
            let attachments = replaced(&result.attachments);
            PromptMessage::Tool(ToolResult { attachments, ..result.clone() }).into()
        }
        _ => said.clone(),
    }
}

/// Whether it contains files that some models do not support.
pub(crate) fn has_files(said: &CachedMessage) -> bool {
    let is_file = |content: &Content| !matches!(content, Content::Text(_));
    match &**said {
        PromptMessage::User(contents) => contents.iter().any(is_file),
        PromptMessage::Tool(result) => result.attachments.iter().any(is_file),
        PromptMessage::Assistant(_) => false,
    }
}

/// The last text of an answer, if it has one. A text that was split into several parts is joined.
pub(crate) fn last_text(parts: &[Part]) -> Option<String> {
    let counts = |part: &&Part| part.as_text().is_some_and(|t| t.ignored != Some(true) && !t.text.is_empty());
    let end = parts.iter().rposition(|part| counts(&part))?;
    let begin = parts[..end].iter().rposition(|part| !counts(&part)).map_or(0, |before| before + 1);
    Some(parts[begin..=end].iter().filter_map(Part::as_text).map(|text| text.text.as_str()).collect())
}

fn user_content(part: &Part) -> Option<Content> {
    match part {
        Part::Text(text) if text.ignored != Some(true) && !text.text.is_empty() => {
            Some(Content::Text(text.text.clone()))
        }
        // The task's prompt is in the call that follows; here it would read as work for this model.
        Part::Subtask(task) => Some(Content::Text(format!(
            "The user gave a task to the subagent {} ({}). The call and its result follow.",
            task.agent, task.description
        ))),
        Part::File(file) => file_content(file),
        _ => None,
    }
}

/// Text files and directories became text when the prompt was accepted; images and the like are left.
fn file_content(file: &FilePart) -> Option<Content> {
    if !file.url.starts_with("data:") || file.mime == "text/plain" || file.mime == "application/x-directory" {
        return None;
    }
    let (mime, filename, data_url) = (file.mime.clone(), file.filename.clone(), file.url.clone());
    Some(if mime.starts_with("image/") {
        Content::Image { mime, filename, data_url }
    } else {
        Content::File { mime, filename: filename.unwrap_or_else(|| "file".to_owned()), data_url }
    })
}

/// The note that replaces an unsupported file.
fn placeholder(content: &Content, supported: &Modalities) -> Option<Content> {
    let (name, mime) = match content {
        Content::Image { mime, filename, .. } if !supported.image => (filename.as_deref().unwrap_or("a file"), mime),
        Content::File { mime, filename, .. } if mime == "application/pdf" && !supported.pdf => {
            (filename.as_str(), mime)
        }
        _ => return None,
    };
    Some(Content::Text(format!("({name}, {mime}, is left out: this model does not support it)")))
}

/// The message without what only its vendor understands, for any other; `None` if nothing is left. Messages without such
/// data stay the same.
pub(crate) fn without_vendor_data(said: &CachedMessage) -> Option<CachedMessage> {
    match &**said {
        PromptMessage::Assistant(content) if content.iter().any(AssistantContent::has_vendor_data) => {
            let content: Vec<_> = content.iter().filter_map(AssistantContent::without_vendor_data).collect();
            (!content.is_empty()).then(|| PromptMessage::Assistant(content).into())
        }
        _ => Some(said.clone()),
    }
}

/// Whether it contains data of its vendor.
pub(crate) fn has_vendor_data(said: &CachedMessage) -> bool {
    matches!(&**said, PromptMessage::Assistant(content) if content.iter().any(AssistantContent::has_vendor_data))
}

/// The pieces of an answer. Parts of one block are joined: its data belongs to all of its text.
fn assistant_contents(parts: &[Part]) -> Vec<AssistantContent> {
    let mut contents: Vec<AssistantContent> = Vec::new();
    let mut goes_on = false;
    for part in parts {
        let metadata = match part {
            Part::Text(text) => text.metadata.as_ref(),
            Part::Reasoning(text) => text.metadata.as_ref(),
            _ => None,
        };
        let Some(content) = assistant_content(part) else { continue };
        match (contents.last_mut(), content) {
            (
                Some(AssistantContent::Text { text, metadata }),
                AssistantContent::Text { text: more, metadata: data },
            )
            | (
                Some(AssistantContent::Reasoning { text, metadata }),
                AssistantContent::Reasoning { text: more, metadata: data },
            ) if goes_on => {
                text.push_str(&more);
                vendor_data::merge(metadata, data);
            }
            (_, content) => contents.push(content),
        }
        goes_on = vendor_data::is_continued(metadata);
    }
    contents
}

fn assistant_content(part: &Part) -> Option<AssistantContent> {
    match part {
        Part::Text(text) if text.ignored != Some(true) => {
            let (text, metadata) = (text.text.clone(), vendor_data::of(text.metadata.as_ref()));
            (!text.is_empty() || !metadata.is_empty()).then_some(AssistantContent::Text { text, metadata })
        }
        Part::Reasoning(text) if !vendor_data::is_discarded(text.metadata.as_ref()) => {
            let (text, metadata) = (text.text.clone(), vendor_data::of(text.metadata.as_ref()));
            (!text.is_empty() || !metadata.is_empty()).then_some(AssistantContent::Reasoning { text, metadata })
        }
        Part::Tool(tool) if is_vendor_call(tool) => vendor_call(tool),
        Part::Tool(tool) => Some(AssistantContent::ToolCall {
            id: tool.call_id.clone(),
            name: tool.tool.clone(),
            input: tool.state.input().clone(),
            metadata: vendor_data::of(tool.metadata.as_ref()),
        }),
        _ => None,
    }
}

/// Whether the model's vendor ran this call itself. Calls of a remote agent have no data: any model reads them as calls
/// with results.
fn is_vendor_call(tool: &ToolPart) -> bool {
    remote::is_provider_executed(tool) && !vendor_data::of(tool.metadata.as_ref()).is_empty()
}

/// A call that its vendor ran, with its result. `None` if it has none: vendors refuse half of a pair.
fn vendor_call(tool: &ToolPart) -> Option<AssistantContent> {
    let is_cut_off = |metadata: Option<&JsonMap>| metadata.is_some_and(|metadata| metadata.contains_key("interrupted"));
    let (output, is_error) = match &tool.state {
        ToolState::Completed(done) => (done.output.clone(), false),
        ToolState::Error(error) if !is_cut_off(error.metadata.as_ref()) => (error.error.clone(), true),
        ToolState::Error(_) | ToolState::Pending(_) | ToolState::Running(_) => return None,
    };
    if vendor_data::is_discarded(tool.metadata.as_ref()) {
        return None;
    }
    Some(AssistantContent::VendorCall {
        id: tool.call_id.clone(),
        name: tool.tool.clone(),
        input: tool.state.input().clone(),
        output,
        is_error,
        metadata: vendor_data::of(tool.metadata.as_ref()),
    })
}

/// Keeps the beginning of a runaway answer, and adds a note about the rest.
fn shorten_runaway(content: &mut Vec<AssistantContent>) {
    let mut left = RUNAWAY_BYTES;
    for piece in content.iter_mut() {
        if let AssistantContent::Text { text, metadata } | AssistantContent::Reasoning { text, metadata } = piece {
            if text.len() > left {
                // A signature is about the whole text.
                metadata.clear();
            }
            text.truncate(text.floor_char_boundary(left));
            left -= text.len();
        }
    }
    let is_empty = |piece: &AssistantContent| {
        matches!(piece, AssistantContent::Text { text, metadata } | AssistantContent::Reasoning { text, metadata }
            if text.is_empty() && metadata.is_empty())
    };
    content.retain(|piece| !is_empty(piece));
    let note = "\n\n(This answer went on without end and was cut off; the rest of it is left out here.)";
    content.push(AssistantContent::text(note));
}

fn tool_result(tool: &ToolPart) -> ToolResult {
    let (output, is_error, attachments) = match &tool.state {
        ToolState::Completed(done) => {
            let attachments = done.attachments.iter().flatten();
            let contents = attachments.filter_map(|p| match p {
                Part::File(file) => file_content(file),
                _ => None,
            });
            (done.output.clone(), false, contents.collect())
        }
        ToolState::Error(error) => (error.error.clone(), true, Vec::new()),
        ToolState::Pending(_) | ToolState::Running(_) => (NO_OUTCOME.to_owned(), true, Vec::new()),
    };
    ToolResult { id: tool.call_id.clone(), name: tool.tool.clone(), output, is_error, attachments }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn part(value: serde_json::Value) -> Part {
        let mut part = json!({"id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1"});
        part.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        serde_json::from_value(part).unwrap()
    }

    #[test]
    fn the_last_text_is_whole() {
        let text = |text: &str| part(json!({"type": "text", "text": text}));
        let other = || part(json!({"type": "step-start"}));
        let ignored = part(json!({"type": "text", "text": "no", "ignored": true}));
        assert_eq!(last_text(&[]), None);
        assert_eq!(
            last_text(&[text("first"), other(), text("o"), text("ne"), other(), ignored]).as_deref(),
            Some("one")
        );
        assert_eq!(last_text(&[text("al"), text("l")]).as_deref(), Some("all"));
    }

    #[test]
    fn a_runaway_answer_keeps_its_beginning() {
        let mut content = vec![
            AssistantContent::Reasoning { text: "é".repeat(RUNAWAY_BYTES / 4), metadata: JsonMap::new() },
            AssistantContent::text("é".repeat(RUNAWAY_BYTES)),
            AssistantContent::text("more"),
        ];
        shorten_runaway(&mut content);
        let texts: Vec<usize> = content
            .iter()
            .map(|piece| match piece {
                AssistantContent::Text { text, .. } | AssistantContent::Reasoning { text, .. } => text.len(),
                AssistantContent::ToolCall { .. } | AssistantContent::VendorCall { .. } => 0,
            })
            .collect();
        assert_eq!(texts[..2], [RUNAWAY_BYTES / 2, RUNAWAY_BYTES / 2]);
        assert_eq!(texts.len(), 3, "and a note about the rest");
    }

    #[test]
    fn parts_of_one_block_are_one_piece_with_its_data() {
        let reasoning = |text: &str, metadata: serde_json::Value| {
            part(json!({"type": "reasoning", "text": text, "time": {"start": 1}, "metadata": metadata}))
        };
        let goes_on = json!({"trefoil": {"continued": true}});
        let parts = [
            reasoning("a", goes_on.clone()),
            reasoning("b", goes_on),
            reasoning("c", json!({"v": {"sig": 1}})),
            reasoning("d", json!({"v": {"sig": 2}})),
            reasoning("", json!({"v": {"redacted": 3}})),
            reasoning("", json!({})),
            reasoning("no", json!({"ignored": true, "v": {}})),
        ];
        let piece = |text: &str, data: serde_json::Value| AssistantContent::Reasoning {
            text: text.to_owned(),
            metadata: data.as_object().unwrap().clone(),
        };
        let contents = assistant_contents(&parts);
        let want = [
            piece("abc", json!({"v": {"sig": 1}})),
            piece("d", json!({"v": {"sig": 2}})),
            piece("", json!({"v": {"redacted": 3}})),
        ];
        assert_eq!(contents, want);
        let said = CachedMessage::from(PromptMessage::Assistant(contents));
        assert!(has_vendor_data(&said));
        let plain = PromptMessage::Assistant(vec![piece("abc", json!({})), piece("d", json!({}))]);
        assert_eq!(without_vendor_data(&said), Some(plain.into()));
        let only = CachedMessage::from(PromptMessage::Assistant(vec![piece("", json!({"v": {}}))]));
        assert_eq!(without_vendor_data(&only), None);
    }

    #[test]
    fn calls_of_the_vendor_go_back_whole_or_not_at_all() {
        let call = |metadata: serde_json::Value, state: serde_json::Value| {
            part(json!({"type": "tool", "callID": "c", "tool": "web_search", "metadata": metadata, "state": state}))
        };
        let done = json!({"status": "completed", "input": {"q": 1}, "output": "found", "title": "", "metadata": {}, "time": {"start": 1, "end": 2}});
        let cut = json!({"status": "error", "input": {}, "error": "gone", "metadata": {"interrupted": true}, "time": {"start": 1, "end": 2}});
        let running = json!({"status": "running", "input": {}, "time": {"start": 1}});
        let vendors = json!({"providerExecuted": true, "v": {"raw": {"z": 1, "a": 2}}});
        let AssistantContent::VendorCall { output, metadata, .. } =
            assistant_contents(&[call(vendors.clone(), done.clone())]).remove(0)
        else {
            panic!("it is the vendor's")
        };
        assert_eq!(
            (output.as_str(), json!(metadata).to_string()),
            ("found", r#"{"v":{"raw":{"z":1,"a":2}}}"#.to_owned())
        );
        for state in [cut, running] {
            assert_eq!(assistant_contents(&[call(vendors.clone(), state)]), []);
        }
        // A remote agent's call has no data: it stays a call with a result.
        let remote = assistant_contents(&[call(json!({"providerExecuted": true}), done)]);
        assert!(matches!(&remote[..], [AssistantContent::ToolCall { .. }]), "{remote:?}");
    }
}
