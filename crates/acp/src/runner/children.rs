//! The subagents of an agent. Each gets a runner context of its own, where it reports and asks, however the agent
//! announces it.

use std::sync::Arc;

use api::{RunnerChild, RunnerContext, RunnerEnd, RunnerError, RunnerUpdate};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::translate::UpdateTranslator;
use super::{JobFailure, JobState};
use crate::client::{Client, Subagent};

/// A subagent of the agent.
#[derive(Default)]
pub(super) struct ChildRun {
    /// The session that it works for.
    parent: String,
    /// `None` while it is idle, or if it cannot be tracked.
    context: Option<Arc<dyn RunnerContext>>,
    /// What its context knows about it.
    known: RunnerChild,
    translator: UpdateTranslator,
    /// Whether it reported anything by itself.
    has_reported: bool,
    /// It is not tracked: its context refused it or its reports.
    is_untracked: bool,
    /// Cancelled when it is idle.
    idle: CancellationToken,
}

/// A subagent that was started and can be stopped alone.
pub(super) struct StartedChild {
    pub id: String,
    pub context: Arc<dyn RunnerContext>,
    pub idle: CancellationToken,
}

impl JobState {
    /// Handles a change of a subagent.
    pub(super) async fn subagent_changed(&mut self, subagent: &Subagent, client: &Client) -> Result<(), JobFailure> {
        let Some(session) = subagent.session.clone().filter(|session| *session != self.session) else { return Ok(()) };
        let child = self.children.get(&session);
        if child.is_some_and(|child| child.is_untracked)
            || (subagent.parent != self.session && !self.is_working(&subagent.parent))
        {
            // At most its call shows it.
            return match self.translator.subagent(subagent) {
                Some(report) => self.report(report).await,
                None => Ok(()),
            };
        }
        let Some(translator) = self.translator_of(&subagent.parent) else { return Ok(()) };
        // Report the call before the subagent that it waits for.
        let report = translator.subagent(subagent);
        let call = translator.call_of(&session).cloned();
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let prompt = call.as_ref().and_then(|call| text(call.input.get("prompt")?));
        let known = RunnerChild {
            id: session.clone(),
            title: subagent.title.clone(),
            prompt,
            call: call.as_ref().map(|call| call.id.clone()),
            stops: subagent.cancel,
        };
        if let Some(report) = report {
            self.report_to(&subagent.parent, report, client).await?;
        }
        let ended = child_end(subagent);
        let (exists, is_working) =
            self.children.get(&session).map_or((false, false), |child| (true, child.context.is_some()));
        let is_changed = is_working && self.children.get(&session).is_some_and(|child| child.known != known);
        if is_changed || !is_working && (ended.is_none() || !exists) {
            self.open_child(&subagent.parent, known, client).await;
        }
        let Some(ended) = ended else { return Ok(()) };
        if let Some(child) = self.children.get(&session).filter(|child| child.context.is_some() && !child.has_reported)
        {
            // The call's output is all that is known of its work.
            let answer = child.known.call.as_ref().and(call).map(|call| task_result(&call.output).to_owned());
            if let Some(answer) = answer.filter(|answer| !answer.is_empty() && ended.is_ok()) {
                self.report_to_child(&session, RunnerUpdate::Text(answer), client).await;
            }
        }
        self.end_child(&session, ended, client).await;
        Ok(())
    }

    /// Opens a context for a subagent, or updates what it knows.
    async fn open_child(&mut self, parent: &str, known: RunnerChild, client: &Client) {
        let context = match self.children.get(parent) {
            Some(above) => above.context.clone(),
            None => Some(self.context.clone()),
        };
        let Some(context) = context else { return };
        let id = known.id.clone();
        let handle = context.child(known.clone()).await;
        let child = self.children.entry(id.clone()).or_default();
        parent.clone_into(&mut child.parent);
        child.known = known;
        match handle {
            Ok(_) if child.context.is_some() => {}
            Ok(handle) => {
                child.translator = UpdateTranslator::default();
                child.translator.begin(&id, handle.kept.as_ref().and_then(Value::as_f64).unwrap_or(0.0));
                child.idle = CancellationToken::new();
                child.has_reported = false;
                child.context = Some(handle.context.clone());
                client.set_child_context(&id, Some(handle.context.clone()));
                self.started_children.push(StartedChild { id, context: handle.context, idle: child.idle.clone() });
            }
            Err(error) => {
                tracing::info!(%error, subagent = id, "a subagent of the agent is shown in its call only");
                child.is_untracked = child.context.is_none();
            }
        }
    }

    /// Handles an update of a subagent; false if it is not tracked.
    pub(super) async fn child_update(
        &mut self,
        session: &str,
        update: &Value,
        client: &Client,
    ) -> Result<bool, JobFailure> {
        let Some(child) = self.children.get_mut(session).filter(|child| !child.is_untracked) else { return Ok(false) };
        if child.context.is_none() {
            // It is idle: late updates belong to nothing.
            return Ok(true);
        }
        let report = child.translator.update(session, update, &|id| client.terminal_text(id));
        let parent = child.parent.clone();
        if let Some(report) = report {
            child.has_reported |=
                matches!(report, RunnerUpdate::Text(_) | RunnerUpdate::Reasoning(_) | RunnerUpdate::Call(_));
            self.report_to_child(session, report, client).await;
        }
        // Its cost is counted at its own context.
        if update["sessionUpdate"] != "usage_update"
            && let Some(translator) = self.translator_of(&parent)
            && let Some(report) = translator.update(session, update, &|_| None)
        {
            self.report_to(&parent, report, client).await?;
        }
        Ok(true)
    }

    /// The context and the translator of a working subagent.
    pub(super) fn working_child(&mut self, session: &str) -> Option<(Arc<dyn RunnerContext>, &mut UpdateTranslator)> {
        let child = self.children.get_mut(session)?;
        Some((child.context.clone()?, &mut child.translator))
    }

    /// Whether a subagent can be cancelled alone, and the token that tells when it is idle.
    pub(super) fn stop_info(&self, session: &str) -> Option<(bool, CancellationToken)> {
        self.children.get(session).map(|child| (child.known.stops, child.idle.clone()))
    }

    /// Ends the work of a subagent.
    pub(super) async fn end_child(&mut self, session: &str, ended: Result<RunnerEnd, RunnerError>, client: &Client) {
        let Some(child) = self.children.get_mut(session) else { return };
        let Some(context) = child.context.take() else { return };
        child.idle.cancel();
        client.set_child_context(session, None);
        if let Err(error) = context.tell(RunnerUpdate::Finished(ended)).await {
            tracing::warn!(%error, subagent = session, "failed to record the end of a subagent");
        }
    }

    /// Reports to the context of a subagent. If that fails, the subagent is no longer tracked; the work goes on.
    async fn report_to_child(&mut self, session: &str, report: RunnerUpdate, client: &Client) {
        let Some((context, _)) = self.working_child(session) else { return };
        if let Err(error) = context.tell(report).await {
            self.end_child(session, Err(error), client).await;
            if let Some(child) = self.children.get_mut(session) {
                child.is_untracked = true;
            }
        }
    }

    /// Reports to the context of a session, root or subagent.
    async fn report_to(&mut self, session: &str, report: RunnerUpdate, client: &Client) -> Result<(), JobFailure> {
        if session == self.session {
            return self.report(report).await;
        }
        self.report_to_child(session, report, client).await;
        Ok(())
    }

    fn is_working(&self, session: &str) -> bool {
        self.children.get(session).is_some_and(|child| child.context.is_some())
    }

    fn translator_of(&mut self, session: &str) -> Option<&mut UpdateTranslator> {
        if session == self.session {
            return Some(&mut self.translator);
        }
        self.children.get_mut(session).filter(|child| child.context.is_some()).map(|child| &mut child.translator)
    }
}

/// How a subagent ended; `None` while it works.
fn child_end(subagent: &Subagent) -> Option<Result<RunnerEnd, RunnerError>> {
    let failed = || Err(RunnerError(subagent.error.clone().unwrap_or_else(|| "The subagent failed".to_owned())));
    match subagent.state.as_str() {
        "idle" => Some(match subagent.stop.as_deref() {
            Some("max_tokens") => Ok(RunnerEnd::Length),
            Some("refusal") => Ok(RunnerEnd::Refused),
            Some("cancelled") => Ok(RunnerEnd::Stopped),
            Some("error") => failed(),
            _ => Ok(RunnerEnd::Done),
        }),
        "failed" => Some(failed()),
        "cancelled" => Some(Ok(RunnerEnd::Stopped)),
        _ => None,
    }
}

/// The answer of a subagent within the output of its call.
fn task_result(output: &str) -> &str {
    let inside = output.split_once("<task_result>").and_then(|(_, rest)| rest.split_once("</task_result>"));
    inside.map_or(output, |(inside, _)| inside).trim()
}
