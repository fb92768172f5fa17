//! The subagents of an agent: each that is told of, in whatever way, reports and asks at a desk of its own.

use std::sync::Arc;

use api::{Desk, RunnerChild, RunnerEnd, RunnerError, RunnerNews};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::translate::Report;
use super::{Failure, Work};
use crate::client::{Client, Subagent};

/// A subagent of the agent.
#[derive(Default)]
pub(super) struct Child {
    /// The session that it works for.
    parent: String,
    /// Nothing while it rests, and if there is no room for it.
    desk: Option<Arc<dyn Desk>>,
    /// What its desk knows of it.
    known: RunnerChild,
    report: Report,
    /// It told something by itself.
    spoke: bool,
    /// It is not followed: there was no room for it, or what it told could not be taken in.
    given_up: bool,
    /// Cancelled when it rests.
    rests: CancellationToken,
}

/// One that may be stopped alone from now on.
pub(super) struct Begun {
    pub id: String,
    pub desk: Arc<dyn Desk>,
    pub rests: CancellationToken,
}

impl Work {
    /// Takes what is known of a subagent.
    pub(super) async fn subagent(&mut self, told: &Subagent, client: &Client) -> Result<(), Failure> {
        let Some(session) = told.session.clone().filter(|session| *session != self.session) else { return Ok(()) };
        let child = self.children.get(&session);
        if child.is_some_and(|child| child.given_up) || (told.parent != self.session && !self.works(&told.parent)) {
            // It is seen in a call at most.
            return match self.report.subagent(told) {
                Some(news) => self.tell(news).await,
                None => Ok(()),
            };
        }
        let Some(report) = self.report_of(&told.parent) else { return Ok(()) };
        // The call is known at the desk before the one that it waits for.
        let news = report.subagent(told);
        let call = report.call_of(&session).cloned();
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let prompt = call.as_ref().and_then(|call| text(call.input.get("prompt")?));
        let known = RunnerChild {
            id: session.clone(),
            title: told.title.clone(),
            prompt,
            call: call.as_ref().map(|call| call.id.clone()),
            stops: told.cancel,
        };
        if let Some(news) = news {
            self.tell_at(&told.parent, news, client).await?;
        }
        let ended = end(told);
        let (begun, open) = self.children.get(&session).map_or((false, false), |child| (true, child.desk.is_some()));
        let renewed = open && self.children.get(&session).is_some_and(|child| child.known != known);
        if renewed || !open && (ended.is_none() || !begun) {
            self.seat(&told.parent, known, client).await;
        }
        let Some(ended) = ended else { return Ok(()) };
        if let Some(child) = self.children.get(&session).filter(|child| child.desk.is_some() && !child.spoke) {
            // All that is known of its work is what the call gave.
            let said = child.known.call.as_ref().and(call).map(|call| result(&call.output).to_owned());
            if let Some(said) = said.filter(|said| !said.is_empty() && ended.is_ok()) {
                self.tell_child(&session, RunnerNews::Text(said), client).await;
            }
        }
        self.rest(&session, ended, client).await;
        Ok(())
    }

    /// Gets a subagent its desk, or brings up to date what that one knows.
    async fn seat(&mut self, parent: &str, known: RunnerChild, client: &Client) {
        let desk = match self.children.get(parent) {
            Some(above) => above.desk.clone(),
            None => Some(self.desk.clone()),
        };
        let Some(desk) = desk else { return };
        let id = known.id.clone();
        let seat = desk.child(known.clone()).await;
        let child = self.children.entry(id.clone()).or_default();
        parent.clone_into(&mut child.parent);
        child.known = known;
        match seat {
            Ok(_) if child.desk.is_some() => {}
            Ok(seat) => {
                child.report = Report::default();
                child.report.begin(&id, seat.kept.as_ref().and_then(Value::as_f64).unwrap_or(0.0));
                child.rests = CancellationToken::new();
                child.spoke = false;
                child.desk = Some(seat.desk.clone());
                client.seat(&id, Some(seat.desk.clone()));
                self.begun.push(Begun { id, desk: seat.desk, rests: child.rests.clone() });
            }
            Err(error) => {
                tracing::info!(%error, subagent = id, "a subagent of the agent is seen in its call alone");
                child.given_up = child.desk.is_none();
            }
        }
    }

    /// Takes what a subagent does; false if it has no desk.
    pub(super) async fn child_update(
        &mut self,
        session: &str,
        update: &Value,
        client: &Client,
    ) -> Result<bool, Failure> {
        let Some(child) = self.children.get_mut(session).filter(|child| !child.given_up) else { return Ok(false) };
        if child.desk.is_none() {
            // It rests: what comes late belongs to nothing.
            return Ok(true);
        }
        let news = child.report.update(session, update, &|id| client.terminal_text(id));
        let parent = child.parent.clone();
        if let Some(news) = news {
            child.spoke |= matches!(news, RunnerNews::Text(_) | RunnerNews::Reasoning(_) | RunnerNews::Call(_));
            self.tell_child(session, news, client).await;
        }
        // Its money is counted at its own desk.
        if update["sessionUpdate"] != "usage_update"
            && let Some(report) = self.report_of(&parent)
            && let Some(news) = report.update(session, update, &|_| None)
        {
            self.tell_at(&parent, news, client).await?;
        }
        Ok(true)
    }

    /// The desk of a subagent that works, and its report.
    pub(super) fn at_work(&mut self, session: &str) -> Option<(Arc<dyn Desk>, &mut Report)> {
        let child = self.children.get_mut(session)?;
        Some((child.desk.clone()?, &mut child.report))
    }

    /// Whether a subagent can be stopped alone; what tells that it rests.
    pub(super) fn stops(&self, session: &str) -> Option<(bool, CancellationToken)> {
        self.children.get(session).map(|child| (child.known.stops, child.rests.clone()))
    }

    /// A subagent has ended what it did.
    pub(super) async fn rest(&mut self, session: &str, ended: Result<RunnerEnd, RunnerError>, client: &Client) {
        let Some(child) = self.children.get_mut(session) else { return };
        let Some(desk) = child.desk.take() else { return };
        child.rests.cancel();
        client.seat(session, None);
        if let Err(error) = desk.tell(RunnerNews::Rests(ended)).await {
            tracing::warn!(%error, subagent = session, "the end of a subagent could not be written down");
        }
    }

    /// Tells the desk of a subagent. One whose desk takes nothing more is not followed any further; the work goes on.
    async fn tell_child(&mut self, session: &str, news: RunnerNews, client: &Client) {
        let Some((desk, _)) = self.at_work(session) else { return };
        if let Err(error) = desk.tell(news).await {
            self.rest(session, Err(error), client).await;
            if let Some(child) = self.children.get_mut(session) {
                child.given_up = true;
            }
        }
    }

    /// Tells the desk of a session, whosever it is.
    async fn tell_at(&mut self, session: &str, news: RunnerNews, client: &Client) -> Result<(), Failure> {
        if session == self.session {
            return self.tell(news).await;
        }
        self.tell_child(session, news, client).await;
        Ok(())
    }

    fn works(&self, session: &str) -> bool {
        self.children.get(session).is_some_and(|child| child.desk.is_some())
    }

    fn report_of(&mut self, session: &str) -> Option<&mut Report> {
        if session == self.session {
            return Some(&mut self.report);
        }
        self.children.get_mut(session).filter(|child| child.desk.is_some()).map(|child| &mut child.report)
    }
}

/// How a subagent ended what it did; nothing if it works.
fn end(told: &Subagent) -> Option<Result<RunnerEnd, RunnerError>> {
    let failed = || Err(RunnerError(told.error.clone().unwrap_or_else(|| "The subagent failed".to_owned())));
    match told.state.as_str() {
        "idle" => Some(match told.stop.as_deref() {
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

/// The words of a subagent in what its call gave.
fn result(output: &str) -> &str {
    let inside = output.split_once("<task_result>").and_then(|(_, rest)| rest.split_once("</task_result>"));
    inside.map_or(output, |(inside, _)| inside).trim()
}
