//! The conversation as the model sees it: rows in, model messages out.

use api::{FilePart, Message, MessageWithParts, Modalities, Part, ReasoningPart, ToolPart, ToolState};
use llm::{AssistantContent, Content, PromptMessage, ToolResult};

use crate::step::IGNORED;

/// What stands for a call without an outcome.
const NO_OUTCOME: &str = "The call was interrupted; its outcome is unknown.";

/// Model messages of a conversation. Messages of the same step stay together: calls first, then their results.
/// A picture that the model cannot take is replaced by a text that says so: one would fail every later request too.
pub(crate) fn messages(history: &[MessageWithParts], takes: &Modalities) -> Vec<PromptMessage> {
    let mut out = Vec::new();
    for message in history {
        match &message.info {
            Message::User(_) => {
                let content: Vec<Content> = message.parts.iter().filter_map(|part| user_content(part, takes)).collect();
                if !content.is_empty() {
                    out.push(PromptMessage::User(content));
                }
            }
            Message::Assistant(_) => {
                let content: Vec<AssistantContent> = message.parts.iter().filter_map(assistant_content).collect();
                if !content.is_empty() {
                    out.push(PromptMessage::Assistant(content));
                    let tools = message.parts.iter().filter_map(Part::as_tool);
                    out.extend(tools.map(|tool| PromptMessage::Tool(tool_result(tool, takes))));
                }
            }
        }
    }
    out
}

fn user_content(part: &Part, takes: &Modalities) -> Option<Content> {
    match part {
        Part::Text(text) if text.ignored != Some(true) && !text.text.is_empty() => {
            Some(Content::Text(text.text.clone()))
        }
        // What it shall do is in the call that follows; here it would read as work for this model.
        Part::Subtask(task) => Some(Content::Text(format!(
            "The user gave a task to the subagent {} ({}). The call and its result follow.",
            task.agent, task.description
        ))),
        Part::File(file) => file_content(file, takes),
        _ => None,
    }
}

/// Text files and directories were put in as text when the prompt was accepted; what is left is pictures and the like.
fn file_content(file: &FilePart, takes: &Modalities) -> Option<Content> {
    if !file.url.starts_with("data:") || file.mime == "text/plain" || file.mime == "application/x-directory" {
        return None;
    }
    let image = file.mime.starts_with("image/");
    let taken = if image { takes.image } else { file.mime != "application/pdf" || takes.pdf };
    if !taken {
        let name = file.filename.as_deref().unwrap_or("a file");
        return Some(Content::Text(format!("({name}, {}, is left out: this model does not take it)", file.mime)));
    }
    Some(if image {
        Content::Image { mime: file.mime.clone(), data_url: file.url.clone() }
    } else {
        Content::File {
            mime: file.mime.clone(),
            filename: file.filename.clone().unwrap_or_else(|| "file".to_owned()),
            data_url: file.url.clone(),
        }
    })
}

fn assistant_content(part: &Part) -> Option<AssistantContent> {
    match part {
        Part::Text(text) if text.ignored != Some(true) && !text.text.is_empty() => {
            Some(AssistantContent::Text(text.text.clone()))
        }
        Part::Reasoning(reasoning) if !reasoning.text.is_empty() && !set_aside(reasoning) => {
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

/// Whether it comes from an attempt that failed.
fn set_aside(reasoning: &ReasoningPart) -> bool {
    reasoning.metadata.as_ref().is_some_and(|metadata| metadata.contains_key(IGNORED))
}

fn tool_result(tool: &ToolPart, takes: &Modalities) -> ToolResult {
    let (output, is_error, attachments) = match &tool.state {
        ToolState::Completed(done) => {
            let attachments = done.attachments.iter().flatten();
            let contents = attachments.filter_map(|p| match p {
                Part::File(file) => file_content(file, takes),
                _ => None,
            });
            (done.output.clone(), false, contents.collect())
        }
        ToolState::Error(error) => (error.error.clone(), true, Vec::new()),
        ToolState::Pending(_) | ToolState::Running(_) => (NO_OUTCOME.to_owned(), true, Vec::new()),
    };
    ToolResult { id: tool.call_id.clone(), name: tool.tool.clone(), output, is_error, attachments }
}
