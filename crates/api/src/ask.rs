//! Questions to the human: permissions and the `question` tool.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ApprovalId, Extra, JsonMap, MessageId, PermissionId, QuestionId, SessionId, Timestamp, strip_control};

/// The tool call that asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "QuestionTool")]
pub struct ToolRef {
    /// Its message.
    #[serde(rename = "messageID")]
    pub message_id: MessageId,
    /// Its call.
    #[serde(rename = "callID")]
    pub call_id: String,
}

/// A request for permission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PermissionRequest {
    /// Its id.
    pub id: PermissionId,
    /// The session that asks.
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// The permission, for example `edit`.
    pub permission: String,
    /// What it is wanted for: commands, paths.
    pub patterns: Vec<String>,
    /// What clients show: a diff, a command.
    pub metadata: JsonMap,
    /// The patterns that a reply of `always` would allow.
    pub always: Vec<String>,
    /// The tool call that asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolRef>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The extra field that names the directory in which a reply of `always` would apply.
const DIRECTORY: &str = "directory";

impl PermissionRequest {
    /// The directory (and everything below it) in which a reply of `always` would apply. `None` for a request from
    /// another server.
    pub fn directory(&self) -> Option<&str> {
        self.extra.get(DIRECTORY).and_then(crate::Json::as_str)
    }

    /// Sets the directory in which a reply of `always` would apply.
    #[must_use]
    pub fn with_directory(mut self, directory: &str) -> Self {
        self.extra.set(DIRECTORY, directory.into());
        self
    }

    /// Describes what a reply of `always` would allow, and where. `None` if it would allow no more than `once`.
    pub fn always_text(&self) -> Option<String> {
        let what = match self.always.as_slice() {
            [] => return None,
            patterns if patterns.iter().any(|pattern| pattern == "*") => format!("every `{}`", self.permission),
            patterns => {
                let plain = |pattern: &String| strip_control(pattern).split_whitespace().collect::<Vec<_>>().join(" ");
                let patterns: Vec<String> = patterns.iter().map(|pattern| format!("`{}`", plain(pattern))).collect();
                match self.permission.as_str() {
                    // A command needs no further explanation.
                    "bash" => patterns.join(", "),
                    permission => format!("`{permission}` for {}", patterns.join(", ")),
                }
            }
        };
        Some(self.directory().map_or_else(|| what.clone(), |directory| format!("{what} in {directory}")))
    }
}

/// A standing approval, from a reply of `always`: what it allows, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// The project of the directory at the time of the reply.
    #[serde(rename = "projectID")]
    pub project_id: String,
    /// Where it applies: a directory with symbolic links resolved, or the root of a git worktree.
    pub directory: String,
    /// The permission, for example `edit`.
    pub permission: String,
    /// The pattern that it allows, with wildcards.
    pub pattern: String,
    /// When it was given; 0 if unknown.
    pub created: Timestamp,
}

/// The kinds of reply to a permission request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum PermissionReplyKind {
    /// Allow this call.
    Once,
    /// Allow from now on, in the directory that the request names.
    Always,
    /// Refuse.
    Reject,
}

/// A reply to a permission request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PermissionReply {
    /// The answer.
    pub reply: PermissionReplyKind,
    /// With `reject`: what the agent should do instead. The turn then continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Questions that the agent asks with its `question` tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuestionRequest {
    /// Its id.
    pub id: QuestionId,
    /// The session that asks.
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// The questions.
    pub questions: Vec<Question>,
    /// The tool call that asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolRef>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// One question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "QuestionInfo")]
pub struct Question {
    /// The question.
    pub question: String,
    /// A heading of a word or two.
    pub header: String,
    /// The options to choose from.
    pub options: Vec<QuestionOption>,
    /// Whether several options can be chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiple: Option<bool>,
    /// Whether a free-text answer is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<bool>,
}

/// One choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuestionOption {
    /// The choice.
    pub label: String,
    /// What it means.
    pub description: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn always_text_names_the_patterns_and_the_directory() {
        for (permission, always, directory, want) in [
            ("bash", json!(["git status *"]), Some("/p"), Some("`git status *` in /p")),
            ("bash", json!(["rm *", "ls *"]), None, Some("`rm *`, `ls *`")),
            ("edit", json!(["*"]), Some("/p"), Some("every `edit` in /p")),
            ("read", json!(["a", "*"]), Some("/p"), Some("every `read` in /p")),
            ("external_directory", json!(["/etc/*"]), Some("/p"), Some("`external_directory` for `/etc/*` in /p")),
            ("bash", json!(["a\n\u{1b}[31mb *"]), Some("/p"), Some("`a b *` in /p")),
            ("bash", json!([]), Some("/p"), None),
        ] {
            let request: PermissionRequest = serde_json::from_value(json!({
                "id": "per_1", "sessionID": "ses_1", "permission": permission, "patterns": [], "metadata": {},
                "always": always,
            }))
            .unwrap();
            let request = directory.map_or(request.clone(), |directory| request.clone().with_directory(directory));
            assert_eq!(request.directory(), directory);
            assert_eq!(request.always_text().as_deref(), want, "{permission} {always}");
        }
    }
}
