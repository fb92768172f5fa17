//! A shell command that the human runs inside a session: it becomes part of the conversation, no model is called.

use std::sync::Arc;

use api::{
    EventBody, Extra, HostError, Json, Message, MessageId, MessageWithParts, Part, PartHead, SessionId, SessionStatus,
    ShellInput, ToolCompleted, ToolPart, ToolRunning, ToolState, ToolTime, UserMessage, UserTime,
};
use exec::Spec;
use store::{Acquire, Batch};

use crate::call::STARTED;
use crate::error::stored;
use crate::input::synthetic_text;
use crate::step::{put_message, put_part};
use crate::{Inner, sessions, turn};

impl Inner {
    /// Runs on a task of its own: a caller that goes away must not leave the command without its outcome.
    pub(crate) async fn shell(
        self: &Arc<Self>,
        id: &SessionId,
        input: ShellInput,
    ) -> Result<MessageWithParts, HostError> {
        let (inner, id) = (self.clone(), id.clone());
        let work = self.tasks.spawn(async move { inner.run_shell(&id, input).await });
        work.await.map_err(|error| HostError::Failed(format!("The command broke down: {error}")))?
    }

    async fn run_shell(self: &Arc<Self>, id: &SessionId, input: ShellInput) -> Result<MessageWithParts, HostError> {
        let session = self.session(id)?;
        self.not_busy(id)?;
        let held = self.occupy(id).ok_or_else(|| HostError::Busy(id.clone()))?;
        let Acquire::Taken { lease, .. } = self.store.acquire(id).await.map_err(stored)? else {
            return Err(HostError::Busy(id.clone()));
        };
        let instance = self.instance(session.directory.as_ref());
        let agent = input.target.agent.or(session.agent.clone()).unwrap_or_else(|| instance.default_agent());
        let model = input.target.model.unwrap_or_else(|| self.default_model(&instance));
        let user = UserMessage {
            id: input.target.message_id.unwrap_or_else(MessageId::new),
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
        let mut answer = turn::assistant(&instance, id, &user.id, &agent, &model);
        let started = api::now();
        let mut part = ToolPart {
            head: PartHead::new(id, &answer.id),
            call_id: api::tool_call_id(),
            tool: "bash".to_owned(),
            state: running(&input.command, started),
            metadata: None,
            extra: Extra::default(),
        };
        let place = sessions::place(&session);
        let batch = || Batch::new(&place).fence(&lease);
        let busy = |status| EventBody::SessionStatus { session_id: id.clone(), status };
        let mut first = batch().durable();
        first.event(busy(SessionStatus::Busy));
        first.insert_message(&Message::User(user.clone()));
        first.event(EventBody::message(Message::User(user.clone())));
        let note = "The following tool was executed by the user".to_owned();
        put_part(&mut first, &synthetic_text(id, &user.id, note));
        put_message(&mut first, &answer);
        put_part(&mut first, &Part::Tool(part.clone()));
        first.record(STARTED, part.head.id.as_str(), Some(&Json::Bool(true)), None);
        self.store.commit(first).await.map_err(stored)?;

        let mut spec = Spec::shell(&instance.options.shell, &input.command, &instance.directory);
        spec.keep_bytes = instance.options.max_bytes;
        spec.timeout = Some(instance.options.bash_timeout);
        let outcome = self.exec.run(spec, held.run.cancel.clone(), &mut |_: &str| {}).await;
        let output = match outcome {
            Ok(outcome) => outcome.output.text,
            Err(error) => error.to_string(),
        };
        part.state = ToolState::Completed(ToolCompleted {
            input: serde_json::json!({ "command": input.command }),
            title: String::new(),
            metadata: metadata(&output),
            output,
            time: ToolTime { start: started, end: Some(api::now()), compacted: None },
            attachments: None,
        });
        answer.time.completed = Some(api::now());
        let mut last = batch().durable();
        put_message(&mut last, &answer);
        put_part(&mut last, &Part::Tool(part.clone()));
        last.record(STARTED, part.head.id.as_str(), None, None);
        last.event(busy(SessionStatus::Idle));
        last.event(EventBody::SessionIdle { session_id: id.clone() });
        last.release(&lease);
        self.store.commit(last).await.map_err(stored)?;
        Ok(MessageWithParts { info: Message::Assistant(answer), parts: vec![Part::Tool(part)] })
    }
}

fn metadata(output: &str) -> api::JsonMap {
    let mut metadata = api::JsonMap::new();
    metadata.insert("output".to_owned(), Json::String(output.to_owned()));
    metadata
}

fn running(command: &str, start: i64) -> ToolState {
    ToolState::Running(ToolRunning {
        input: serde_json::json!({ "command": command }),
        title: None,
        metadata: None,
        time: ToolTime { start, end: None, compacted: None },
    })
}
