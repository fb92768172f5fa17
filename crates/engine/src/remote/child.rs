//! Subagents of remote agents. Each is a session below the remote agent's, with a lease and a turn of its own while it
//! works. Only its agent can send it messages. A record maps the session to the subagent's remote id.
//!
//! The subagents live in the runner's process and end with the job. Those that a crash interrupted are closed by
//! the process that takes over their lease.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use api::{
    CreateSession, EventBody, Extra, HostError, Json, JsonMap, Message, MessageError, Part, PartHead, RunnerChild,
    RunnerChildHandle, RunnerEnd, RunnerError, Session, SessionId, SessionStatus, StepStartPart, TextPart, UserMessage,
    UserTime,
};
use serde::{Deserialize, Serialize};
use store::{AcquireOutcome, Batch, SessionChange, Store, StoreError};
use tokio_util::sync::CancellationToken;
use tools::Need;

use super::job_host::{ENDED, JobHost};
use super::transcript::JobTranscript;
use super::{RemoteRecord, end_reason, reject_open_asks};
use crate::ask::rules::Rules;
use crate::error::store_error;
use crate::spending::ledger;
use crate::turn::runs::SessionGuard;
use crate::turn::{Turn, recovery};
use crate::{Error, Inner, SharedEnvironment, lock};

/// The maximum number of subagents one job can start. The limit on sessions below a root applies as well.
const CHILDREN_MAX: usize = 64;
/// How deep below its root a session with remote subagents can be.
const DEPTH_MAX: usize = 16;
/// The maximum length of a remote subagent id, in bytes.
const NAME_MAX: usize = 1_000;
/// The maximum stored length of a title and of a prompt, in bytes.
const TITLE_MAX: usize = 300;
const PROMPT_MAX: usize = 256 << 10;

/// The refusal when there are too many subagents.
const TOO_MANY: &str = "There are already too many subagents, or they are nested too deeply";

/// The maximum number of unused grants.
const GRANTS_MAX: usize = 256;
/// The session metadata key that tells clients about a remote subagent, and whether it can be cancelled alone.
const SUBAGENT_METADATA: &str = "elsewhere";

/// The error of a subagent that was still working when its job ended.
const CUT_OFF: &str = "interrupted: its agent ended before it reported the outcome of this subagent; its work may \
                       have taken effect in part or in full.";

/// A remote agent's subagent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ForeignSubagent {
    /// Its remote id.
    id: String,
    /// Whether it can be cancelled alone.
    stops: bool,
}

/// State shared by the hosts of one job.
pub(super) struct Job {
    turn: Arc<Turn>,
    /// Cancelled when the job must end.
    pub(super) stop: CancellationToken,
    /// The message about an exhausted budget.
    exhausted_budget: Mutex<Option<String>>,
    /// Needs that were allowed for a call, in any session of the job: the files and commands of that call need no
    /// second permission.
    grants: Mutex<Vec<(String, Vec<String>)>>,
    /// The working subagents, by remote id.
    open: tokio::sync::Mutex<HashMap<String, Arc<JobHost>>>,
    /// The sessions of all subagents each session ever had, by remote id.
    children: tokio::sync::Mutex<HashMap<SessionId, HashMap<String, SessionId>>>,
    /// The number of subagents started.
    started: AtomicUsize,
}

/// Holds the session of a subagent while it works.
pub(super) struct ChildHandle {
    /// The subagent's remote id.
    id: String,
    /// The parent session.
    parent: SessionId,
    /// The subagent's prompt.
    prompt: Mutex<TextPart>,
    guard: Mutex<Option<(SessionGuard, Option<SharedEnvironment>)>>,
}

impl Job {
    pub(super) fn new(turn: &Arc<Turn>) -> Self {
        Self {
            turn: turn.clone(),
            stop: turn.cancel().child_token(),
            exhausted_budget: Mutex::default(),
            grants: Mutex::default(),
            open: tokio::sync::Mutex::default(),
            children: tokio::sync::Mutex::default(),
            started: AtomicUsize::new(0),
        }
    }

    /// The message about an exhausted budget, if there is one.
    pub(super) fn exhausted_budget(&self) -> Option<String> {
        lock(&self.exhausted_budget).clone()
    }

    /// Stops the job because a budget is exhausted.
    pub(super) fn stop_over_budget(&self, text: String) {
        lock(&self.exhausted_budget).get_or_insert(text);
        self.stop.cancel();
    }

    /// Remembers needs that were allowed.
    pub(super) fn grant(&self, needs: Vec<Need>) {
        let mut grants = lock(&self.grants);
        grants.extend(needs.into_iter().map(|need| (need.permission, need.patterns)));
        let excess = grants.len().saturating_sub(GRANTS_MAX);
        grants.drain(..excess);
    }

    /// Removes needs that were already allowed, each grant once.
    pub(super) fn use_grants(&self, needs: &mut Vec<Need>) {
        let mut grants = lock(&self.grants);
        needs.retain(|need| {
            let same = |grant: &(String, Vec<String>)| grant.0 == need.permission && grant.1 == need.patterns;
            let found = grants.iter().position(same);
            found.map(|at| grants.remove(at)).is_none()
        });
    }

    /// Ends the job and every subagent still working for it.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        let hosts: Vec<_> = self.open.lock().await.drain().map(|(_, host)| host).collect();
        let stopped = self.turn.cancel().is_cancelled() && !self.turn.run.is_parked();
        for host in hosts {
            let ended = if stopped { Ok(RunnerEnd::Stopped) } else { Err(RunnerError(CUT_OFF.to_owned())) };
            if let Err(error) = host.settle(ended).await {
                tracing::warn!(session = %host.turn.session_id, %error, "cannot close a remote subagent");
            }
        }
    }
}

impl JobHost {
    /// Gives a remote subagent its session and its host, or says why there is no room.
    pub(super) async fn adopt_child(&self, child: RunnerChild) -> Result<Result<RunnerChildHandle, String>, Error> {
        let Some(job) = self.job.upgrade() else { return Ok(Err(ENDED.to_owned())) };
        let mut open = job.open.lock().await;
        if self.stop.is_cancelled() {
            return Ok(Err(ENDED.to_owned()));
        }
        let host = match open.get(&child.id) {
            Some(host) if host.handle.as_ref().is_some_and(|handle| handle.parent != self.turn.session_id) => {
                return Ok(Err(format!("{} already works for another session", child.id)));
            }
            Some(host) => {
                host.update_child(&child).await?;
                host.clone()
            }
            None => match self.open_child(&job, &child).await? {
                Ok(host) => {
                    let host = Arc::new(host);
                    open.insert(child.id.clone(), host.clone());
                    host
                }
                Err(refusal) => return Ok(Err(refusal)),
            },
        };
        drop(open);
        if let (Some(call), Some(transcript)) = (&child.call, self.transcript.lock().await.as_mut()) {
            transcript.link(&self.turn, call, &host.turn.session_id).await?;
        }
        let kept = host.transcript.lock().await.as_ref().and_then(|transcript| transcript.record.kept.clone());
        Ok(Ok(RunnerChildHandle { context: host, kept }))
    }

    /// Enters the session of a subagent, an existing or a new one, and begins its turn.
    async fn open_child(&self, job: &Job, child: &RunnerChild) -> Result<Result<JobHost, String>, Error> {
        let (inner, instance) = (&self.turn.inner, &self.turn.instance);
        let (session, record, mut guard) = match self.child_session(job, child).await? {
            Ok(found) => found,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let (AcquireOutcome::Acquired { lease, took_over, newest, .. }, _) = guard.acquire().await? else {
            return Ok(Err(in_use_text(&session)));
        };
        let turn = Arc::new(Turn::new(inner, instance.clone(), &session, lease, newest, &guard.run));
        match self.begin_turn(&turn, took_over, record, child).await {
            Ok((user, prompt, transcript, rules)) => {
                let shared = inner.share_environment(&self.turn.session_id, &session);
                let (id, parent) = (child.id.clone(), self.turn.session_id.clone());
                let handle =
                    ChildHandle { id, parent, prompt: Mutex::new(prompt), guard: Mutex::new(Some((guard, shared))) };
                Ok(Ok(self.for_child(turn, rules, user, transcript, handle)))
            }
            Err(error) => {
                turn.release_session(&error).await;
                Err(error)
            }
        }
    }

    /// The session of a subagent, entered: its earlier one, or a new one that becomes visible only once it can be
    /// stopped.
    async fn child_session(
        &self,
        job: &Job,
        child: &RunnerChild,
    ) -> Result<Result<(SessionId, RemoteRecord, SessionGuard), String>, Error> {
        let (inner, own, store) = (&self.turn.inner, &self.turn.session_id, self.turn.store());
        let mut families = job.children.lock().await;
        if !families.contains_key(own) {
            let parent = own.clone();
            let family = store.long_read(move |store| read_family(store, &parent)).await?;
            families.insert(own.clone(), family);
        }
        let family = families.entry(own.clone()).or_default();
        if let Some(earlier) = family.get(&child.id).map(|id| store.session(id)).transpose()?.flatten() {
            let mut record = RemoteRecord::load(store, &earlier.id)?;
            record.child = Some(ForeignSubagent { id: child.id.clone(), stops: child.stops });
            let before = inner.constraints(store, &earlier)?;
            let Some(constraints) = self.rules.child_constraints(Some(&before)) else {
                return Ok(Err(TOO_MANY.to_owned()));
            };
            if constraints.constraints != before {
                let mut batch = Batch::new(&self.turn.instance.place);
                constraints.put(&mut batch, &earlier.id);
                self.turn.commit_unfenced(batch).await?;
            }
            let guard = inner.try_enter(&earlier.id).ok_or_else(|| in_use_text(&earlier.id));
            return Ok(guard.map(|guard| (earlier.id, record, guard)));
        }
        let most = self.turn.instance.limits.descendants;
        let _spawning = inner.subagents.lock_spawning().await;
        let line = inner.lineage(own)?;
        let (Some(root), Some(parent)) = (line.first(), line.last()) else { return Ok(Err(ENDED.to_owned())) };
        let crowded = job.started.load(Ordering::Relaxed) >= CHILDREN_MAX;
        if crowded || line.len() > DEPTH_MAX || store.count_descendants(&root.id, most)? >= most {
            return Ok(Err(TOO_MANY.to_owned()));
        }
        if child.id.is_empty() || child.id.len() > NAME_MAX {
            return Ok(Err("Its id is too long, or empty".to_owned()));
        }
        let session = inner.new_session(
            &self.turn.instance,
            CreateSession {
                parent_id: Some(own.clone()),
                title: Some(title(child, &self.agent)),
                agent: Some(self.agent.clone()),
                permission: parent.permission.clone(),
                workspace_id: parent.workspace_id.clone(),
                metadata: Some(JsonMap::from_iter([child_metadata(child.stops)])),
                ..CreateSession::default()
            },
        );
        let foreign = ForeignSubagent { id: child.id.clone(), stops: child.stops };
        let record = RemoteRecord { child: Some(foreign), ..RemoteRecord::default() };
        let Some(constraints) = self.rules.child_constraints(None) else { return Ok(Err(TOO_MANY.to_owned())) };
        let mut batch = Batch::new(&self.turn.instance.place);
        batch.session(&session);
        constraints.put(&mut batch, &session.id);
        batch.event(EventBody::SessionCreated { session_id: session.id.clone(), info: Box::new(session.clone()) });
        record.put(&mut batch, &session.id);
        let Some(guard) = inner.try_enter(&session.id) else { return Ok(Err(in_use_text(&session.id))) };
        self.turn.commit_unfenced(batch).await?;
        job.started.fetch_add(1, Ordering::Relaxed);
        family.insert(child.id.clone(), session.id.clone());
        Ok(Ok((session.id, record, guard)))
    }

    /// Begins a subagent's turn: writes its prompt and an empty answer.
    async fn begin_turn(
        &self,
        turn: &Arc<Turn>,
        took_over: bool,
        record: RemoteRecord,
        child: &RunnerChild,
    ) -> Result<(UserMessage, TextPart, JobTranscript, Rules), Error> {
        if took_over {
            recovery::repair(turn, true, false).await?;
        }
        let rules = turn.rules(&self.agent).await?.combined_with(&self.rules);
        let session = &turn.session_id;
        let user = UserMessage {
            id: turn.new_message_id(),
            session_id: session.clone(),
            time: UserTime { created: api::now() },
            format: None,
            summary: None,
            agent: self.agent.clone(),
            model: self.user.model.clone(),
            system: None,
            tools: None,
            extra: Extra::default(),
        };
        let text = cut(child.prompt.as_deref().unwrap_or(&child.title), PROMPT_MAX).to_owned();
        let tokens = ledger::tokens(text.len());
        let prompt = text_part(PartHead::new(session, &user.id), text);
        let answer = turn.new_answer(&user);
        let mut batch = turn.batch();
        batch.begin_closed_turn(session);
        batch.event(turn.status_event(SessionStatus::Busy));
        record.put(&mut batch, session);
        batch.insert_message(&Message::User(user.clone()));
        batch.event(EventBody::message(Message::User(user.clone())));
        batch.publish_part(&Part::Text(prompt.clone()));
        batch.publish_message(Message::Assistant(answer.clone()));
        let head = PartHead::new(session, &answer.id);
        batch.publish_part(&Part::StepStart(StepStartPart { head, snapshot: None, extra: Extra::default() }));
        turn.set_number(turn.commit(batch).await?.turn);
        Ok((user, prompt, JobTranscript::of_child(answer, record, tokens), rules))
    }

    /// Updates the title, prompt and metadata of a working subagent.
    async fn update_child(&self, child: &RunnerChild) -> Result<(), Error> {
        let turn = &self.turn;
        let mut transcript = self.transcript.lock().await;
        let (Some(transcript), Some(handle)) = (transcript.as_mut(), &self.handle) else { return Ok(()) };
        let (title, stops) = (title(child, &self.agent), child.stops);
        let renamed = turn.store().session(&turn.session_id)?.is_some_and(|session| session.title != title);
        let mut batch = turn.batch();
        let foreign = ForeignSubagent { id: child.id.clone(), stops };
        if renamed || transcript.record.child.as_ref() != Some(&foreign) {
            transcript.record.child = Some(foreign);
            transcript.record.put(&mut batch, &turn.session_id);
            let added_metadata = Some(JsonMap::from_iter([child_metadata(stops)]));
            let change = SessionChange { title: Some(title), added_metadata, ..SessionChange::default() };
            batch.change_session(&turn.session_id, change);
        }
        if let Some(prompt) = child.prompt.as_deref().map(|prompt| cut(prompt, PROMPT_MAX)) {
            let mut stored_prompt = lock(&handle.prompt);
            if stored_prompt.text != prompt {
                prompt.clone_into(&mut stored_prompt.text);
                batch.publish_part(&Part::Text(stored_prompt.clone()));
            }
        }
        turn.commit_any(batch).await?;
        Ok(())
    }

    /// Ends a subagent's turn after its report.
    pub(super) async fn end_child(&self, ended: Result<RunnerEnd, RunnerError>) -> Result<(), Error> {
        if let (Some(job), Some(handle)) = (self.job.upgrade(), &self.handle) {
            job.open.lock().await.remove(&handle.id);
            self.settle(ended).await?;
        }
        Ok(())
    }

    /// Writes the end of a subagent's turn.
    async fn settle(&self, ended: Result<RunnerEnd, RunnerError>) -> Result<(), Error> {
        let turn = &self.turn;
        let Some(handle) = &self.handle else { return Ok(()) };
        let Some(transcript) = self.transcript.lock().await.take() else { return Ok(()) };
        // Release the session whatever happens next: its turn is over.
        let _guard = lock(&handle.guard).take();
        let stopped = turn.cancel().is_cancelled() && !turn.run.is_parked();
        let (reason, error) = end_reason(if stopped { Ok(RunnerEnd::Stopped) } else { ended });
        reject_open_asks(turn, None).await?;
        transcript.finish(turn, reason, error).await?;
        Ok(())
    }
}

impl Inner {
    /// The remote subagent a session belongs to, if any.
    fn foreign(&self, session: &Session) -> Result<Option<ForeignSubagent>, StoreError> {
        match session.parent_id {
            Some(_) => Ok(RemoteRecord::load(&self.store, &session.id)?.child),
            None => Ok(None),
        }
    }

    /// Fails if only the session's remote agent can send it messages.
    pub(crate) fn takes_messages(&self, session: &Session) -> Result<(), HostError> {
        match (self.foreign(session).map_err(store_error)?, &session.parent_id) {
            (Some(_), Some(parent)) => Err(HostError::Conflict(format!(
                "{} is a subagent of another agent, which alone can send it messages; send the message to {parent}",
                session.id
            ))),
            _ => Ok(()),
        }
    }

    /// Fails if the session is working and can only be stopped together with its remote agent.
    pub(crate) fn can_be_stopped(&self, id: &SessionId) -> Result<(), HostError> {
        let session = self.session(id)?;
        let foreign = self.foreign(&session).map_err(store_error)?;
        match (foreign.filter(|foreign| !foreign.stops), &session.parent_id) {
            (Some(_), Some(parent)) if self.is_running(id).map_err(store_error)? => Err(HostError::Conflict(format!(
                "{id} is a subagent of another agent, which cannot stop it alone; stop {parent} instead"
            ))),
            _ => Ok(()),
        }
    }
}

/// The sessions of all subagents that a session ever had, by remote id.
fn read_family(store: &Store, parent: &SessionId) -> Result<HashMap<String, SessionId>, StoreError> {
    let mut family = HashMap::new();
    for session in store.children(parent)? {
        if let Some(foreign) = RemoteRecord::load(store, &session.id)?.child {
            family.insert(foreign.id, session.id);
        }
    }
    Ok(family)
}

/// The error for an interrupted answer of a remote subagent, which nobody can resume.
pub(crate) fn cut_off(turn: &Turn) -> Result<Option<MessageError>, StoreError> {
    let record = RemoteRecord::load(turn.store(), &turn.session_id)?;
    Ok(record.child.map(|_| MessageError::unknown(CUT_OFF)))
}

/// Closes the subagents of earlier jobs that a crash interrupted.
pub(super) async fn settle_lost(turn: &Turn) -> Result<(), Error> {
    let store = turn.store();
    for session in store.subtree(&turn.session_id)?.iter().filter(|session| session.id != turn.session_id) {
        let lost = store.lease_holder(&session.id)?.is_some_and(|holder| !holder.alive);
        if lost && turn.inner.foreign(session)?.is_some() {
            // Its rows record how it ended.
            let _ = turn.inner.start(&session.id).wait_for_end().await;
        }
    }
    Ok(())
}

fn in_use_text(session: &SessionId) -> String {
    format!("{session} is in use")
}

fn child_metadata(stops: bool) -> (String, Json) {
    (SUBAGENT_METADATA.to_owned(), serde_json::json!({ "cancel": stops }))
}

fn title(child: &RunnerChild, agent: &str) -> String {
    let title = cut(child.title.lines().next().unwrap_or_default().trim(), TITLE_MAX);
    match title {
        "" => format!("Subagent (@{agent} subagent)"),
        // The name already follows our pattern.
        named if named.ends_with(" subagent)") => named.to_owned(),
        plain => format!("{plain} (@{agent} subagent)"),
    }
}

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn text_part(head: PartHead, text: String) -> TextPart {
    TextPart { head, text, synthetic: None, ignored: None, time: None, metadata: None, extra: Extra::default() }
}
