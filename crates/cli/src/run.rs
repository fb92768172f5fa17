//! `trefoil run`: one turn, shown as it happens. It works on any [`Host`] and knows nothing of what is behind it.
//!
//! [`turn`] shows the turn and answers its requests, [`display`] prints; the others are pure: they turn events into text and typed lines into answers.

mod asks;
mod call;
mod display;
mod json;
mod markdown;
mod message;
mod render;
mod subagents;
mod turn;
mod verdict;
mod waits;

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::sync::Arc;

use api::{
    AgentMode, AgentRuntime, CatalogHost, CommandInput, CreateSession, Host, HostError, ListMessages, MessageId,
    ModelRef, PromptInput, PromptPart, PromptTarget, Scope, Session, SessionId, SessionModel, UpdateSession,
};

use follow::Task;
pub use render::{Piece, Renderer};
pub use verdict::{cancelled, unsent};

use crate::args::Run;
use crate::commands::session::{LAST, find_session};
use crate::exit::{Exit, Failure};
use crate::terminal::{Capabilities, LineReader, Style, is_interactive};
use crate::wiring::Interrupt;

/// The task, as far as it is known before anything is opened.
pub struct TaskInput {
    text: String,
    files: Vec<PromptPart>,
}

impl TaskInput {
    /// Reads the arguments, standard input and files.
    pub async fn read(args: &Run, directory: &Path) -> anyhow::Result<Self> {
        let files = args.files.iter().map(|path| message::file(directory, path)).collect::<anyhow::Result<Vec<_>>>()?;
        let text = message::text(&args.message).await?;
        let resumes = args.last || args.session.is_some();
        if text.trim().is_empty() && files.is_empty() && args.command.is_none() && !resumes {
            return Err(Failure::new(Exit::Usage, "there is no message")
                .hint("trefoil run \"what to do\", or pipe the message into it; see trefoil run --help")
                .into());
        }
        Ok(Self { text, files })
    }

    fn parts(&self) -> Vec<PromptPart> {
        let text = (!self.text.trim().is_empty()).then(|| PromptPart::text(&self.text));
        self.files.iter().cloned().chain(text).collect()
    }
}

/// Runs the task to its end. Everything but a turn that succeeded is an error.
pub async fn run(
    args: &Run,
    task: TaskInput,
    scope: Scope,
    host: Arc<dyn AgentRuntime>,
    input: LineReader,
    capabilities: Capabilities,
    interrupt: Interrupt,
) -> anyhow::Result<()> {
    let mut target = target(args, &*host, &scope).await?;
    let resumed = args.last || args.session.is_some();
    let session = session(args, &*host, &scope, &target).await?;
    let scope = Scope::new(session.directory.clone());
    let sends = args.command.is_some() || !task.parts().is_empty();
    let mut is_answered = false;
    if !sends {
        let newest = host.waiting(&session.id).await?.pop();
        is_answered = newest.is_none();
        target.message_id = match newest {
            Some(newest) => Some(newest),
            None => Some(last_prompt(&*host, &session.id).await?),
        };
    } else if resumed {
        target.message_id = Some(host.message_id(&session.id).await?);
    }
    let options = turn::Options {
        json: args.format == crate::args::Format::Json,
        yes: args.yes,
        interactive: is_interactive(),
        style: Style::stderr(capabilities.no_color),
        dumb: capabilities.dumb,
        attached: args.remote.attach.clone(),
        on_terminal: io::stdout().is_terminal() && io::stderr().is_terminal(),
        prompt: target.message_id.clone(),
        sends,
        resumed,
        is_answered,
    };
    let id = session.id;
    let task = match &args.command {
        Some(command) => Task::Command(Box::new(CommandInput {
            command: command.trim_start_matches('/').to_string(),
            arguments: task.text,
            target,
            parts: task.files,
        })),
        None => {
            let PromptTarget { agent, model, variant, message_id } = target;
            let parts = task.parts();
            let prompt = PromptInput { parts, message_id, model, agent, variant, ..PromptInput::default() };
            Task::Prompt(Box::new(prompt))
        }
    };
    let turn = turn::Turn::new(host.clone(), scope, id.clone(), input, options);
    let result = turn.run(task, interrupt).await;
    if let Err(error) = &result
        && !resumed
        && matches!(error.downcast_ref(), Some(HostError::NoModel { .. } | HostError::NotFound { what: "model", .. }))
    {
        // The message was not accepted, so the session that was created for it would stay empty.
        let _ = host.delete_session(&id).await;
    }
    result
}

/// The newest prompt. Sending it again by its id creates no new one: it gets its answer if its turn was interrupted, or has it.
async fn last_prompt(host: &dyn Host, session: &SessionId) -> anyhow::Result<MessageId> {
    let query = ListMessages { limit: Some(follow::MAX_MESSAGES), before: None };
    let messages = host.messages(session, query).await?.messages;
    let newest = messages.into_iter().rev().find(|message| message.info.as_user().is_some());
    Ok(newest.ok_or_else(|| nothing_to_resume(session))?.info.id().clone())
}

fn nothing_to_resume(session: &SessionId) -> Failure {
    Failure::new(Exit::Usage, format!("there is no interrupted turn to resume in session {session}"))
        .hint("say what to do next: trefoil run -c \"what to do\"")
}

/// Checks agent, model and command before anything is created, so that a typo leaves no empty session behind.
async fn target(args: &Run, host: &dyn CatalogHost, scope: &Scope) -> anyhow::Result<PromptTarget> {
    if let Some(agent) = &args.agent {
        let agents = host.agents(scope).await?;
        let usable = agents.iter().filter(|agent| agent.mode != AgentMode::Subagent && agent.hidden != Some(true));
        let known: Vec<String> = usable.map(|agent| agent.name.clone()).collect();
        if !known.contains(agent) {
            let exists = agents.iter().any(|other| other.name == *agent && other.hidden != Some(true));
            let failure =
                if exists { Failure::subagent(agent, &known) } else { Failure::unknown("agent", agent, &known) };
            return Err(failure.into());
        }
    }
    if let Some(command) = &args.command {
        let known: Vec<String> = host.commands(scope).await?.into_iter().map(|command| command.name).collect();
        if !known.iter().any(|name| name == command.trim_start_matches('/')) {
            return Err(Failure::unknown("command", command, &known).into());
        }
    }
    let model = match (&args.model, &args.script) {
        (Some(model), _) => Some(self::model(model, host, scope).await?),
        (None, Some(_)) => Some(ModelRef::new("script", "file")),
        (None, None) => None,
    };
    let model = model.map(|model| ModelRef { variant: args.variant.clone(), ..model });
    Ok(PromptTarget {
        agent: args.agent.clone(),
        model,
        variant: args.variant.clone(),
        message_id: Some(MessageId::new()),
    })
}

async fn model(text: &str, host: &dyn CatalogHost, scope: &Scope) -> anyhow::Result<ModelRef> {
    let providers = host.providers(scope).await?;
    if let Some(model) = ModelRef::parse(text) {
        // The host knows why a provider is not connected, and whether a server without a list has the model.
        let provider = providers.iter().find(|provider| provider.id == model.provider_id);
        if provider.is_none_or(|provider| provider.models.is_empty() || provider.models.contains_key(&model.model_id)) {
            return Ok(model);
        }
    }
    let models = providers.iter().flat_map(|provider| provider.models.keys().map(|id| format!("{}/{id}", provider.id)));
    Err(Failure::unknown("model", text, &models.collect::<Vec<_>>()).into())
}

async fn session(args: &Run, host: &dyn Host, scope: &Scope, target: &PromptTarget) -> anyhow::Result<Session> {
    let wanted = if args.last { Some(LAST) } else { args.session.as_deref() };
    let Some(wanted) = wanted else {
        let model = target.model.as_ref().map(|model| SessionModel {
            id: model.model_id.clone(),
            provider_id: model.provider_id.clone(),
            variant: model.variant.clone(),
        });
        let input =
            CreateSession { title: args.title.clone(), agent: args.agent.clone(), model, ..CreateSession::default() };
        return Ok(host.create_session(scope, input).await?);
    };
    let session = find_session(host, scope, wanted).await?;
    match &args.title {
        Some(title) => {
            let change = UpdateSession { title: Some(title.clone()), ..UpdateSession::default() };
            Ok(host.update_session(&session.id, change).await?)
        }
        None => Ok(session),
    }
}
