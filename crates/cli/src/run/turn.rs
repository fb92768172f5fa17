//! Shows one turn, answers its requests, and cancels it at Ctrl-C.

mod requests;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{
    Blocked, EventBody, Host, HostError, ListMessages, MessageId, MessageWithParts, PermissionReplyKind, Scope,
    SessionId, SessionStatus, TreeNode,
};
use follow::{Feed, Item, MAX_MESSAGES, Patience, Stopper, Task, TurnHandle, family, open_asks};
use rustix::io::Errno;

use super::asks::{Ask, AskQueue};
use super::display::Display;
use super::render::Totals;
use super::subagents::SubagentTracker;
use super::verdict;
use super::verdict::{TurnFlags, check_answer, has_content};
use crate::exit::{Exit, Failure};
use crate::terminal::{self, LineReader, Style};
use crate::wiring::{Interrupt, Signal};

/// How often the spinner turns.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
/// How long a cancelled turn may take to stop.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// How long a prompt may take to be stored when a signal ends this process.
const STORE_WAIT: Duration = Duration::from_secs(3);
/// How often the stored state is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long to wait for the session's title after the turn.
const TITLE_WAIT: Duration = Duration::from_secs(2);

/// How a turn is shown, and how its requests are answered.
pub struct Options {
    /// Print one JSON event per line.
    pub json: bool,
    /// Allow every permission that is requested.
    pub yes: bool,
    /// The user can be asked.
    pub interactive: bool,
    /// How notes are painted.
    pub style: Style,
    /// Both output streams go to a terminal.
    pub on_terminal: bool,
    /// The message of the prompt.
    pub prompt: Option<MessageId>,
    /// The prompt is sent from here; otherwise it was already stored.
    pub sends: bool,
    /// The session existed before: something may wait in it.
    pub resumed: bool,
    /// The prompt has its answer: only background tasks of its turn can continue.
    pub is_answered: bool,
    /// The terminal takes nothing but text.
    pub dumb: bool,
    /// The server that runs the turn. Without one it runs in this process, and is parked when the process ends.
    pub attached: Option<String>,
}

/// One turn.
pub struct Turn {
    host: Arc<dyn Host>,
    scope: Scope,
    session: SessionId,
    /// The subagents of the session, whose requests are answered here too.
    subagents: SubagentTracker,
    options: Options,
    display: Display,
    asks: AskQueue,
    input: LineReader,
    /// Whether the first request is on the screen.
    is_prompted: bool,
    flags: TurnFlags,
    /// Whether this process resumed the turn of one that died.
    recovered: bool,
    /// Whether a turn of the session runs, according to events.
    busy: bool,
    /// The budget that nobody can raise.
    blocked: Option<Blocked>,
    /// Stops the turn, once it was sent.
    stopper: Option<Stopper>,
    /// When to stop waiting for a turn that is being stopped.
    deadline: Option<tokio::time::Instant>,
    started: Instant,
}

impl Turn {
    /// A turn of that session.
    pub fn new(host: Arc<dyn Host>, scope: Scope, session: SessionId, input: LineReader, options: Options) -> Self {
        let Options { style, on_terminal, json, dumb, .. } = options;
        Self {
            host,
            scope,
            subagents: SubagentTracker::new(session.clone(), style),
            display: Display::new(session.clone(), style, on_terminal, json, dumb),
            session,
            asks: AskQueue::new(style, terminal::height()),
            input,
            is_prompted: false,
            options,
            flags: TurnFlags::default(),
            recovered: false,
            busy: false,
            blocked: None,
            stopper: None,
            deadline: None,
            started: Instant::now(),
        }
    }

    /// Runs a task, or what waits in the session, and shows it until it has its answer.
    pub async fn run(mut self, task: Task, interrupt: Interrupt) -> anyhow::Result<()> {
        let before = if self.options.resumed { self.ledger().await } else { None };
        let result = self.begin(task, interrupt).await;
        self.display.subagent_summary(&self.subagents);
        self.load_totals(before).await;
        // A turn that never began used nothing.
        let began = !matches!(&result, Err(error) if error.is::<HostError>());
        let shown = self.display.finish(began.then(|| self.started.elapsed()));
        if result.is_ok() {
            self.display.continue_hint(self.options.attached.as_deref());
        }
        self.display.hide();
        let answer = match result {
            Ok(answer) => answer,
            Err(error) if self.flags.cancelled && !error.is::<Failure>() => return Err(verdict::cancelled().into()),
            Err(error) => {
                if let Some(error) = error.downcast_ref::<HostError>() {
                    self.display.error(&error.to_string())?;
                }
                return Err(error);
            }
        };
        shown.map_err(stdout_failed)?;
        if let Some(blocked) = &self.blocked {
            return Err(verdict::blocked(blocked).into());
        }
        check_answer(&answer, self.flags)?;
        if self.is_empty_turn(&answer).await {
            let text = "the model gave an empty answer; ask again with `trefoil run -c`, or choose another model with --model\n";
            self.display.advise(text);
        }
        Ok(())
    }

    /// What the session and all below it have used, if the host counts that and the output shows it.
    async fn ledger(&self) -> Option<TreeNode> {
        if !self.display.shows_totals() || !self.host.features().tree {
            return None;
        }
        self.host.tree(&self.session).await.ok()?.sessions.into_iter().next()
    }

    /// Takes the turn's totals from the ledger. Waits for a title that is being made, because it counts too.
    async fn load_totals(&mut self, before: Option<TreeNode>) {
        if self.options.resumed && before.is_none() {
            return;
        }
        let deadline = Instant::now() + TITLE_WAIT;
        while let Some(after) = self.ledger().await {
            let is_done = after.titling.as_ref().is_none_or(|titling| !titling.running);
            if is_done || Instant::now() >= deadline {
                return self.display.set_totals(Totals::between(before.as_ref(), &after));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Whether the turn runs in this process.
    fn is_local(&self) -> bool {
        self.options.attached.is_none()
    }

    /// Whether no answer of the turn has text or calls.
    async fn is_empty_turn(&self, last: &MessageWithParts) -> bool {
        let Some(prompt) = last.info.as_assistant().map(|last| &last.parent_id) else { return false };
        if has_content(last) {
            return false;
        }
        let query = ListMessages { limit: Some(MAX_MESSAGES), before: None };
        let page = self.host.messages(&self.session, query).await.unwrap_or_default();
        let answers = page.messages.iter().filter(|m| m.info.as_assistant().is_some_and(|m| m.parent_id == *prompt));
        !answers.into_iter().any(has_content)
    }

    async fn begin(&mut self, task: Task, interrupt: Interrupt) -> anyhow::Result<MessageWithParts> {
        let (host, scope, session) = (self.host.clone(), self.scope.clone(), self.session.clone());
        let patience = if self.is_local() { Patience::NONE } else { Patience::of(&*host) };
        let feed = Feed::open(host.clone(), scope, session.clone(), patience).await?;
        let feed = feed.since(self.options.prompt.clone());
        if self.options.resumed {
            self.catch_up().await?;
        }
        let mut turn = TurnHandle::new(host, session, task, patience);
        if self.options.sends {
            turn = turn.delivered_by(feed.handle());
        }
        self.stopper = Some(turn.stopper());
        self.follow(turn, feed, interrupt).await
    }

    async fn follow(
        &mut self,
        mut turn: TurnHandle,
        mut feed: Feed,
        interrupt: Interrupt,
    ) -> anyhow::Result<MessageWithParts> {
        let mut ticker = tokio::time::interval(REDRAW_INTERVAL);
        let mut last: Option<MessageWithParts> = None;
        loop {
            let deadline = self.deadline;
            let waiting = self.asks.is_waiting();
            tokio::select! {
                biased;
                () = interrupt.token.cancelled(), if deadline.is_none() => {
                    let signal = interrupt.signal().unwrap_or(Signal::Interrupt);
                    if signal != Signal::Interrupt {
                        return self.leave(signal, turn, last).await;
                    }
                    self.flags.cancelled = true;
                    if !self.owns_turn().await {
                        return Err(verdict::detached(signal).into());
                    }
                    self.cancel();
                }
                item = feed.next() => {
                    self.handle_item(item?).await?;
                    if last.is_some() && self.is_tree_idle().await {
                        return self.last_answer(last).await;
                    }
                }
                // After the pending events: the answer to one request may have settled the next.
                () = std::future::ready(()), if waiting && !self.is_prompted => self.show_request(),
                line = self.input.line(), if waiting => self.handle_line(line).await,
                // Last of the events: by now all that are ready were shown.
                answer = turn.answer(), if last.is_none() => {
                    let answer = answer?.ok_or_else(no_answer)?;
                    if !self.waits_for_subagents().await {
                        return Ok(answer);
                    }
                    last = Some(answer);
                }
                _ = ticker.tick(), if self.display.can_redraw() && !waiting => self.redraw(),
                () = until(deadline), if deadline.is_some() => {
                    let seconds = STOP_WAIT.as_secs();
                    return Err(Failure::new(Exit::Cancelled, format!("the turn did not stop within {seconds} s")).into());
                }
            }
        }
    }

    /// Whether the session waits for subagents in the background, or has just got a report: reports start another turn.
    async fn waits_for_subagents(&mut self) -> bool {
        let is_resumed = self.recovered && self.busy;
        if self.subagents.is_empty() && !is_resumed || self.flags.cancelled || self.blocked.is_some() {
            return false;
        }
        let waits = match self.host.background(&self.session, false).await {
            Ok(waits) => waits,
            Err(error) if self.subagents.has_live() => {
                let error = api::strip_control(&error.to_string()).into_owned();
                self.display
                    .note(&format!("cannot wait for the subagents in the background, which keep working: {error}\n"));
                return false;
            }
            Err(_) => return false,
        };
        // The event of the waiting turn may not have arrived yet.
        self.busy |= waits;
        waits || is_resumed || self.host.waiting(&self.session).await.is_ok_and(|waiting| !waiting.is_empty())
    }

    /// Whether nothing in the session's tree runs or is about to.
    async fn is_tree_idle(&self) -> bool {
        !self.busy
            && !self.subagents.has_live()
            && self.host.waiting(&self.session).await.is_ok_and(|waiting| waiting.is_empty())
    }

    /// The newest answer of the session.
    async fn last_answer(&self, known: Option<MessageWithParts>) -> anyhow::Result<MessageWithParts> {
        let query = ListMessages { limit: Some(MAX_MESSAGES), before: None };
        let page = self.host.messages(&self.session, query).await?;
        let newest = page.messages.into_iter().rev().find(|message| message.info.as_assistant().is_some());
        newest.or(known).ok_or_else(|| no_answer().into())
    }

    async fn handle_item(&mut self, item: Item) -> anyhow::Result<()> {
        match item {
            Item::Event(event) => self.handle_event(&event.body).await,
            // Nothing is shown twice.
            Item::Stored(stored) => {
                for event in stored.into_events() {
                    self.handle_event(&event).await?;
                }
                self.check_budgets().await
            }
            Item::Unread(error) => Err(error.into()),
        }
    }

    /// Prepares a session that existed before: resumes a turn that a crash interrupted, and asks its open requests again.
    async fn catch_up(&mut self) -> anyhow::Result<()> {
        let subagents = family(&*self.host, &self.session).await?;
        for child in &subagents {
            self.subagents.add(child);
        }
        self.recovered = self.host.recover(Some(&self.session)).await? > 0;
        if self.options.is_answered && !self.recovered {
            return Err(super::nothing_to_resume(&self.session).into());
        }
        // Resumed work ends with a turn of the session, whose first event may not have arrived yet.
        self.busy |= self.recovered;
        for ask in open_asks(&*self.host, &self.scope, &self.session, &subagents).await? {
            self.handle_event(&ask).await?;
        }
        self.check_budgets().await
    }

    /// Whether this process may stop the turn: it sent the first prompt or resumed the turn. A turn that another terminal started
    /// belongs to that one.
    async fn owns_turn(&self) -> bool {
        if self.recovered {
            return true;
        }
        let waiting = self.host.waiting(&self.session).await.unwrap_or_default();
        waiting.first().is_none_or(|first| self.options.sends && self.options.prompt.as_ref() == Some(first))
    }

    /// Handles the budgets that are used up already.
    async fn check_budgets(&mut self) -> anyhow::Result<()> {
        if self.host.features().tree {
            let tree = self.host.tree(&self.session).await?;
            for blocked in tree.sessions.into_iter().filter_map(|node| node.blocked) {
                self.wait_for_budget(&blocked).await?;
            }
        }
        Ok(())
    }

    async fn handle_event(&mut self, event: &EventBody) -> anyhow::Result<()> {
        self.update_size();
        if let Some(notice) = self.subagents.event(event, api::now()) {
            self.display.notice(notice);
        }
        if let Err(error) = self.display.event(event) {
            return Err(self.output_failed(error).await);
        }
        if !event.session_id().is_some_and(|session| self.subagents.contains(session)) {
            return Ok(());
        }
        match event {
            EventBody::SessionStatus { session_id, status } if *session_id == self.session => {
                self.busy = *status != SessionStatus::Idle;
            }
            EventBody::SessionIdle { session_id } if *session_id == self.session => self.busy = false,
            EventBody::SessionTree { blocked: Some(blocked), .. } => self.wait_for_budget(blocked).await?,
            EventBody::PermissionAsked(request) => self.ask(Ask::Permission(request.clone())).await,
            EventBody::QuestionAsked(request) => self.ask(Ask::Question(request.clone())).await,
            EventBody::PermissionReplied { request_id, reply, .. } => {
                self.flags.rejected |= *reply == PermissionReplyKind::Reject;
                self.close_request(request_id.as_str());
            }
            EventBody::QuestionRejected { request_id, .. } => {
                self.flags.rejected = true;
                self.close_request(request_id.as_str());
            }
            EventBody::QuestionReplied { request_id, .. } => self.close_request(request_id.as_str()),
            _ => {}
        }
        Ok(())
    }

    /// Handles output that nobody reads any more. Returns how the run ends.
    async fn output_failed(&self, error: io::Error) -> anyhow::Error {
        let owns = self.owns_turn().await;
        if error.raw_os_error() == Some(Errno::IO.raw_os_error()) {
            // The terminal was closed, and SIGHUP is on its way.
            let failure = match self.is_local() && owns {
                true => verdict::parked(Signal::Hangup, &self.session),
                false => verdict::detached(Signal::Hangup),
            };
            return failure.into();
        }
        // Nobody reads the answer any more, so the work stops.
        if owns {
            let _ = tokio::time::timeout(STOP_WAIT, self.host.abort(&self.session)).await;
        }
        stdout_failed(error)
    }

    /// Handles a turn that waits for its budget: tells the user how to raise it, or stops the turn if there is no user.
    async fn wait_for_budget(&mut self, blocked: &Blocked) -> anyhow::Result<()> {
        if self.flags.cancelled || self.blocked.is_some() {
            return Ok(());
        }
        if self.options.interactive {
            let message = api::strip_control(&blocked.message).into_owned();
            self.display.note(&format!(
                "{message}\n  to continue, run in another terminal: {}\n",
                verdict::raise_command(blocked)
            ));
            return Ok(());
        }
        if !self.owns_turn().await {
            return Err(verdict::blocked(blocked).into());
        }
        self.blocked = Some(blocked.clone());
        self.stop();
        Ok(())
    }

    fn cancel(&mut self) {
        self.asks.clear();
        self.display.close_question();
        self.display.note("cancelling; press Ctrl-C again to quit at once\n");
        self.stop();
    }

    /// Leaves the turn after a signal. The engine parks a turn of this process when it shuts down, after this; a turn of another
    /// process continues there. `last`: the answer so far.
    async fn leave(
        &mut self,
        signal: Signal,
        mut turn: TurnHandle,
        last: Option<MessageWithParts>,
    ) -> anyhow::Result<MessageWithParts> {
        if !self.is_local() || !self.owns_turn().await {
            return Err(verdict::detached(signal).into());
        }
        if last.is_none() && self.options.sends {
            // The prompt is about to be stored. An answer that arrives first counts.
            let stored = async {
                while !self.is_stored().await {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            };
            tokio::select! {
                biased;
                () = stored => {}
                answer = turn.answer() => return Ok(answer?.ok_or_else(no_answer)?),
                () = tokio::time::sleep(STORE_WAIT) => return Err(verdict::unsent(signal).into()),
            }
        }
        Err(verdict::parked(signal, &self.session).into())
    }

    /// Whether the prompt is stored and waits for its answer.
    async fn is_stored(&self) -> bool {
        let waiting = self.host.waiting(&self.session).await.unwrap_or_default();
        waiting.iter().any(|id| Some(id) == self.options.prompt.as_ref())
    }

    fn stop(&mut self) {
        self.deadline = Some(tokio::time::Instant::now() + STOP_WAIT);
        if let Some(stopper) = &self.stopper {
            tokio::spawn(stopper.stop());
        }
    }

    /// Adapts to the current size of the terminal.
    fn update_size(&mut self) {
        if self.display.update_size() {
            self.asks.resize(self.display.style(), terminal::height());
        }
    }

    fn redraw(&mut self) {
        self.update_size();
        self.display.redraw(&self.subagents, self.deadline.is_some(), api::now());
    }
}

async fn until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn no_answer() -> Failure {
    Failure::new(Exit::Failed, "the session has no answer")
}

fn stdout_failed(error: io::Error) -> anyhow::Error {
    let message = format!("cannot write the answer to standard output: {error}");
    Failure::new(Exit::Failed, message).hint("continue with `trefoil run -c \"continue\"`").into()
}
