//! Converts stored messages to prompt messages for the model.

use api::{FilePart, Message, MessageError, MessageWithParts, Modalities, Part, ReasoningPart, ToolPart, ToolState};
use llm::{AssistantContent, CachedMessage, Content, PromptMessage, ToolResult};

use crate::turn::step::IGNORED;

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
            let mut content: Vec<AssistantContent> = message.parts.iter().filter_map(assistant_content).collect();
            if matches!(info.error, Some(MessageError::MessageOutputLengthError(_))) {
                shorten_runaway(&mut content);
            }
            if !content.is_empty() {
                messages.push(PromptMessage::Assistant(content));
                let tools = message.parts.iter().filter_map(Part::as_tool);
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

fn assistant_content(part: &Part) -> Option<AssistantContent> {
    match part {
        Part::Text(text) if text.ignored != Some(true) && !text.text.is_empty() => {
            Some(AssistantContent::Text(text.text.clone()))
        }
        Part::Reasoning(reasoning) if !reasoning.text.is_empty() && !is_discarded(reasoning) => {
            Some(AssistantContent::Reasoning { text: reasoning.text.clone(), metadata: reasoning.metadata.clone() })
        }
        Part::Tool(tool) => Some(AssistantContent::ToolCall {
            id: tool.call_id.clone(),
            name: tool.tool.clone(),
            input: tool.state.input().clone(),
        }),
        _ => None,
    }
}

/// Keeps the beginning of a runaway answer, and adds a note about the rest.
fn shorten_runaway(content: &mut Vec<AssistantContent>) {
    let mut left = RUNAWAY_BYTES;
    for piece in content.iter_mut() {
        if let AssistantContent::Text(text) | AssistantContent::Reasoning { text, .. } = piece {
            text.truncate(text.floor_char_boundary(left));
            left -= text.len();
        }
    }
    content.retain(|piece| !matches!(piece, AssistantContent::Text(text) | AssistantContent::Reasoning { text, .. } if text.is_empty()));
    let note = "\n\n(This answer went on without end and was cut off; the rest of it is left out here.)";
    content.push(AssistantContent::Text(note.to_owned()));
}

/// Whether it comes from a failed attempt.
fn is_discarded(reasoning: &ReasoningPart) -> bool {
    reasoning.metadata.as_ref().is_some_and(|metadata| metadata.contains_key(IGNORED))
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
            AssistantContent::Reasoning { text: "é".repeat(RUNAWAY_BYTES / 4), metadata: None },
            AssistantContent::Text("é".repeat(RUNAWAY_BYTES)),
            AssistantContent::Text("more".to_owned()),
        ];
        shorten_runaway(&mut content);
        let texts: Vec<usize> = content
            .iter()
            .map(|piece| match piece {
                AssistantContent::Text(text) | AssistantContent::Reasoning { text, .. } => text.len(),
                AssistantContent::ToolCall { .. } => 0,
            })
            .collect();
        assert_eq!(texts[..2], [RUNAWAY_BYTES / 2, RUNAWAY_BYTES / 2]);
        assert_eq!(texts.len(), 3, "and a note about the rest");
    }
}
