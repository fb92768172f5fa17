//! The terminal state of the task: stored first, then shown. The first one wins.

use api::{JsonMap, MessageWithParts, Part as HostPart};
use serde_json::json;
use tokio::time::Instant;

use super::{Runner, mark};
use crate::event::{StreamMark, TaskEvent};
use crate::model::{Artifact, ArtifactId, Message, Part, TaskState, TaskStatus};
use crate::records::{Change, Committed, TaskContent, TaskRow};
use crate::service::driver::Answered;
use crate::service::input::Refusal;
use crate::service::metrics::AbortOutcome;
use crate::service::translate::{Failure, Outcome};

/// The name of the artifact with the whole answer.
const RESPONSE: &str = "response";

impl Runner {
    /// The turn has ended.
    pub(super) async fn finish(&mut self, answered: Answered) {
        let Answered { answer, outcome } = answered;
        let news = self.translator.finish(answer.as_ref());
        self.tell(news).await;
        match outcome {
            Outcome::Completed => self.end_completed(answer.as_ref()).await,
            Outcome::Canceled => self.end(TaskState::Canceled, None, self.final_metadata(), mark("status")).await,
            Outcome::Rejected(text) => self.end_with_text(TaskState::Rejected, &text, None).await,
            Outcome::Failed(failure) => self.end_with_text(TaskState::Failed, &failure.text(), Some(&failure)).await,
        }
    }

    /// It was refused before anything ran.
    pub(super) async fn end_refused(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Task(text) => self.end_with_text(TaskState::Failed, &text, None).await,
            Refusal::Call(error) => self.end_with_text(TaskState::Failed, &error.message, None).await,
            Refusal::Runtime(failure) => {
                self.end_with_text(TaskState::Failed, &failure.text(), Some(&failure)).await;
            }
        }
    }

    /// The client has cancelled it.
    pub(super) async fn end_canceled(&mut self, outcome: AbortOutcome, began: Instant) {
        let metadata = self.shared_session();
        self.end(TaskState::Canceled, None, metadata, mark("status")).await;
        self.inner.metrics.canceled(outcome, began.elapsed());
    }

    /// The script has ended.
    pub(super) async fn end_played(&mut self, outcome: Outcome, text: Option<&str>) {
        let (state, text) = match &outcome {
            Outcome::Rejected(reason) => (TaskState::Rejected, Some(reason.as_str())),
            Outcome::Completed => (TaskState::Completed, text),
            Outcome::Canceled => (TaskState::Canceled, text),
            Outcome::Failed(_) => (TaskState::Failed, text),
        };
        let message = text.map(|text| self.live.read(|task| crate::service::agent_message(task, text)));
        self.end(state, message, JsonMap::new(), mark("status")).await;
    }

    async fn end_completed(&mut self, answer: Option<&MessageWithParts>) {
        let text = answer.map(text_of).unwrap_or_default();
        let mut mark = mark("status");
        mark.message_id = answer.map(|answer| answer.info.id().to_string());
        let mut message = None;
        if !self.row.streamed && !text.is_empty() {
            let id = answer.map(|answer| answer.info.id().to_string()).unwrap_or_default();
            message = Some(self.live.read(|task| Message::of_agent(id, task, vec![Part::text(text.clone())])));
            self.live.change(|task| {
                task.artifacts.push(Artifact {
                    id: ArtifactId::Named(super::super::new_id()),
                    name: Some(RESPONSE.to_owned()),
                    description: None,
                    parts: vec![Part::text(text)],
                    extensions: Vec::new(),
                    metadata: JsonMap::new(),
                });
            });
        }
        self.end(TaskState::Completed, message, self.final_metadata(), mark).await;
    }

    /// An end that needs words: the status says them. A stream shows them as an artifact as well, since its clients may not
    /// look at the status.
    async fn end_with_text(&mut self, state: TaskState, text: &str, failure: Option<&Failure>) {
        if self.row.streamed {
            self.publish(TaskEvent::Artifact {
                id: ArtifactId::Named(format!("{}:error", self.row.id)),
                name: None,
                parts: vec![Part::text(text)],
                append: false,
                append_any: false,
                last_chunk: true,
                metadata: JsonMap::new(),
                mark: None,
            });
        }
        let message = Some(self.live.read(|task| crate::service::agent_message(task, text)));
        let mut metadata = self.final_metadata();
        if let Some(failure) = failure {
            metadata.insert("opencode".to_owned(), json!({"error": failure.metadata()}));
        }
        self.end(state, message, metadata, mark("status")).await;
    }

    fn final_metadata(&self) -> JsonMap {
        let usage = self.translator.usage().map(|usage| ("usage".to_owned(), usage));
        self.shared(JsonMap::from_iter(usage))
    }

    async fn end(&mut self, state: TaskState, message: Option<Message>, metadata: JsonMap, mark: StreamMark) {
        if !self.row.streamed {
            // What a stream would show; the answer itself is an artifact of its own.
            self.live.change(|task| task.artifacts.retain(|artifact| !matches!(artifact.id, ArtifactId::Lane(_))));
        }
        let status = TaskStatus { state, message, timestamp: api::now() };
        let mut draft = self.live.draft(TaskEvent::Status { status, metadata, mark: Some(mark) });
        for _ in 0..Self::retries() {
            let mut change = Change::of(&self.row.id);
            for event in &self.unlogged {
                change.event(event.clone());
            }
            change.event(draft.event.clone());
            for ask in &self.asks {
                change.resolve(&ask.request_id);
            }
            let (status, metadata) = (draft.task.status.clone(), draft.task.metadata.clone());
            let content = TaskContent { history: draft.task.history.clone(), artifacts: draft.task.artifacts.clone() };
            change.end(TaskRow { status, metadata, ..self.row.clone() }, content);
            match self.inner.records.commit(change).await {
                Ok(Committed::Won(row)) => {
                    if let Some(row) = row {
                        draft.task.status.timestamp = row.status.timestamp;
                        self.row = *row;
                    }
                    self.unlogged.clear();
                    self.live.show(draft);
                    return;
                }
                Ok(Committed::Lost(Some(row))) if row.state().is_terminal() => {
                    // The first end has won. Nobody else runs the task, so this is one of an earlier run.
                    draft.task.status = row.status.clone();
                    self.unlogged.clear();
                    self.live.show(draft);
                    return;
                }
                Ok(Committed::Lost(row)) => {
                    tracing::error!(task = %self.row.id, "somebody else has written the row of a task that ends here");
                    if let Some(row) = row {
                        self.row.version = row.version;
                    }
                }
                Err(error) => tracing::warn!(%error, task = %self.row.id, "cannot write the end of a task"),
            }
            if self.wait_to_retry().await {
                break;
            }
        }
        tracing::error!(task = %self.row.id, "cannot write the end of a task; it goes on at the next start");
    }
}

/// The text of an answer.
fn text_of(answer: &MessageWithParts) -> String {
    let texts = answer.parts.iter().filter_map(|part| match part {
        HostPart::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    texts.collect()
}
