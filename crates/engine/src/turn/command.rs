//! Commands: named prompts with placeholders.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::{
    AgentMode, Caller, Command, CommandInput, CommandSource, EventBody, HostError, MessageWithParts, ModelRef,
    PromptInput, PromptPart, Session, SessionId,
};
use exec::Spec;
use store::Batch;
use tokio_util::sync::CancellationToken;

use crate::Inner;
use crate::error::store_error;
use crate::project::instance::Instance;
use crate::turn::input::file_part;
use crate::turn::template::{self, TemplatePiece};

/// The command that writes the project's AGENTS.md.
pub(crate) const INIT: &str = "init";
/// The timeout of a shell piece in a template.
const SHELL_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum output of a shell piece.
const SHELL_BYTES: usize = 50 * 1024;
/// The maximum number of files and agents a template mentions.
const MENTIONS_MAX: usize = 50;

impl Inner {
    pub(crate) async fn command(
        self: &Arc<Self>,
        caller: &Caller,
        id: &SessionId,
        input: CommandInput,
    ) -> Result<MessageWithParts, HostError> {
        let session = self.session(id)?;
        let instance = self.current_instance(session.directory.as_ref()).await;
        let commands = self.commands(&instance, Some(id)).await;
        let Some(command) = commands.iter().find(|c| c.name == input.command) else {
            let known = commands.iter().map(|c| c.name.clone()).collect();
            return Err(HostError::NotFound { what: "command", id: input.command, known });
        };
        let model = match &command.model {
            Some(model) => Some(ModelRef::parse(model).ok_or_else(|| {
                HostError::Invalid(format!("Command {} names the model {model:?}, not provider/model", command.name))
            })?),
            None => input.target.model.clone(),
        };
        if let Some(message) = &input.target.message_id
            && self.store.message(message).map_err(store_error)?.is_some()
        {
            // The same command sent twice is one command: its shell pieces do not run again.
            let again = PromptInput { message_id: Some(message.clone()), ..PromptInput::default() };
            let known = self.submit(caller, id, again).await?;
            return self.await_answer_of(id, &known.message, known.turn).await;
        }
        let arguments = input.arguments.clone();
        let prompt = self.command_prompt(&instance, &session, command, model, input).await?;
        let accepted = self.submit(caller, id, prompt).await?;
        let answer = self.await_answer_of(id, &accepted.message, accepted.turn).await?;
        let mut batch = Batch::new(&self.place(&session));
        batch.event(EventBody::CommandExecuted {
            name: command.name.clone(),
            session_id: id.clone(),
            arguments,
            message_id: answer.info.id().clone(),
        });
        self.store.commit(batch).await.map_err(store_error)?;
        if command.name == INIT {
            let mut project = self.project_of(&instance)?;
            project.time.initialized = Some(api::now());
            self.put_project(project).await?;
        }
        Ok(answer)
    }

    /// The prompt that a command stands for, with its template filled in.
    async fn command_prompt(
        &self,
        instance: &Instance,
        session: &Session,
        command: &Command,
        model: Option<ModelRef>,
        input: CommandInput,
    ) -> Result<PromptInput, HostError> {
        let agent = command.agent.clone().or(input.target.agent);
        let subagent = || agent.as_deref().and_then(|name| instance.agents.get(name)).map(|agent| agent.mode);
        let delegates = command.subtask.unwrap_or_else(|| subagent() == Some(AgentMode::Subagent));
        let pieces = match command.source {
            // A server's prompt is plain text: nothing in it is run, and no file is read for it.
            Some(CommandSource::Mcp) => Vec::new(),
            _ => template::expand(&command.template, &input.arguments),
        };
        // Names in the output of shell pieces are not mentions.
        let template_text = pieces
            .iter()
            .filter_map(|piece| if let TemplatePiece::Text(text) = piece { Some(text.as_str()) } else { None });
        let mentioned = mentioned_parts(instance, &template_text.collect::<Vec<_>>().join(" "));
        let text = match command.source {
            Some(CommandSource::Mcp) => {
                self.server_prompt(instance, &session.id, &command.name, &input.arguments).await?
            }
            _ => self.fill_template(instance, pieces).await,
        };
        let target = PromptInput {
            message_id: input.target.message_id,
            variant: input.target.variant,
            ..PromptInput::default()
        };
        if delegates {
            // The subagent reads files itself, so they need not be passed on. The session keeps its agent.
            let part = self.command_subtask(instance, session, command, text, (agent, model)).await;
            return Ok(PromptInput { parts: vec![part], ..target });
        }
        let parts = std::iter::once(PromptPart::text(text)).chain(mentioned).chain(input.parts).collect();
        Ok(PromptInput { parts, model, agent, ..target })
    }

    /// The task of a command that a subagent works on.
    async fn command_subtask(
        &self,
        instance: &Instance,
        session: &Session,
        command: &Command,
        prompt: String,
        (agent, model): (Option<String>, Option<ModelRef>),
    ) -> PromptPart {
        let agent = agent.or(session.agent.clone()).unwrap_or_else(|| instance.default_agent());
        let model = model.or_else(|| instance.agents.get(&agent)?.model.clone());
        let last = || session.model.as_ref().map(|last| ModelRef::new(&last.provider_id, &last.id));
        let model = model.or_else(|| last().filter(|last| self.resolve(instance, last).is_ok()));
        let model = match model {
            Some(model) => Some(model),
            None => self.default_model(instance).await.ok(),
        };
        let description = command.description.clone().unwrap_or_else(|| command.name.clone());
        PromptPart::Subtask { id: None, prompt, description, agent, model, command: Some(command.name.clone()) }
    }

    async fn fill_template(&self, instance: &Instance, pieces: Vec<TemplatePiece>) -> String {
        let mut text = String::new();
        for piece in pieces {
            match piece {
                TemplatePiece::Text(piece) => text.push_str(&piece),
                TemplatePiece::Shell(command) => text.push_str(&self.shell_output(instance, &command).await),
                TemplatePiece::Refused(command) => {
                    text.push_str(&format!("(`{command}` was not run: it might execute an argument)"));
                }
            }
        }
        text.trim().to_owned()
    }

    /// The output of a shell piece, without stderr. Only commands that the user wrote or trusts get here.
    async fn shell_output(&self, instance: &Instance, command: &str) -> String {
        let quiet = format!("exec 2>/dev/null\n{command}");
        let mut spec = Spec::shell(&instance.options.shell, &quiet, &instance.directory);
        spec.timeout = Some(SHELL_TIMEOUT);
        spec.keep_bytes = SHELL_BYTES;
        match instance.exec.run(spec, CancellationToken::new(), &mut |_: &str| {}).await {
            Ok(outcome) => outcome.output.text,
            Err(error) => format!("(`{command}` could not be run: {error})"),
        }
    }
}

/// The mentions in a text: files that exist in the workspace, and agents.
fn mentioned_parts(instance: &Instance, text: &str) -> Vec<PromptPart> {
    let file = |name: &str| -> Option<PromptPart> {
        let folders = [instance.worktree(), &instance.directory];
        let path = folders.iter().find_map(|folder| folder.join(name).canonicalize().ok())?;
        let root = instance.worktree().canonicalize().ok()?;
        let root = if root == Path::new("/") { instance.directory.canonicalize().ok()? } else { root };
        path.starts_with(root).then(|| file_part(&path)).flatten()
    };
    let agent = |name: &str| {
        let name = instance.agents.get(name)?.name.clone();
        Some(PromptPart::Agent { id: None, name, source: None })
    };
    // Trailing punctuation and brackets are not part of a name, unless there is a file with that name.
    let part = |name: &str| {
        let bare = name.trim_end_matches([')', ']', '}', '>', '"', '\'', ';', ':', '!', '?']);
        [name, bare].into_iter().find_map(|name| file(name).or_else(|| agent(name)))
    };
    template::mentions(text).into_iter().filter_map(part).take(MENTIONS_MAX).collect()
}
