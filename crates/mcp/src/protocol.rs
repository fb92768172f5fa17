//! The protocol's types, as far as they are used.

use api::{Json, JsonMap};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The total bytes of descriptions and schemas of one server's tools.
const MAX_TOOLS_BYTES: usize = 1 << 20;
/// The longest description.
const DESCRIPTION_MAX: usize = 16 << 10;

/// A tool of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// The name that models use.
    pub name: String,
    /// The server.
    pub server: String,
    /// Its name on the server.
    pub tool: String,
    /// What it does.
    pub description: String,
    /// The JSON schema of its arguments.
    pub schema: Json,
}

/// A tool as a server lists it.
#[derive(Debug, Deserialize)]
pub(crate) struct ToolEntry {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(rename = "inputSchema", default)]
    schema: Option<Box<RawValue>>,
}

/// Converts the tools of a server. Those beyond the limit of a model's request are left out.
pub(crate) fn tools(server: &str, entries: Vec<ToolEntry>) -> Vec<Tool> {
    let mut bytes = 0;
    let mut tools: Vec<Tool> = Vec::new();
    for entry in entries {
        let description = crate::truncated(&entry.description.unwrap_or_default(), DESCRIPTION_MAX);
        let schema = entry.schema.as_deref().map_or("{}", RawValue::get);
        let name = crate::names::tool_name(server, &entry.name);
        bytes += description.len() + schema.len() + name.len();
        if bytes > MAX_TOOLS_BYTES {
            tracing::warn!(server, tools = tools.len(), "the MCP server has too many tools; the rest is left out");
            break;
        }
        let Ok(Json::Object(mut schema)) = serde_json::from_str(schema) else {
            tracing::warn!(server, tool = entry.name, "ignoring a tool whose schema is not an object");
            continue;
        };
        schema.insert("type".to_owned(), "object".into());
        if !schema.get("properties").is_some_and(Json::is_object) {
            schema.insert("properties".to_owned(), Json::Object(JsonMap::new()));
        }
        schema.insert("additionalProperties".to_owned(), false.into());
        let tool = Tool { name, server: server.to_owned(), tool: entry.name, description, schema: schema.into() };
        // Of two tools with the same name the later wins, as everywhere.
        tools.retain(|other| other.name != tool.name);
        tools.push(tool);
    }
    tools
}

/// A prompt of a server.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Prompt {
    /// The server.
    #[serde(skip)]
    pub server: String,
    /// Its name on the server.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: Option<String>,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Vec<PromptArgument>,
}

/// An argument of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
}

/// A resource of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// The server.
    #[serde(default)]
    pub server: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its URI.
    pub uri: String,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
}

/// A resource template of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceTemplate {
    /// The server.
    #[serde(default)]
    pub server: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// The pattern of its URIs.
    pub uri_template: String,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
}

/// The contents of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceContents {
    /// Its URI.
    #[serde(default)]
    pub uri: String,
    /// Its media type.
    #[serde(default)]
    pub mime_type: Option<String>,
    /// Text.
    #[serde(default)]
    pub text: Option<String>,
    /// Binary content, as base64.
    #[serde(default)]
    pub blob: Option<String>,
}

/// A content block.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Content {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// As base64.
        data: String,
        /// Its media type.
        mime_type: String,
    },
    /// Audio.
    Audio {
        /// As base64.
        data: String,
        /// Its media type.
        mime_type: String,
    },
    /// An embedded resource.
    Resource {
        /// The resource.
        resource: ResourceContents,
    },
    /// A link to a resource.
    ResourceLink {
        /// Its name.
        name: String,
        /// Its URI.
        uri: String,
    },
    /// An unknown type.
    #[serde(other)]
    Other,
}

/// The result of a tool call.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallResult {
    /// Its content blocks.
    #[serde(default)]
    pub content: Vec<Content>,
    /// The same as structured data.
    #[serde(default)]
    pub structured_content: Option<Box<RawValue>>,
    /// Whether the tool failed.
    #[serde(default)]
    pub is_error: bool,
}

/// A prompt with its arguments filled in.
#[derive(Debug, Deserialize)]
pub(crate) struct PromptText {
    #[serde(default)]
    pub messages: Vec<PromptMessage>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PromptMessage {
    pub content: Content,
}

impl PromptText {
    /// All text of it.
    pub(crate) fn text(self) -> String {
        let texts = self.messages.into_iter().map(|message| match message.content {
            Content::Text { text } => text,
            Content::Resource { resource } => resource.text.unwrap_or_default(),
            _ => String::new(),
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tools_get_a_schema_that_models_accept() {
        let entries = json!([
            {"name": "a.b", "inputSchema": {"properties": {"x": {"type": "string"}}, "required": ["x"]}},
            {"name": "none"},
            {"name": "odd", "inputSchema": [1]},
            {"name": "a_b", "description": " later "},
        ]);
        let tools = tools("s", serde_json::from_value(entries).unwrap());
        let names: Vec<_> = tools.iter().map(|tool| (tool.name.as_str(), tool.tool.as_str())).collect();
        assert_eq!(names, [("s_none", "none"), ("s_a_b", "a_b")]);
        assert_eq!(tools[1].description, "later");
        assert_eq!(tools[0].schema, json!({"type": "object", "properties": {}, "additionalProperties": false}));
    }

    #[test]
    fn too_many_tools_are_cut_off() {
        let entry = |n: u32| json!({"name": format!("t{n}"), "description": "d".repeat(DESCRIPTION_MAX * 2)});
        let entries = Json::Array((0..1000).map(entry).collect());
        let tools = tools("s", serde_json::from_value(entries).unwrap());
        assert!(!tools.is_empty() && tools.len() <= MAX_TOOLS_BYTES / DESCRIPTION_MAX, "{}", tools.len());
    }

    #[test]
    fn results_of_all_kinds() {
        let answer = json!({"content": [
            {"type": "text", "text": "a", "annotations": {}},
            {"type": "image", "data": "eA==", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "u", "text": "t"}},
            {"type": "resource_link", "name": "n", "uri": "u"},
            {"type": "hologram", "x": 1},
        ], "structuredContent": {"a": 1}});
        let answer: CallResult = serde_json::from_value(answer).unwrap();
        assert_eq!(answer.content.len(), 5);
        assert_eq!(answer.content[4], Content::Other);
        assert!(!answer.is_error && answer.structured_content.is_some());
    }
}
