//! Requests to the user: rows in the store, and the tasks of this process that wait for a reply.

pub(crate) mod approvals;
pub(crate) mod permission;
pub(crate) mod rules;

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{
    Caller, EventBody, HostError, Json, PermissionId, PermissionReply, PermissionReplyKind, PermissionRequest,
    QuestionId, SessionId,
};
use config::AskThen;
use store::{AskFilter, AskKind, AskRow, Batch, Signal, StoreError};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::store_error;
use crate::turn::tool_call::OPAQUE;
use crate::{Inner, lock};
use rules::{FifoCache, ParsedConstraints};

/// How often a waiting task polls for the reply.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Marks a reply that the timeout policy gave.
pub(crate) const EXPIRED: &str = "expired";
/// The maximum number of other requests that one `always` reply settles.
const SETTLED_MAX: usize = 1_000;

/// What this process keeps of asks, and of the rules that decide about them.
#[derive(Default)]
pub(crate) struct Asks {
    /// The tasks waiting for a reply, by ask id.
    waiters: Mutex<HashMap<String, Arc<Notify>>>,
    constraints: FifoCache<ParsedConstraints>,
}

impl Asks {
    /// Wakes the task waiting for an ask. It reads the reply from the row.
    pub(crate) fn wake(&self, ask: &str) {
        if let Some(waiter) = lock(&self.waiters).get(ask) {
            waiter.notify_one();
        }
    }

    /// Registers a task that waits for the reply to an ask, until the guard is dropped.
    fn wait<'a>(&'a self, ask: &'a str) -> (Arc<Notify>, WaiterGuard<'a>) {
        let notify = Arc::new(Notify::new());
        lock(&self.waiters).insert(ask.to_owned(), notify.clone());
        (notify, WaiterGuard { asks: self, ask })
    }
}

impl Inner {
    /// Waits for the reply to an ask: the user's, or the policy's after its timeout. The timeout counts from when the
    /// ask was made, so a restart does not extend it.
    pub(crate) async fn await_reply(&self, ask: &str, policy: (Duration, AskThen)) -> Result<Json, StoreError> {
        // Read the clock only once, for the age of the ask: it may be set while we wait.
        let ago = api::made_at(ask).map_or(0, |made| api::now().saturating_sub(made));
        let remaining = policy.0.saturating_sub(Duration::from_millis(u64::try_from(ago).unwrap_or(0)));
        let began = Instant::now();
        let (notify, _guard) = self.asks.wait(ask);
        loop {
            let row = match self.store.ask(ask)? {
                Some(AskRow { reply: Some(reply), .. }) => return Ok(reply),
                Some(row) => row,
                None => return Ok(Json::Null),
            };
            let remaining = remaining.saturating_sub(began.elapsed());
            if remaining.is_zero() {
                self.expire(&row, policy).await?;
                continue;
            }
            // The replying process may die before it wakes us, so poll the row as well.
            let _ = tokio::time::timeout(POLL_INTERVAL.min(remaining), notify.notified()).await;
        }
    }

    /// Applies the timeout policy to an unanswered ask, unless a reply arrives at the same moment.
    async fn expire(&self, row: &AskRow, (time, then): (Duration, AskThen)) -> Result<(), StoreError> {
        let Some(session) = self.store.session(&row.session_id)? else { return Ok(()) };
        let (session_id, seconds) = (session.id.clone(), time.as_secs());
        let (reply, what) = match then {
            AskThen::Reject => (PermissionReplyKind::Reject, "rejected"),
            AskThen::Allow => (PermissionReplyKind::Once, "allowed"),
        };
        let message = format!(
            "Nobody answered this request within {seconds} s, so it was {what}. Find another way, or finish by \
             saying what you need from the user. (\"ask\": {{\"timeout\", \"then\"}} in the configuration says when \
             and how such requests are decided.)"
        );
        let event = match row.kind {
            AskKind::Permission => EventBody::PermissionReplied { session_id, request_id: parse_id(&row.id)?, reply },
            AskKind::Question => EventBody::QuestionRejected { session_id, request_id: parse_id(&row.id)? },
        };
        let mut batch = Batch::new(&self.place(&session)).durable();
        let answer = serde_json::json!({ "reply": reply, "message": message, "answers": null, EXPIRED: true });
        batch.answer_if_open(&row.id, &answer, event);
        tracing::info!(ask = row.id, session = %session.id, "an ask timed out");
        self.commit_with_retry(Some((&self.place(&session), &session.id)), batch).await.map(drop)
    }

    /// Replies to a permission request, and settles the other requests that this reply decides.
    pub(crate) async fn reply_permission(
        &self,
        caller: &Caller,
        id: &PermissionId,
        reply: PermissionReply,
    ) -> Result<(), HostError> {
        let missing = || HostError::not_found("permission request", id.as_str());
        let row = self.store.ask(id.as_str()).map_err(store_error)?.ok_or_else(missing)?;
        let request: PermissionRequest = serde_json::from_str(&row.data).map_err(|_| missing())?;
        self.may_answer(caller, &request.session_id, missing)?;
        let session = self.session(&request.session_id)?;
        let mut batch = Batch::new(&self.place(&session)).durable();
        batch.answer(id.as_str(), &serde_json::json!(reply));
        batch.event(replied_event(&request, &reply));
        let mut others = Vec::new();
        match reply.reply {
            PermissionReplyKind::Once => {}
            PermissionReplyKind::Always => {
                // The approval applies where the request says. Older requests do not say; theirs applies where the
                // session is.
                let here = || self.instance(session.directory.as_ref()).approval_directory();
                let directory = request.directory().map_or_else(here, str::to_owned);
                for pattern in &request.always {
                    batch.approve(&directory, &request.permission, pattern);
                }
                others = self.also_allowed(&request, &session.project_id, &directory)?;
            }
            PermissionReplyKind::Reject if reply.message.is_none() => {
                let filter = AskFilter { session: Some(request.session_id.clone()), ..AskFilter::default() };
                others = self.store.permissions(&filter).map_err(store_error)?;
                others.retain(|other| other.id != request.id);
            }
            PermissionReplyKind::Reject => {}
        }
        for other in &others {
            settle_permission(&mut batch, other, &reply);
        }
        tracing::debug!(ask = id.as_str(), client = caller.client_name(), "answering a permission request");
        self.commit_answer(batch, id.as_str(), missing).await?;
        self.wake_asker(&request.session_id, id.as_str()).await;
        for other in &others {
            self.wake_asker(&other.session_id, other.id.as_str()).await;
        }
        Ok(())
    }

    /// Answers a question, or dismisses it.
    pub(crate) async fn reply_question(
        &self,
        caller: &Caller,
        id: &QuestionId,
        mut answers: Option<Vec<Vec<String>>>,
    ) -> Result<(), HostError> {
        let missing = || HostError::not_found("question request", id.as_str());
        let row = self.store.ask(id.as_str()).map_err(store_error)?.ok_or_else(missing)?;
        let request: api::QuestionRequest = serde_json::from_str(&row.data).map_err(|_| missing())?;
        self.may_answer(caller, &request.session_id, missing)?;
        if let Some(answers) = &mut answers {
            let questions = request.questions.len();
            if answers.len() > questions {
                return Err(HostError::Invalid(format!(
                    "Expected {questions} answers, one per question, got {}",
                    answers.len()
                )));
            }
            // Trailing questions may stay unanswered.
            answers.resize(questions, Vec::new());
        }
        let mut batch = Batch::new(&self.place(&self.session(&request.session_id)?)).durable();
        let (session_id, request_id) = (request.session_id.clone(), request.id.clone());
        batch.answer(id.as_str(), &serde_json::json!({ "answers": answers }));
        batch.event(match answers {
            Some(answers) => EventBody::QuestionReplied { session_id, request_id, answers },
            None => EventBody::QuestionRejected { session_id, request_id },
        });
        tracing::debug!(ask = id.as_str(), client = caller.client_name(), "answering a question");
        self.commit_answer(batch, id.as_str(), missing).await?;
        self.wake_asker(&request.session_id, id.as_str()).await;
        Ok(())
    }

    /// Fails unless the caller sees the session that asks. To others the request does not exist.
    fn may_answer(
        &self,
        caller: &Caller,
        session: &SessionId,
        missing: impl Fn() -> HostError,
    ) -> Result<(), HostError> {
        self.may_access(caller, session).map_err(|error| match error {
            HostError::NotFound { .. } => missing(),
            error => error,
        })
    }

    async fn commit_answer(&self, batch: Batch, id: &str, missing: impl Fn() -> HostError) -> Result<(), HostError> {
        match self.store.commit(batch).await {
            Ok(_) => Ok(()),
            Err(StoreError::NotOpen { answered: true, .. }) => {
                Err(HostError::Conflict(format!("{id} was answered already")))
            }
            Err(StoreError::NotOpen { .. }) => Err(missing()),
            Err(error) => Err(store_error(error)),
        }
    }

    /// Wakes the waiting turn, in this process or another. A failure only delays it: the turn polls for the stored
    /// reply.
    async fn wake_asker(&self, session: &SessionId, ask: &str) {
        if self.turns.is_running(session) {
            self.asks.wake(ask);
        } else if let Err(error) = self.store.signal(session, Signal::Reply { ask: ask.to_owned() }).await {
            tracing::warn!(%session, ask, %error, "cannot wake the turn that asked");
        }
    }

    /// The open requests of the same directory that an `always` reply to this one also allows.
    fn also_allowed(
        &self,
        request: &PermissionRequest,
        project: &str,
        directory: &str,
    ) -> Result<Vec<PermissionRequest>, HostError> {
        let approved: Vec<api::Rule> = request
            .always
            .iter()
            .map(|pattern| api::Rule::new(&request.permission, pattern, api::Action::Allow))
            .collect();
        let filter = AskFilter { project: Some(project.to_owned()), ..AskFilter::default() };
        let mut open = self.store.permissions(&filter).map_err(store_error)?;
        open.retain(|other| {
            other.id != request.id
                && other.directory() == Some(directory)
                && other.metadata.get(OPAQUE).is_none()
                && other.permission == request.permission
                && other.patterns.iter().all(|p| permission::covers(&approved, &other.permission, p))
        });
        open.truncate(SETTLED_MAX);
        Ok(open)
    }
}

/// Replies to a request along with another one, unless it was already answered.
pub(crate) fn settle_permission(batch: &mut Batch, ask: &PermissionRequest, reply: &PermissionReply) {
    batch.answer_if_open(ask.id.as_str(), &serde_json::json!(reply), replied_event(ask, reply));
}

/// Dismisses a question, unless it was already answered.
pub(crate) fn dismiss_question(batch: &mut Batch, ask: &api::QuestionRequest) {
    let event = EventBody::QuestionRejected { session_id: ask.session_id.clone(), request_id: ask.id.clone() };
    batch.answer_if_open(ask.id.as_str(), &serde_json::json!({ "answers": null }), event);
}

fn replied_event(ask: &PermissionRequest, reply: &PermissionReply) -> EventBody {
    EventBody::PermissionReplied { session_id: ask.session_id.clone(), request_id: ask.id.clone(), reply: reply.reply }
}

/// Parses the id of an ask row as the id type of its kind.
fn parse_id<T: FromStr<Err = String>>(text: &str) -> Result<T, StoreError> {
    text.parse().map_err(StoreError::Invalid)
}

struct WaiterGuard<'a> {
    asks: &'a Asks,
    ask: &'a str,
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        lock(&self.asks.waiters).remove(self.ask);
    }
}
