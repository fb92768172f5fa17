//! A shell command that the user runs inside a session. It becomes part of the conversation; no model is called.

use std::sync::Arc;

use api::{
    Caller, EventBody, Extra, HostError, Json, Message, MessageWithParts, Part, PartHead, Session, SessionId,
    SessionStatus, ShellInput, ToolCompleted, ToolPart, ToolRunning, ToolState, ToolTime, Usage, UserMessage, UserTime,
};
use exec::{End, Spec};
use store::AcquireOutcome;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::store_error;
use crate::turn::input::synthetic_text;
use crate::turn::tool_call::{PROGRESS_INTERVAL, STARTED};
use crate::turn::{Turn, recovery};
use crate::{Error, Inner};

/// How much of the latest output is shown while the command runs.
const LIVE_BYTES: usize = 32 * 1024;

impl Inner {
    /// Runs on a separate task: a caller that goes away must not leave the command without its outcome.
    pub(crate) async fn shell(
        self: &Arc<Self>,
        caller: &Caller,
        id: &SessionId,
        input: ShellInput,
    ) -> Result<MessageWithParts, HostError> {
        tracing::debug!(session = %id, client = caller.client_name(), "running a command of the user");
        let (inner, id) = (self.clone(), id.clone());
        let work = self.tasks.spawn(async move { inner.run_shell(&id, input).await });
        work.await.map_err(|error| HostError::Failed(format!("The command failed: {error}")))?
    }

    async fn run_shell(self: &Arc<Self>, id: &SessionId, input: ShellInput) -> Result<MessageWithParts, HostError> {
        let session = self.session(id)?;
        let instance = self.current_instance(session.directory.as_ref()).await;
        if let Some(agent) = &input.target.agent {
            instance.agent(agent)?;
        }
        self.ensure_idle(id)?;
        let mut guard = self.try_enter(id).ok_or_else(|| HostError::Busy(id.clone()))?;
        let (AcquireOutcome::Acquired { lease, took_over, newest, .. }, _) =
            guard.acquire().await.map_err(store_error)?
        else {
            return Err(HostError::Busy(id.clone()));
        };
        let turn = Arc::new(Turn::new(self, instance, id, lease, newest, &guard.run));
        let work = async {
            if took_over {
                recovery::repair(&turn, true, false).await?;
            }
            turn.shell(&session, input).await
        };
        match work.await {
            Ok(message) => Ok(message),
            Err(error) => {
                turn.release_session(&error).await;
                Err(error.into())
            }
        }
    }
}

impl Turn {
    async fn shell(&self, session: &Session, input: ShellInput) -> Result<MessageWithParts, Error> {
        let (id, instance) = (&self.session_id, &self.instance);
        let agent = input.target.agent.or(session.agent.clone()).unwrap_or_else(|| instance.default_agent());
        let model = match input.target.model {
            Some(model) => model,
            None => self.inner.default_model(instance).await?,
        };
        let user = UserMessage {
            id: input.target.message_id.unwrap_or_else(|| self.new_message_id()),
            session_id: id.clone(),
            time: UserTime { created: api::now() },
            format: None,
            summary: None,
            agent: agent.clone(),
            model: model.clone(),
            system: None,
            tools: None,
            extra: Extra::default(),
        };
        let mut answer = self.new_answer(&user);
        let started = api::now();
        let mut part = ToolPart {
            head: PartHead::new(id, &answer.id),
            call_id: api::tool_call_id(),
            tool: "bash".to_owned(),
            state: running(&input.command, started, None),
            metadata: None,
            extra: Extra::default(),
        };
        let mut batch = self.batch().durable();
        batch.begin_closed_turn(id);
        batch.event(EventBody::SessionStatus { session_id: id.clone(), status: SessionStatus::Busy });
        batch.insert_message(&Message::User(user.clone()));
        batch.event(EventBody::message(Message::User(user.clone())));
        let note = "The following tool was executed by the user".to_owned();
        batch.publish_part(&synthetic_text(id, &user.id, note));
        batch.publish_message(Message::Assistant(answer.clone()));
        batch.publish_part(&Part::Tool(part.clone()));
        batch.record(STARTED, part.head.id.as_str(), Some(&Json::Bool(true)), None);
        batch.usage(id, &Usage { tool_calls: 1, ..Usage::default() });
        // Not retried: nothing has started yet, so the caller can be told at once.
        self.set_number(self.commit_once(batch).await?.turn);

        let output = self.run_and_show(&input.command, &part, started).await?;
        part.state = ToolState::Completed(ToolCompleted {
            input: serde_json::json!({ "command": input.command }),
            title: String::new(),
            metadata: metadata(&output),
            output,
            time: ToolTime { start: started, end: Some(api::now()), compacted: None },
            attachments: None,
        });
        answer.time.completed = Some(api::now());
        let mut batch = self.batch().durable();
        batch.publish_message(Message::Assistant(answer.clone()));
        batch.publish_part(&Part::Tool(part.clone()));
        batch.record(STARTED, part.head.id.as_str(), None, None);
        self.go_idle(&mut batch, Some(answer.id.clone()));
        self.run.record_end(self.number(), Some(answer.id.clone()), self.commit(batch).await?.more_turns);
        Ok(MessageWithParts { info: Message::Assistant(answer), parts: vec![Part::Tool(part)] })
    }

    /// Runs the command and shows its output meanwhile. Returns the output, and a note if something ended it early.
    async fn run_and_show(&self, command: &str, part: &ToolPart, started: i64) -> Result<String, Error> {
        let options = &self.instance.options;
        let mut spec = Spec::shell(&options.shell, command, &self.instance.directory);
        spec.keep_bytes = options.max_bytes;
        spec.timeout = Some(options.bash_timeout);
        let (live, mut printed) = watch::channel(String::new());
        let mut on_output = |text: &str| {
            live.send_modify(|shown| {
                shown.push_str(text);
                let start = shown.ceil_char_boundary(shown.len().saturating_sub(LIVE_BYTES));
                shown.drain(..start);
            });
        };
        let mut work = std::pin::pin!(self.instance.exec.run(spec, self.cancel().clone(), &mut on_output));
        let mut written = Instant::now() - PROGRESS_INTERVAL;
        let outcome = loop {
            let more = async {
                match printed.changed().await {
                    Ok(()) => tokio::time::sleep_until(written + PROGRESS_INTERVAL).await,
                    Err(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                outcome = &mut work => break outcome,
                () = more => {}
            }
            let shown = metadata(&printed.borrow_and_update());
            let state = running(command, started, Some(shown));
            let mut batch = self.batch();
            batch.publish_part(&Part::Tool(ToolPart { state, ..part.clone() }));
            if let Some(outcome) = self.commit_beside(batch, &mut work).await? {
                break outcome;
            }
            written = Instant::now();
        };
        if self.run.is_parked() {
            return Err(Error::Parked);
        }
        let (mut text, note) = match outcome {
            Ok(outcome) => {
                let note = match outcome.end {
                    End::Exited(_) => None,
                    End::Signalled(signal) => Some(format!("The command was ended by signal {signal}")),
                    End::TimedOut => Some(format!("The command was ended after {} s", options.bash_timeout.as_secs())),
                    End::Cancelled => Some("User aborted the command".to_owned()),
                };
                (outcome.output.text, note)
            }
            Err(error) => (String::new(), Some(error.to_string())),
        };
        if let Some(note) = note {
            text.push_str(&format!("\n\n<metadata>\n{note}\n</metadata>"));
        }
        Ok(text)
    }
}

fn metadata(output: &str) -> api::JsonMap {
    let mut metadata = api::JsonMap::new();
    metadata.insert("output".to_owned(), Json::String(output.to_owned()));
    metadata
}

fn running(command: &str, start: i64, metadata: Option<api::JsonMap>) -> ToolState {
    ToolState::Running(ToolRunning {
        input: serde_json::json!({ "command": command }),
        title: None,
        metadata,
        time: ToolTime { start, end: None, compacted: None },
    })
}
