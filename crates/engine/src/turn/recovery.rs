//! Recovery: brings what a crash interrupted to a truthful state, and resumes the turn.
//!
//! Read-only calls run again. A call with side effects leaves a mark before it starts. Without the mark it never
//! started (it was waiting for a permission), so it runs now. With the mark it may have happened, so it is marked as
//! interrupted and never repeated silently. A call that waited for a subagent waits for the same one again. Text that
//! was written stays.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api::{
    EventBody, Extra, Message, MessageError, MessageWithParts, Part, PartHead, PartId, SessionId, StepFinishPart,
    ToolError, ToolPart, ToolState, ToolTime, UserMessage,
};
use store::StoreError;
use tools::Effect;

use crate::spending::ledger::{self, ReportedUsage};
use crate::turn::Turn;
use crate::turn::conversation::is_final;
use crate::turn::step::IGNORED;
use crate::turn::tool_call::{CallEnd, STARTED, ToolCall};
use crate::{Error, Inner, remote};

/// A prompt whose turn crashed this often is failed, so that a prompt that kills the process cannot loop.
const CRASHES_MAX: u32 = 2;

/// How many of a session's newest messages may be incomplete: one step runs at a time, and prompts join behind it.
const RECENT_MESSAGES: usize = 200;

/// How long to wait for the last commands of a killed process. Commands that are allowed to finish get half of it.
const EXIT_WAIT: Duration = Duration::from_secs(10);

/// How often to check for them.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The error of an interrupted call. Clients and tests look for the word `interrupted`.
const INTERRUPTED: &str = "interrupted: Trefoil stopped while this call ran, so its outcome is unknown. It may have \
                           taken effect in part or in full; check the state before you repeat it.";
const NOT_RUN: &str = "interrupted: Trefoil stopped before this call was complete; it did not run.";

impl Inner {
    /// Resumes the turns that nobody runs any more: of one session and its background tasks, or of all sessions.
    /// Returns how many.
    pub(crate) async fn recover(self: &Arc<Self>, only: Option<&SessionId>) -> Result<usize, Error> {
        match only {
            Some(only) => self.turns.note_opened(only),
            None => self.discard_drafts().await?,
        }
        let mut resumed = self.resume(only)?;
        resumed.extend(self.follow_all(only).await?);
        if self.store.has_lingering_owner(only)? {
            // A process killed a moment ago keeps its leases until its last command has exited.
            let exited = async {
                while self.store.has_lingering_owner(only)? {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                Ok::<_, Error>(())
            };
            if let Ok(exited) = tokio::time::timeout(EXIT_WAIT, exited).await {
                exited?;
            }
            resumed.extend(self.resume(only)?);
        }
        Ok(resumed.len())
    }

    fn resume(self: &Arc<Self>, only: Option<&SessionId>) -> Result<HashSet<SessionId>, Error> {
        let mut resumed = HashSet::new();
        for session in self.store.unfinished_sessions()? {
            let wanted = only.is_none_or(|only| *only == session);
            // A lease of our own without a turn is left over from a turn that could not release it.
            let elsewhere =
                || self.store.lease_holder(&session).map(|holder| holder.is_some_and(|h| h.alive && !h.own));
            if wanted && !self.turns.is_running(&session) && !elsewhere()? {
                self.start(&session);
                resumed.insert(session);
            }
        }
        Ok(resumed)
    }
}

/// Repairs what an earlier run left behind. Returns true if there was something to do. `ended_well`: whether the last
/// run is known to have ended well.
pub(crate) async fn repair(turn: &Arc<Turn>, crashed: bool, ended_well: bool) -> Result<bool, Error> {
    if turn.run.is_parked() {
        return Err(Error::Parked);
    }
    if ended_well && !crashed {
        return Ok(false);
    }
    let store = turn.store();
    let inbox = turn.inbox()?;
    if crashed {
        let mut batch = turn.batch().durable();
        for row in &inbox {
            batch.count_attempt(&row.message_id);
        }
        turn.commit(batch).await?;
    }
    let lost: Vec<_> = inbox.iter().filter(|row| row.attempts + u32::from(crashed) >= CRASHES_MAX).collect();
    let mut repaired = crashed || !lost.is_empty();
    if crashed || !inbox.is_empty() {
        let incomplete = store.incomplete_answers(&turn.session_id, RECENT_MESSAGES)?;
        charge_cut_off_calls(turn, &incomplete).await?;
        for message in incomplete {
            repaired = true;
            // Nothing runs again for a prompt that is given up, because a call may be what kills the process. Nor for an
            // aborted turn.
            repair_message(turn, message, lost.is_empty() && !turn.cancel().is_cancelled()).await?;
        }
    }
    for row in lost {
        fail_prompt(turn, &row.message_id).await?;
    }
    Ok(repaired)
}

/// Charges interrupted model calls for what they had written. This happens before anything runs again, because their
/// reservations may block it.
async fn charge_cut_off_calls(turn: &Turn, incomplete: &[MessageWithParts]) -> Result<(), Error> {
    let calls = turn.store().reservations(&turn.session_id)?;
    if calls.is_empty() {
        return Ok(());
    }
    let mut batch = turn.batch();
    for call in calls {
        let message = incomplete.iter().find(|message| message.info.id().as_str() == call.id);
        let written = message.map_or(0, |message| message.parts.iter().map(written_bytes).sum());
        let used = call.estimate(ledger::tokens(written));
        batch.spend(&call.id, &used);
        ledger::charge(&mut batch, &call.session, used.cost, used.tokens);
    }
    turn.commit(batch).await?;
    turn.inner.spending.call_ended();
    Ok(())
}

/// The bytes of a part that the last attempt wrote.
fn written_bytes(part: &Part) -> usize {
    match part {
        Part::Text(text) if text.ignored != Some(true) => text.text.len(),
        Part::Reasoning(text) if !text.metadata.as_ref().is_some_and(|m| m.contains_key(IGNORED)) => text.text.len(),
        Part::Tool(tool) => tool.tool.len() + api::json_size(tool.state.input()),
        _ => 0,
    }
}

/// What the parts of an incomplete answer need.
#[derive(Default)]
struct PartRepairs {
    /// The parts that were still open, closed now.
    closed: Vec<Part>,
    /// The calls that end as interrupted, with the subagents that nobody waits for any more.
    interrupted: Vec<(PartId, Option<SessionId>)>,
    /// The calls to run again.
    again: Vec<ToolPart>,
    /// Whether the model called tools.
    called_tools: bool,
}

impl PartRepairs {
    fn of(turn: &Turn, parts: Vec<Part>, user: Option<&UserMessage>, may_rerun: bool) -> Result<Self, Error> {
        let mut repairs = Self::default();
        for mut part in parts {
            let end = api::now();
            match &mut part {
                Part::Text(text) if text.time.as_ref().is_some_and(|t| t.end.is_none()) => {
                    text.time.get_or_insert_default().end = Some(end);
                    repairs.closed.push(part);
                }
                Part::Reasoning(text) if text.time.end.is_none() => {
                    text.time.end = Some(end);
                    repairs.closed.push(part);
                }
                Part::Tool(tool) => {
                    repairs.called_tools = true;
                    match (&tool.state, user) {
                        (state, _) if state.is_done() => {}
                        (ToolState::Running(_), Some(user)) if may_rerun && can_run_again(turn, user, tool)? => {
                            repairs.again.push(tool.clone());
                        }
                        _ => {
                            let link = turn.store().task_link(&tool.head.id)?;
                            repairs.interrupted.push((tool.head.id.clone(), link.map(|link| link.task.child)));
                            interrupt(tool);
                            repairs.closed.push(part);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(repairs)
    }

    /// Stops the subagents that nobody waits for any more, and stores what has ended.
    async fn store(&self, turn: &Turn) -> Result<(), StoreError> {
        for child in self.interrupted.iter().filter_map(|(_, child)| child.as_ref()) {
            if let Err(error) = turn.inner.stop_unwanted(child).await {
                tracing::warn!(%child, %error, "cannot stop a subagent");
            }
        }
        let mut batch = turn.batch();
        for (call, child) in &self.interrupted {
            if child.is_some() {
                batch.end_task(call);
            }
            batch.record(STARTED, call.as_str(), None, None);
        }
        for part in &self.closed {
            batch.publish_part(part);
        }
        turn.commit_any(batch).await.map(drop)
    }
}

async fn repair_message(turn: &Arc<Turn>, message: MessageWithParts, may_rerun: bool) -> Result<(), Error> {
    let Message::Assistant(mut info) = message.info else { return Ok(()) };
    let user = turn.store().message(&info.parent_id)?;
    let user = user.as_ref().and_then(|m| m.info.as_user());
    // The process that wrote the other parts may have had a different clock.
    let finish = PartHead::after(&turn.session_id, &info.id, &message.parts);
    let repairs = PartRepairs::of(turn, message.parts, user, may_rerun)?;
    repairs.store(turn).await?;
    let reason = if repairs.called_tools { "tool-calls" } else { "unknown" };
    let mut rejected = false;
    if let Some(user) = user {
        rejected = run_again(turn, user, repairs.again).await?;
    }
    let reported = ReportedUsage::of(turn.store(), &turn.session_id, &info.id)?;
    let cut_off = remote::cut_off(turn)?;
    let mut batch = turn.batch().durable();
    if let Some(reported) = reported {
        (info.cost, info.tokens) = (reported.cost, reported.tokens.clone());
        reported.settle(&mut batch, &turn.session_id);
    }
    if let Some(error) = cut_off {
        let session_id = Some(turn.session_id.clone());
        batch.event(EventBody::SessionError { session_id, error: Some(error.clone()) });
        info.error = Some(error);
    } else {
        batch.publish_part(&Part::StepFinish(StepFinishPart {
            head: finish,
            reason: reason.to_owned(),
            snapshot: None,
            cost: info.cost,
            tokens: info.tokens.clone(),
            extra: Extra::default(),
        }));
        info.finish = Some(if rejected { "stop" } else { reason }.to_owned());
    }
    info.time.completed = Some(api::now());
    batch.publish_message(Message::Assistant(info));
    turn.commit(batch).await?;
    Ok(())
}

/// The vendor's name of the model, which decides which tools there are.
fn vendor_model(turn: &Turn, user: &UserMessage) -> String {
    let target = turn.inner.resolve(&turn.instance, &user.model);
    target.map_or_else(|_| user.model.model_id.clone(), |target| target.model.api.id)
}

/// A call may run (again) if it has no side effects, if it can resume, or if it had not started.
fn can_run_again(turn: &Turn, user: &UserMessage, tool: &ToolPart) -> Result<bool, Error> {
    if remote::is_provider_executed(tool) {
        return Ok(false);
    }
    let registry = turn.instance.tools_for(&vendor_model(turn, user));
    if registry.get(&tool.tool).is_some_and(|t| t.effect() != Effect::SideEffect) {
        return Ok(true);
    }
    Ok(turn.store().record(STARTED, tool.head.id.as_str())?.is_none())
}

/// Runs calls again in parallel. Returns true if the user rejected one.
async fn run_again(turn: &Arc<Turn>, user: &UserMessage, calls: Vec<ToolPart>) -> Result<bool, Error> {
    let rules = turn.rules(&user.agent).await?;
    let running = calls.into_iter().map(|part| {
        let input = part.state.input().clone();
        let call = ToolCall {
            turn: turn.clone(),
            rules: rules.clone(),
            vendor_model: vendor_model(turn, user),
            model_ref: user.model.clone(),
            agent: user.agent.clone(),
            prompt: user.id.clone(),
            format: user.format.clone(),
            repeats: 0,
            part,
            earlier_asks: Vec::new(),
            on_running: None,
        };
        call.execute(input)
    });
    let ended = futures::future::try_join_all(running).await?;
    Ok(ended.iter().any(|(_, ended)| *ended == CallEnd::Rejected))
}

fn interrupt(tool: &mut ToolPart) {
    let now = api::now();
    let (text, start) = match &tool.state {
        ToolState::Running(running) => (INTERRUPTED, running.time.start),
        _ => (NOT_RUN, now),
    };
    let mut metadata = api::JsonMap::new();
    metadata.insert("interrupted".to_owned(), true.into());
    tool.state = ToolState::Error(ToolError {
        input: tool.state.input().clone(),
        error: text.to_owned(),
        metadata: Some(metadata),
        time: ToolTime { start, end: Some(now), compacted: None },
    });
}

/// Visibly fails a prompt, unless its answer is complete and only the end of its turn was interrupted. The prompt
/// leaves the inbox at that end, so that a crash in between cannot leave an idle session looking busy.
async fn fail_prompt(turn: &Arc<Turn>, message: &api::MessageId) -> Result<(), Error> {
    let messages = turn.store().messages_from(&turn.session_id, message)?;
    let answered = messages.iter().filter_map(|(m, _)| m.info.as_assistant()).any(is_final);
    let user = messages.first().and_then(|(m, _)| m.info.as_user());
    let Some(user) = user.filter(|_| !answered) else { return Ok(()) };
    let error = MessageError::unknown(format!(
        "The turn was interrupted by a crash {CRASHES_MAX} times and is given up. Send the message again to \
         retry it."
    ));
    let mut answer = turn.new_answer(user);
    answer.error = Some(error.clone());
    answer.time.completed = Some(api::now());
    let mut batch = turn.batch().durable();
    batch.event(EventBody::SessionError { session_id: Some(turn.session_id.clone()), error: Some(error) });
    batch.publish_message(Message::Assistant(answer));
    turn.commit(batch).await?;
    Ok(())
}
