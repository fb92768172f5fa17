//! Follows one turn: prints its events, answers its requests, and cancels it at Ctrl-C.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{
    Blocked, Cursor, EventBody, Host, HostError, HostFuture, ListMessages, MessageError, MessageId, MessageWithParts,
    PermissionReply, PermissionReplyKind, Scope, SessionId, SessionStatus, TreeNode, WatchItem, WatchScope,
};
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use rustix::io::Errno;

use super::asks::{Ask, AskQueue, LineEffect, Reply, reject, summary};
use super::render::{Piece, Renderer, Totals};
use super::subagents::{SubagentNotice, SubagentTracker};
use super::verdict::{TurnFlags, check_answer, has_content};
use super::{json, verdict};
use crate::exit::{Exit, Failure};
use crate::terminal::{self, LineReader, Screen, Style, plural, tree_rows};
use crate::wiring::{Interrupt, Signal};

/// How often the spinner turns.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
/// How long a cancelled turn may take to stop.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// How long the events of an answer may arrive after it.
const LATE_EVENTS_WAIT: Duration = Duration::from_secs(2);
/// A turn that has not started cannot be aborted; how soon to try again.
const ABORT_RETRY_DELAY: Duration = Duration::from_millis(20);
/// How long a prompt may take to be stored when a signal ends this process.
const STORE_WAIT: Duration = Duration::from_secs(3);
/// How often the stored state is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long to wait for the session's title after the turn.
const TITLE_WAIT: Duration = Duration::from_secs(2);
/// How many messages are read again after lost events.
pub const MAX_REREAD: usize = 200;

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

enum View {
    Text(Box<Renderer>),
    Json(json::EventLines),
}

/// One turn.
pub struct Turn {
    host: Arc<dyn Host>,
    scope: Scope,
    session: SessionId,
    /// The subagents of the session, whose requests are answered here too.
    subagents: SubagentTracker,
    options: Options,
    screen: Screen,
    view: View,
    asks: AskQueue,
    input: LineReader,
    /// Whether the first request is on the screen.
    is_prompted: bool,
    flags: TurnFlags,
    /// Whether this process resumed the turn of one that died.
    recovered: bool,
    /// Whether a turn of the session runs, according to events.
    busy: bool,
    /// The newest answer whose completion was reported by an event.
    last_completed: Option<MessageId>,
    /// The budget that nobody can raise.
    blocked: Option<Blocked>,
    /// When to stop waiting for a turn that is being stopped.
    deadline: Option<tokio::time::Instant>,
    cursor: Option<Cursor>,
    started: Instant,
}

type Events = BoxStream<'static, WatchItem>;

impl Turn {
    /// A turn of that session.
    pub fn new(host: Arc<dyn Host>, scope: Scope, session: SessionId, input: LineReader, options: Options) -> Self {
        let view = if options.json {
            View::Json(json::EventLines::new(session.clone()))
        } else {
            let renderer = Renderer::new(session.clone(), options.style, options.on_terminal).with_tracked_subagents();
            View::Text(Box::new(if io::stdout().is_terminal() { renderer.with_markdown() } else { renderer }))
        };
        Self {
            host,
            scope,
            subagents: SubagentTracker::new(session.clone(), options.style),
            session,
            asks: AskQueue::new(options.style, terminal::height()),
            input,
            is_prompted: false,
            screen: Screen::new(options.dumb),
            options,
            view,
            flags: TurnFlags::default(),
            recovered: false,
            busy: false,
            last_completed: None,
            blocked: None,
            deadline: None,
            cursor: None,
            started: Instant::now(),
        }
    }

    /// Shows the turn until it has its answer.
    pub async fn run(mut self, answer: HostFuture<'_, MessageWithParts>, interrupt: Interrupt) -> anyhow::Result<()> {
        let before = if self.options.resumed { self.ledger().await } else { None };
        let result = self.follow(answer, interrupt).await;
        self.print_subagent_summary();
        self.load_totals(before).await;
        let shown = match &mut self.view {
            View::Text(renderer) => {
                // A turn that never began used nothing.
                let began = !matches!(&result, Err(error) if error.is::<HostError>());
                let pieces = if began { renderer.finish(Some(self.started.elapsed())) } else { renderer.end_line() };
                self.show(pieces)
            }
            View::Json(_) => Ok(()),
        };
        self.print_continue_hint(result.is_ok());
        self.screen.hide();
        let answer = match result {
            Ok(answer) => answer,
            Err(error) if self.flags.cancelled && !error.is::<Failure>() => return Err(verdict::cancelled().into()),
            Err(error) => {
                // A turn that never started has no event for its error.
                if let (View::Json(lines), Some(error)) = (&self.view, error.downcast_ref::<HostError>()) {
                    let line = lines.error(&MessageError::unknown(error.to_string()));
                    self.screen.text(&line)?;
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
            self.screen.note(&self.options.style.yellow(&terminal::wrap_for_stderr(text)));
        }
        Ok(())
    }

    /// What the session and all below it have used, if the host counts that and the output shows it.
    async fn ledger(&self) -> Option<TreeNode> {
        if !self.options.on_terminal || self.options.json || !self.host.features().tree {
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
                if let View::Text(renderer) = &mut self.view {
                    renderer.set_totals(Totals::between(before.as_ref(), &after));
                }
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Prints the id of the session and how to continue it.
    fn print_continue_hint(&mut self, answered: bool) {
        if !answered || !self.options.on_terminal || self.options.json {
            return;
        }
        let attached = self.options.attached.as_ref().map(|url| format!(" --attach {url}")).unwrap_or_default();
        let line = format!("{} · continue with: trefoil run{attached} -c \"what next\"", self.session);
        let line = terminal::wrap(&line, 0, self.options.style.width);
        self.screen.note(&format!("{}\n", self.options.style.dim(&line)));
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
        let query = ListMessages { limit: Some(MAX_REREAD), before: None };
        let page = self.host.messages(&self.session, query).await.unwrap_or_default();
        let answers = page.messages.iter().filter(|m| m.info.as_assistant().is_some_and(|m| m.parent_id == *prompt));
        !answers.into_iter().any(has_content)
    }

    async fn follow(
        &mut self,
        mut answer: HostFuture<'_, MessageWithParts>,
        interrupt: Interrupt,
    ) -> anyhow::Result<MessageWithParts> {
        let mut events = self.watch(None).await?;
        if self.options.resumed {
            self.catch_up().await?;
        }
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
                        return self.leave(signal, answer, last).await;
                    }
                    self.flags.cancelled = true;
                    if !self.owns_turn().await {
                        return Err(verdict::detached(signal).into());
                    }
                    self.cancel();
                }
                item = events.next() => {
                    self.handle_item(item, &mut events).await?;
                    if last.is_some() && self.is_tree_idle().await {
                        return self.last_answer(last).await;
                    }
                }
                // After the pending events: the answer to one request may have settled the next.
                () = std::future::ready(()), if waiting && !self.is_prompted => self.show_request(),
                line = self.input.line(), if waiting => self.handle_line(line).await,
                result = &mut answer, if last.is_none() => {
                    if let Ok(answer) = &result {
                        self.receive_late_events(answer, &mut events).await?;
                    }
                    while let Some(Some(WatchItem::Frame(frame))) = events.next().now_or_never() {
                        if let Some(event) = frame.event() {
                            self.handle_event(&event.body).await?;
                        }
                    }
                    let result = result?;
                    if !self.waits_for_subagents().await {
                        return Ok(result);
                    }
                    last = Some(result);
                }
                _ = ticker.tick(), if self.screen.can_redraw() && !waiting => self.redraw(),
                () = until(deadline), if deadline.is_some() => {
                    let seconds = STOP_WAIT.as_secs();
                    return Err(Failure::new(Exit::Cancelled, format!("the turn did not stop within {seconds} s")).into());
                }
            }
        }
    }

    /// Receives the events before an answer. A server sends them over another connection, so they may arrive after it.
    async fn receive_late_events(&mut self, answer: &MessageWithParts, events: &mut Events) -> anyhow::Result<()> {
        let answer = answer.info.as_assistant().filter(|answer| answer.time.completed.is_some());
        let Some(answer) = answer.filter(|_| self.options.sends) else { return Ok(()) };
        let deadline = tokio::time::Instant::now() + LATE_EVENTS_WAIT;
        while self.last_completed.as_ref() < Some(&answer.id) {
            match tokio::time::timeout_at(deadline, events.next()).await {
                Ok(item) => self.handle_item(item, events).await?,
                Err(_) => return self.reread().await,
            }
        }
        Ok(())
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
                self.note(&format!("cannot wait for the subagents in the background, which keep working: {error}\n"));
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
        let query = ListMessages { limit: Some(MAX_REREAD), before: None };
        let page = self.host.messages(&self.session, query).await?;
        let newest = page.messages.into_iter().rev().find(|message| message.info.as_assistant().is_some());
        newest.or(known).ok_or_else(|| Failure::new(Exit::Failed, "the session has no answer").into())
    }

    async fn watch(&self, after: Option<Cursor>) -> anyhow::Result<Events> {
        Ok(self.host.watch(WatchScope::Directory(self.scope.directory.clone()), after).await?)
    }

    async fn handle_item(&mut self, item: Option<WatchItem>, events: &mut Events) -> anyhow::Result<()> {
        match item {
            Some(WatchItem::Frame(frame)) => {
                if let Some(cursor) = &frame.cursor {
                    self.cursor = Some(cursor.clone());
                }
                match frame.event() {
                    Some(event) => self.handle_event(&event.body).await,
                    None => Ok(()),
                }
            }
            Some(WatchItem::Resync(_)) => self.reread().await,
            // Too slow, or disconnected: continue after the last event.
            Some(WatchItem::Lagged) | None => {
                *events = self.watch(self.cursor.clone()).await?;
                self.reread().await
            }
        }
    }

    /// Handles the stored state of this turn again; nothing is shown twice.
    async fn reread(&mut self) -> anyhow::Result<()> {
        let query = ListMessages { limit: Some(MAX_REREAD), before: None };
        let page = self.host.messages(&self.session, query).await?;
        for message in page.messages {
            if self.options.prompt.as_ref().is_some_and(|prompt| message.info.id() < prompt) {
                continue;
            }
            self.handle_event(&EventBody::message(message.info)).await?;
            for event in message.parts.into_iter().filter_map(EventBody::part) {
                self.handle_event(&event).await?;
            }
        }
        self.load_open_requests().await
    }

    /// Prepares a session that existed before: resumes a turn that a crash interrupted, and asks its open requests again.
    async fn catch_up(&mut self) -> anyhow::Result<()> {
        self.load_subagents().await?;
        self.recovered = self.host.recover(Some(&self.session)).await? > 0;
        if self.options.is_answered && !self.recovered {
            return Err(super::nothing_to_resume(&self.session).into());
        }
        // Resumed work ends with a turn of the session, whose first event may not have arrived yet.
        self.busy |= self.recovered;
        self.load_open_requests().await
    }

    /// Loads the existing subagents of the session, whose requests are answered here too.
    async fn load_subagents(&mut self) -> anyhow::Result<()> {
        let mut parents = vec![self.session.clone()];
        while let Some(parent) = parents.pop() {
            for child in self.host.children(&parent).await? {
                if self.subagents.add(&child) {
                    parents.push(child.id);
                }
            }
        }
        Ok(())
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

    async fn load_open_requests(&mut self) -> anyhow::Result<()> {
        for request in self.host.permissions(&self.scope).await? {
            self.handle_event(&EventBody::PermissionAsked(Box::new(request))).await?;
        }
        for request in self.host.questions(&self.scope).await? {
            self.handle_event(&EventBody::QuestionAsked(Box::new(request))).await?;
        }
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
            self.print_notice(notice);
        }
        let shown = match &mut self.view {
            View::Text(renderer) => {
                let pieces = renderer.event(event, api::now());
                self.show(pieces)
            }
            View::Json(lines) => lines.event(event).map_or(Ok(()), |line| self.screen.text(&line)),
        };
        if let Err(error) = shown {
            if error.raw_os_error() == Some(Errno::IO.raw_os_error()) {
                // The terminal was closed, and SIGHUP is on its way.
                let failure = match self.is_local() && self.owns_turn().await {
                    true => verdict::parked(Signal::Hangup, &self.session),
                    false => verdict::detached(Signal::Hangup),
                };
                return Err(failure.into());
            }
            // Nobody reads the answer any more, so the work stops.
            if self.owns_turn().await {
                let _ = tokio::time::timeout(STOP_WAIT, self.host.abort(&self.session)).await;
            }
            return Err(stdout_failed(error));
        }
        if !event.session_id().is_some_and(|session| self.subagents.contains(session)) {
            return Ok(());
        }
        match event {
            EventBody::SessionStatus { session_id, status } if *session_id == self.session => {
                self.busy = *status != SessionStatus::Idle;
            }
            EventBody::SessionIdle { session_id } if *session_id == self.session => self.busy = false,
            EventBody::MessageUpdated { session_id, info } if *session_id == self.session => {
                if let Some(answer) = info.as_assistant().filter(|answer| answer.time.completed.is_some()) {
                    self.last_completed = self.last_completed.take().max(Some(answer.id.clone()));
                }
            }
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

    /// Prints a line about a subagent. Where the tree is drawn, it shows new subagents itself.
    fn print_notice(&mut self, notice: SubagentNotice) {
        let View::Text(renderer) = &mut self.view else { return };
        let text = match notice {
            SubagentNotice::Started(_) if self.screen.can_redraw() => return,
            SubagentNotice::Started(text) | SubagentNotice::Ended(text) => text,
        };
        let mut pieces = Vec::new();
        renderer.note(&text, &mut pieces);
        // A closed pipe shows with the next event.
        let _ = self.show(pieces);
    }

    /// Prints what all subagents did, once their tree has left the screen.
    fn print_subagent_summary(&mut self) {
        if !self.options.on_terminal {
            return;
        }
        if let (View::Text(renderer), Some(summary)) = (&mut self.view, self.subagents.summary()) {
            let mut pieces = Vec::new();
            renderer.note(&format!("{}\n", self.options.style.dim(&summary)), &mut pieces);
            let _ = self.show(pieces);
        }
    }

    /// Handles a turn that waits for its budget: tells the user how to raise it, or stops the turn if there is no user.
    async fn wait_for_budget(&mut self, blocked: &Blocked) -> anyhow::Result<()> {
        if self.flags.cancelled || self.blocked.is_some() {
            return Ok(());
        }
        if self.options.interactive {
            let message = api::strip_control(&blocked.message).into_owned();
            self.note(&format!(
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

    async fn ask(&mut self, ask: Ask) {
        if self.flags.cancelled {
            return;
        }
        match ask {
            Ask::Permission(request) if self.options.yes => {
                let note = format!("allowed by --yes: {}\n", summary(&request));
                let reply = PermissionReply { reply: PermissionReplyKind::Once, message: None };
                self.reply_for_user(Reply::Permission(request.id, reply), &note).await;
            }
            ask if self.options.interactive => self.asks.add(ask),
            Ask::Permission(request) => {
                let note = format!(
                    "denied: {} needs permission, and there is no terminal to ask on\n  \
                     hint: run it again with --yes, or add a rule to `permission` in trefoil.json\n",
                    summary(&request)
                );
                self.reply_for_user(Reply::Permission(request.id, reject(None)), &note).await;
            }
            Ask::Question(request) => {
                let note = "denied: the agent asks a question, and there is no terminal to answer on\n";
                self.reply_for_user(Reply::Question(request.id, None), note).await;
            }
        }
    }

    /// Answers for the user, and says so unless somebody else was faster.
    async fn reply_for_user(&mut self, reply: Reply, note: &str) {
        if self.reply(reply).await {
            self.note(note);
        }
    }

    /// Shows the first request.
    fn show_request(&mut self) {
        if let Some(text) = self.asks.prompt() {
            self.is_prompted = true;
            self.input.discard();
            if let View::Text(renderer) = &mut self.view {
                let mut pieces = Vec::new();
                renderer.note("", &mut pieces);
                // A closed pipe shows with the next event.
                let _ = self.show(pieces);
            }
            self.screen.ask(&text);
        }
    }

    /// Removes a request that was answered, here or elsewhere.
    fn close_request(&mut self, id: &str) {
        if self.asks.remove(id) && std::mem::take(&mut self.is_prompted) {
            self.screen.close_question();
            self.screen.note("\n  answered elsewhere\n");
        }
    }

    async fn handle_line(&mut self, line: Option<String>) {
        self.is_prompted = false;
        self.screen.close_question();
        match self.asks.apply(line.as_deref()) {
            Some(LineEffect::Reply(reply)) => {
                self.reply(reply).await;
            }
            Some(LineEffect::More(why)) if !why.is_empty() => self.screen.note(&format!("  {why}\n")),
            Some(LineEffect::More(_)) | None => {}
        }
    }

    /// Answers a request. Returns whether the answer was accepted.
    async fn reply(&mut self, reply: Reply) -> bool {
        let result = match reply {
            Reply::Permission(id, reply) => self.host.reply_permission(&id, reply).await,
            Reply::Question(id, answers) => self.host.reply_question(&id, answers).await,
        };
        match result {
            Ok(()) => return true,
            // Somebody else was faster, or the same answer settled both.
            Err(HostError::Conflict(_) | HostError::NotFound { .. }) => {}
            Err(error) => {
                self.note(&format!("the answer was not accepted: {}\n", api::strip_control(&error.to_string())))
            }
        }
        false
    }

    fn cancel(&mut self) {
        self.asks.clear();
        self.screen.close_question();
        self.note("cancelling; press Ctrl-C again to quit at once\n");
        self.stop();
    }

    /// Leaves the turn after a signal. The engine parks a turn of this process when it shuts down, after this; a turn of another
    /// process continues there. `last`: the answer so far.
    async fn leave(
        &mut self,
        signal: Signal,
        answer: HostFuture<'_, MessageWithParts>,
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
                result = answer => return Ok(result?),
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
        let (host, session) = (Arc::clone(&self.host), self.session.clone());
        tokio::spawn(async move {
            let started = Instant::now();
            while started.elapsed() < STOP_WAIT {
                match host.abort(&session).await {
                    Ok(true) => return,
                    Ok(false) => tokio::time::sleep(ABORT_RETRY_DELAY).await,
                    Err(error) => {
                        tracing::warn!(%error, "cannot abort the turn");
                        return;
                    }
                }
            }
        });
    }

    /// Adapts to the current size of the terminal.
    fn update_size(&mut self) {
        let width = terminal::width();
        if self.screen.can_redraw() && width != self.options.style.width {
            self.options.style.width = width;
            if let View::Text(renderer) = &mut self.view {
                renderer.resize(width);
            }
            self.asks.resize(self.options.style, terminal::height());
        }
    }

    /// Draws the spinner and the live lines.
    fn redraw(&mut self) {
        self.update_size();
        let style = self.options.style;
        let mut lines = Vec::new();
        let label = match &self.view {
            _ if self.deadline.is_some() => "stopping".to_string(),
            View::Text(_) if self.subagents.is_paused() && !self.subagents.has_live() => {
                format!("paused; `trefoil resume {}` resumes it", self.session)
            }
            View::Text(_) if self.subagents.has_live() => {
                // One line is reserved for the number of those that do not fit.
                let (rows, more) = self.subagents.rows(api::now(), self.screen.max_lines().saturating_sub(1));
                lines = tree_rows::draw(&rows, style);
                if more > 0 {
                    lines.push(style.dim(&format!("   … and {more} more")));
                }
                format!("{} at work", plural(rows.len() + more, "subagent"))
            }
            View::Text(renderer) => {
                lines = renderer.live(api::now(), self.screen.max_lines().saturating_sub(1));
                renderer.status(api::now())
            }
            View::Json(_) => "working".to_string(),
        };
        self.screen.draw(&lines, &label, style);
    }

    /// Prints sentences about the turn.
    fn note(&mut self, text: &str) {
        let text = terminal::wrap_for_stderr(text);
        match &mut self.view {
            View::Text(renderer) => {
                let mut pieces = Vec::new();
                renderer.note(&self.options.style.yellow(&text), &mut pieces);
                let _ = self.show(pieces);
            }
            View::Json(_) => self.screen.note(&text),
        }
    }

    fn show(&mut self, pieces: Vec<Piece>) -> io::Result<()> {
        for piece in pieces {
            match piece {
                Piece::Text(text) => self.screen.text(&text)?,
                Piece::Note(text) => self.screen.note(&text),
            }
        }
        Ok(())
    }
}

async fn until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn stdout_failed(error: io::Error) -> anyhow::Error {
    let message = format!("cannot write the answer to standard output: {error}");
    Failure::new(Exit::Failed, message).hint("continue with `trefoil run -c \"continue\"`").into()
}
