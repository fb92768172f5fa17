//! Builds the request of one step: system prompt, conversation, tools, in an order that suits prompt caches.

use api::{Agent, ModelRef, SessionId, UserMessage};
use llm::{CachedMessage, Content, Prompt, PromptMessage, Settings, ToolSpec};
use tools::Registry;

use crate::ask::rules::Rules;
use crate::project::instance::Instance;
use crate::project::models::{self, ModelTarget};
use crate::subagent::task;
use crate::turn::tool_call::INVALID;
use crate::turn::{Conversation, structured_output, system};

/// The inputs of a step's request.
pub(crate) struct StepRequest<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) agent: &'a Agent,
    pub(crate) target: &'a ModelTarget,
    pub(crate) user: &'a UserMessage,
    pub(crate) conversation: &'a Conversation,
    pub(crate) rules: &'a Rules,
    /// The number of the step within the turn, from 0.
    pub(crate) step: u32,
    /// Whether the model must finish now.
    pub(crate) is_last: bool,
    /// The available tools.
    pub(crate) tools: &'a Registry,
    /// The instructions of MCP servers.
    pub(crate) servers: Option<String>,
    /// The session, and its parent.
    pub(crate) session: (&'a SessionId, Option<&'a SessionId>),
}

/// Headers that tell a provider which requests belong together, for routing and caching.
pub(crate) fn session_headers(session: &SessionId, parent: Option<&SessionId>) -> Vec<(String, String)> {
    let header = |name: &str, id: &SessionId| (name.to_owned(), id.to_string());
    let own = [header("x-session-id", session), header("x-session-affinity", session)];
    own.into_iter().chain(parent.map(|parent| header("x-parent-session-id", parent))).collect()
}

/// Builds the request.
pub(crate) fn build(request: &StepRequest<'_>) -> Prompt {
    let StepRequest { instance, agent, target, user, .. } = request;
    let is_own = |origin: &ModelRef| instance.catalog.is_same_family(origin, &user.model);
    let mut messages = request.conversation.prompt_messages(&target.model.capabilities.input, is_own);
    add_reminders(&mut messages, request);
    let tools =
        if request.is_last { structured_output::spec(request.user).into_iter().collect() } else { tool_specs(request) };
    let mut options = target.model.options.clone();
    llm::options::overlay(&mut options, models::variant_options(&target.model, user.model.variant.as_deref()));
    llm::options::overlay(&mut options, agent.options.clone());
    Prompt {
        system: system::blocks(
            instance,
            agent,
            &target.model,
            request.rules,
            request.servers.as_deref(),
            user.system.as_deref(),
        ),
        messages,
        tools,
        settings: Settings {
            temperature: agent.temperature.filter(|_| target.model.capabilities.temperature),
            top_p: agent.top_p,
            max_output: instance.catalog.max_output(&target.model, &options),
            options,
            session: Some(request.session.0.to_string()),
            headers: session_headers(request.session.0, request.session.1),
            message_id: Some(user.id.to_string()),
            model: Some(user.model.to_string()),
            step: request.step,
        },
    }
}

/// The tools that the rules do not refuse outright.
pub(crate) fn offered<'a>(registry: &'a Registry, rules: &Rules) -> Vec<&'a std::sync::Arc<dyn tools::Tool>> {
    registry.iter().filter(|tool| !rules.refuses_tool(&***tool)).collect()
}

fn tool_specs(request: &StepRequest<'_>) -> Vec<ToolSpec> {
    let mut specs: Vec<ToolSpec> = offered(request.tools, request.rules)
        .into_iter()
        .filter(|tool| tool.name() != INVALID)
        .map(|tool| ToolSpec {
            name: tool.name().to_owned(),
            description: match tool.name() {
                task::TOOL => {
                    task::description(&request.instance.agents, |agent| request.rules.denies(task::TOOL, agent)).into()
                }
                _ => tool.description(),
            },
            schema: tool.schema(),
        })
        .collect();
    specs.extend(structured_output::spec(request.user));
    specs
}

/// Adds reminders that the model needs now but that are not stored.
fn add_reminders(messages: &mut [CachedMessage], request: &StepRequest<'_>) {
    let mut notes = Vec::new();
    if request.agent.name == "plan" {
        notes.push(include_str!("../prompts/plan.md"));
    } else if request.conversation.agent_before(&request.user.id) == Some("plan") {
        notes.push(include_str!("../prompts/build_switch.md"));
    }
    if request.is_last {
        notes.push(include_str!("../prompts/last_step.md"));
    }
    if notes.is_empty() {
        return;
    }
    if let Some(last) = messages.iter_mut().rfind(|said| matches!(***said, PromptMessage::User(_)))
        && let PromptMessage::User(content) = &**last
    {
        let notes = notes.into_iter().map(|note| Content::Text(note.to_owned()));
        *last = PromptMessage::User(content.iter().cloned().chain(notes).collect()).into();
    }
}
