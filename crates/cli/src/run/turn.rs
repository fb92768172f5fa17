//! One turn at the terminal: events in, text out, asks answered, Ctrl-C obeyed.

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

use super::asks::{Ask, Asks, Outcome, Reply, reject, summary};
use super::family::{Family, Note};
use super::render::{Piece, Renderer, Totals};
use super::verdict::{Seen, acts, judge};
use super::{Typed, json, verdict};
use crate::exit::{Exit, Failure};
use crate::interrupt::{Interrupt, Signal};
use crate::term::{Screen, Style, plural};
use crate::{picture, term};

/// How often the spinner turns.
const TICK: Duration = Duration::from_millis(100);
/// How long a cancelled turn may take to stop.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// How long the events of an answer may take to come after it.
const HEAR_OUT: Duration = Duration::from_secs(2);
/// A turn that has not begun yet cannot be aborted; how soon that is tried again.
const ABORT_AGAIN: Duration = Duration::from_millis(20);
/// How long a prompt may take to be stored when this process is told to end, and how often that is looked at.
const STORE_WAIT: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);
/// How long the title of a session is waited for after its turn.
const TITLE_WAIT: Duration = Duration::from_secs(2);
/// How many messages are read again when events were lost.
pub const REREAD: usize = 200;

/// How a turn is shown and what is answered for the human.
pub struct Options {
    /// One event per line.
    pub json: bool,
    /// Allow what would be asked.
    pub yes: bool,
    /// A human can be asked.
    pub interactive: bool,
    /// How notes are painted.
    pub style: Style,
    /// A human reads both streams.
    pub roomy: bool,
    /// The prompt's message.
    pub first: Option<MessageId>,
    /// It is sent from here; else it was there already.
    pub sends: bool,
    /// The session was there before: something may wait in it.
    pub resumed: bool,
    /// The prompt has its answer: only what its turn left in the background can go on.
    pub left: bool,
    /// The terminal takes nothing but text.
    pub dumb: bool,
    /// The server that the turn runs on. Without one it runs in this process, and is parked when that ends.
    pub attached: Option<String>,
}

enum View {
    Human(Box<Renderer>),
    Json(json::Lines),
}

/// One turn.
pub struct Turn {
    host: Arc<dyn Host>,
    scope: Scope,
    session: SessionId,
    /// The session and what it spawned: their asks are answered here.
    family: Family,
    options: Options,
    screen: Screen,
    view: View,
    asks: Asks,
    typed: Typed,
    /// Whether the first of the asks is on the screen.
    prompted: bool,
    seen: Seen,
    /// The turn of a process that died goes on in this one.
    recovered: bool,
    /// Whether a turn of the session runs, as far as events tell.
    busy: bool,
    /// The newest answer of the session of which events told the end.
    told: Option<MessageId>,
    /// The budget that nobody is there to raise.
    blocked: Option<Blocked>,
    /// When a turn that is being stopped is no longer waited for.
    deadline: Option<tokio::time::Instant>,
    cursor: Option<Cursor>,
    began: Instant,
}

type Events = BoxStream<'static, WatchItem>;

impl Turn {
    /// A turn of that session.
    pub fn new(host: Arc<dyn Host>, scope: Scope, session: SessionId, typed: Typed, options: Options) -> Self {
        let view = if options.json {
            View::Json(json::Lines::new(session.clone()))
        } else {
            let renderer = Renderer::new(session.clone(), options.style, options.roomy).beside_family();
            View::Human(Box::new(if io::stdout().is_terminal() { renderer.with_markdown() } else { renderer }))
        };
        Self {
            host,
            scope,
            family: Family::new(session.clone(), options.style),
            session,
            asks: Asks::new(options.style, term::height()),
            typed,
            prompted: false,
            screen: Screen::new(options.dumb),
            options,
            view,
            seen: Seen::default(),
            recovered: false,
            busy: false,
            told: None,
            blocked: None,
            deadline: None,
            cursor: None,
            began: Instant::now(),
        }
    }

    /// Shows the turn until its answer is there.
    pub async fn play(mut self, answer: HostFuture<'_, MessageWithParts>, interrupt: Interrupt) -> anyhow::Result<()> {
        let before = if self.options.resumed { self.ledger().await } else { None };
        let result = self.follow(answer, interrupt).await;
        self.sum_up();
        self.settle_costs(before).await;
        let shown = match &mut self.view {
            View::Human(renderer) => {
                let pieces = renderer.finish(Some(self.began.elapsed()));
                self.show(pieces)
            }
            View::Json(_) => Ok(()),
        };
        self.say_how_to_go_on(result.is_ok());
        self.screen.hide();
        let answer = match result {
            Ok(answer) => answer,
            Err(error) if self.seen.cancelled && !error.is::<Failure>() => return Err(verdict::cancelled().into()),
            Err(error) => {
                // A turn that never began has no event that says so.
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
        judge(&answer, self.seen)?;
        if self.is_silent(&answer).await {
            let text =
                "the model answered nothing; ask again with `trefoil run -c`, or take another one with --model\n";
            self.screen.note(&self.options.style.yellow(text));
        }
        Ok(())
    }

    /// What the session and all below it used, if the host counts that and a human will read it.
    async fn ledger(&self) -> Option<TreeNode> {
        if !self.options.roomy || self.options.json || !self.host.features().tree {
            return None;
        }
        self.host.tree(&self.scope, &self.session).await.ok()?.sessions.into_iter().next()
    }

    /// Counts what the turn used as the ledger does. A title that is being made is waited for: it is part of that.
    async fn settle_costs(&mut self, before: Option<TreeNode>) {
        if self.options.resumed && before.is_none() {
            return;
        }
        let late = Instant::now() + TITLE_WAIT;
        while let Some(after) = self.ledger().await {
            let is_done = after.titling.as_ref().is_none_or(|titling| !titling.running);
            if is_done || Instant::now() >= late {
                if let View::Human(renderer) = &mut self.view {
                    renderer.count_as(Totals::between(before.as_ref(), &after));
                }
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The id of the session and how to continue it, for a human who may want to.
    fn say_how_to_go_on(&mut self, answered: bool) {
        if !answered || !self.options.roomy || self.options.json {
            return;
        }
        let attached = self.options.attached.as_ref().map(|url| format!(" --attach {url}")).unwrap_or_default();
        let line = format!("{} · continue with: trefoil run{attached} -c \"what next\"", self.session);
        let line = term::wrap(&line, 0, self.options.style.width);
        self.screen.note(&format!("{}\n", self.options.style.dim(&line)));
    }

    /// Whether the turn runs in this process.
    fn is_local(&self) -> bool {
        self.options.attached.is_none()
    }

    /// Whether no answer of the turn says or does anything.
    async fn is_silent(&self, last: &MessageWithParts) -> bool {
        let Some(prompt) = last.info.as_assistant().map(|last| &last.parent_id) else { return false };
        if acts(last) {
            return false;
        }
        let query = ListMessages { limit: Some(REREAD), before: None };
        let page = self.host.messages(&self.scope, &self.session, query).await.unwrap_or_default();
        let answers = page.messages.iter().filter(|m| m.info.as_assistant().is_some_and(|m| m.parent_id == *prompt));
        !answers.into_iter().any(acts)
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
        let mut ticker = tokio::time::interval(TICK);
        let mut last: Option<MessageWithParts> = None;
        loop {
            let deadline = self.deadline;
            let waiting = self.asks.waiting();
            tokio::select! {
                biased;
                () = interrupt.token.cancelled(), if deadline.is_none() => {
                    let signal = interrupt.signal().unwrap_or(Signal::Interrupt);
                    if signal != Signal::Interrupt {
                        return self.leave(signal, answer, last).await;
                    }
                    self.seen.cancelled = true;
                    if !self.owns().await {
                        return Err(verdict::left(signal).into());
                    }
                    self.cancel();
                }
                item = events.next() => {
                    self.item(item, &mut events).await?;
                    if last.is_some() && self.is_at_rest().await {
                        return self.last_answer(last).await;
                    }
                }
                // After the events that are there: an answer to one ask may have settled the next one.
                () = std::future::ready(()), if waiting && !self.prompted => self.prompt(),
                line = self.typed.line(), if waiting => self.line(line).await,
                result = &mut answer, if last.is_none() => {
                    if let Ok(answer) = &result {
                        self.hear_out(answer, &mut events).await?;
                    }
                    while let Some(Some(WatchItem::Frame(frame))) = events.next().now_or_never() {
                        if let Some(event) = frame.event() {
                            self.event(&event.body).await?;
                        }
                    }
                    let result = result?;
                    if !self.waits_for_subagents().await {
                        return Ok(result);
                    }
                    last = Some(result);
                }
                _ = ticker.tick(), if self.screen.spins() && !waiting => self.tick(),
                () = until(deadline), if deadline.is_some() => {
                    let seconds = STOP_WAIT.as_secs();
                    return Err(Failure::new(Exit::Cancelled, format!("the turn did not stop within {seconds} s")).into());
                }
            }
        }
    }

    /// Takes in the events that led to an answer. From a server they come over a connection of their own, and may be later.
    async fn hear_out(&mut self, answer: &MessageWithParts, events: &mut Events) -> anyhow::Result<()> {
        let answer = answer.info.as_assistant().filter(|answer| answer.time.completed.is_some());
        let Some(answer) = answer.filter(|_| self.options.sends) else { return Ok(()) };
        let late = tokio::time::Instant::now() + HEAR_OUT;
        while self.told.as_ref() < Some(&answer.id) {
            match tokio::time::timeout_at(late, events.next()).await {
                Ok(item) => self.item(item, events).await?,
                Err(_) => return self.reread().await,
            }
        }
        Ok(())
    }

    /// Whether subagents still work in the background, and the session now waits for them: their reports are worth a turn.
    /// So is one that has just come.
    async fn waits_for_subagents(&mut self) -> bool {
        let goes_on = self.recovered && self.busy;
        if self.family.is_empty() && !goes_on || self.seen.cancelled || self.blocked.is_some() {
            return false;
        }
        let waits = match self.host.background(&self.scope, &self.session, false).await {
            Ok(waits) => waits,
            Err(error) if self.family.live() => {
                let error = api::strip_control(&error.to_string()).into_owned();
                self.note(&format!("subagents go on in the background, and are not waited for: {error}\n"));
                return false;
            }
            Err(_) => return false,
        };
        // We may not have been told yet of the turn that waits.
        self.busy |= waits;
        waits || goes_on || self.host.waiting(&self.scope, &self.session).await.is_ok_and(|waiting| !waiting.is_empty())
    }

    /// Whether nothing of the session's tree runs or is about to.
    async fn is_at_rest(&self) -> bool {
        !self.busy
            && !self.family.live()
            && self.host.waiting(&self.scope, &self.session).await.is_ok_and(|waiting| waiting.is_empty())
    }

    /// The newest answer of the session.
    async fn last_answer(&self, known: Option<MessageWithParts>) -> anyhow::Result<MessageWithParts> {
        let query = ListMessages { limit: Some(REREAD), before: None };
        let page = self.host.messages(&self.scope, &self.session, query).await?;
        let newest = page.messages.into_iter().rev().find(|message| message.info.as_assistant().is_some());
        newest.or(known).ok_or_else(|| Failure::new(Exit::Failed, "the session has no answer").into())
    }

    async fn watch(&self, after: Option<Cursor>) -> anyhow::Result<Events> {
        Ok(self.host.watch(WatchScope::Directory(self.scope.directory.clone()), after).await?)
    }

    async fn item(&mut self, item: Option<WatchItem>, events: &mut Events) -> anyhow::Result<()> {
        match item {
            Some(WatchItem::Frame(frame)) => {
                if let Some(cursor) = &frame.cursor {
                    self.cursor = Some(cursor.clone());
                }
                match frame.event() {
                    Some(event) => self.event(&event.body).await,
                    None => Ok(()),
                }
            }
            Some(WatchItem::Resync(_)) => self.reread().await,
            // Too slow, or cut off: go on where we were.
            Some(WatchItem::Lagged) | None => {
                *events = self.watch(self.cursor.clone()).await?;
                self.reread().await
            }
        }
    }

    /// Feeds the stored state of this turn again; what was shown already is not shown twice.
    async fn reread(&mut self) -> anyhow::Result<()> {
        let query = ListMessages { limit: Some(REREAD), before: None };
        let page = self.host.messages(&self.scope, &self.session, query).await?;
        for message in page.messages {
            if self.options.first.as_ref().is_some_and(|first| message.info.id() < first) {
                continue;
            }
            self.event(&EventBody::message(message.info)).await?;
            for event in message.parts.into_iter().filter_map(EventBody::part) {
                self.event(&event).await?;
            }
        }
        self.open_asks().await
    }

    /// A session that was there before: a turn that a crash cut off is brought to its end, and its asks are asked again.
    async fn catch_up(&mut self) -> anyhow::Result<()> {
        self.find_family().await?;
        self.recovered = self.host.recover(Some(&self.session)).await? > 0;
        if self.options.left && !self.recovered {
            return Err(super::nothing_left(&self.session).into());
        }
        // Whatever goes on ends with a turn of the session, whose begin we may not have been told yet.
        self.busy |= self.recovered;
        self.open_asks().await
    }

    /// The subagents that the session has already: their asks are answered here too.
    async fn find_family(&mut self) -> anyhow::Result<()> {
        let mut unseen = vec![self.session.clone()];
        while let Some(parent) = unseen.pop() {
            for child in self.host.children(&self.scope, &parent).await? {
                if self.family.add(&child) {
                    unseen.push(child.id);
                }
            }
        }
        Ok(())
    }

    /// Whether the turn is ours to stop: its first prompt was sent from here, or it goes on only because of us. A turn
    /// that another terminal began and that we joined belongs to that one.
    async fn owns(&self) -> bool {
        if self.recovered {
            return true;
        }
        let waiting = self.host.waiting(&self.scope, &self.session).await.unwrap_or_default();
        waiting.first().is_none_or(|first| self.options.sends && self.options.first.as_ref() == Some(first))
    }

    async fn open_asks(&mut self) -> anyhow::Result<()> {
        for request in self.host.permissions(&self.scope).await? {
            self.event(&EventBody::PermissionAsked(Box::new(request))).await?;
        }
        for request in self.host.questions(&self.scope).await? {
            self.event(&EventBody::QuestionAsked(Box::new(request))).await?;
        }
        if self.host.features().tree {
            let tree = self.host.tree(&self.scope, &self.session).await?;
            for blocked in tree.sessions.into_iter().filter_map(|node| node.blocked) {
                self.wait_for_budget(&blocked).await?;
            }
        }
        Ok(())
    }

    async fn event(&mut self, event: &EventBody) -> anyhow::Result<()> {
        self.fit();
        if let Some(note) = self.family.event(event, api::now()) {
            self.subagent(note);
        }
        let shown = match &mut self.view {
            View::Human(renderer) => {
                let pieces = renderer.event(event);
                self.show(pieces)
            }
            View::Json(lines) => lines.event(event).map_or(Ok(()), |line| self.screen.text(&line)),
        };
        if let Err(error) = shown {
            if error.raw_os_error() == Some(Errno::IO.raw_os_error()) {
                // The terminal is gone, and SIGHUP is on its way.
                let failure = match self.is_local() && self.owns().await {
                    true => verdict::parked(Signal::Hangup, &self.session),
                    false => verdict::left(Signal::Hangup),
                };
                return Err(failure.into());
            }
            // Nobody reads the answer any more, so nobody here wants the rest of the work.
            if self.owns().await {
                let _ = tokio::time::timeout(STOP_WAIT, self.host.abort(&self.scope, &self.session)).await;
            }
            return Err(stdout_failed(error));
        }
        if !event.session_id().is_some_and(|session| self.family.contains(session)) {
            return Ok(());
        }
        match event {
            EventBody::SessionStatus { session_id, status } if *session_id == self.session => {
                self.busy = *status != SessionStatus::Idle;
            }
            EventBody::SessionIdle { session_id } if *session_id == self.session => self.busy = false,
            EventBody::MessageUpdated { session_id, info } if *session_id == self.session => {
                if let Some(answer) = info.as_assistant().filter(|answer| answer.time.completed.is_some()) {
                    self.told = self.told.take().max(Some(answer.id.clone()));
                }
            }
            EventBody::SessionTree { blocked: Some(blocked), .. } => self.wait_for_budget(blocked).await?,
            EventBody::PermissionAsked(request) => self.ask(Ask::Permission(request.clone())).await,
            EventBody::QuestionAsked(request) => self.ask(Ask::Question(request.clone())).await,
            EventBody::PermissionReplied { request_id, reply, .. } => {
                self.seen.rejected |= *reply == PermissionReplyKind::Reject;
                self.settled(request_id.as_str());
            }
            EventBody::QuestionRejected { request_id, .. } => {
                self.seen.rejected = true;
                self.settled(request_id.as_str());
            }
            EventBody::QuestionReplied { request_id, .. } => self.settled(request_id.as_str()),
            _ => {}
        }
        Ok(())
    }

    /// A line about a subagent; where the tree is drawn, that shows who begins.
    fn subagent(&mut self, note: Note) {
        let View::Human(renderer) = &mut self.view else { return };
        let text = match note {
            Note::Began(_) if self.screen.spins() => return,
            Note::Began(text) | Note::Ended(text) => text,
        };
        let mut pieces = Vec::new();
        renderer.note(&text, &mut pieces);
        // That the answer's reader is gone shows with the next event.
        let _ = self.show(pieces);
    }

    /// What all subagents did, once they are done and their tree is gone from the screen.
    fn sum_up(&mut self) {
        if !self.options.roomy {
            return;
        }
        if let (View::Human(renderer), Some(summary)) = (&mut self.view, self.family.summary()) {
            let mut pieces = Vec::new();
            renderer.note(&format!("{}\n", self.options.style.dim(&summary)), &mut pieces);
            let _ = self.show(pieces);
        }
    }

    /// A turn waits for its budget. A human can raise it; without one it would wait for nobody.
    async fn wait_for_budget(&mut self, blocked: &Blocked) -> anyhow::Result<()> {
        if self.seen.cancelled || self.blocked.is_some() {
            return Ok(());
        }
        if self.options.interactive {
            let message = api::strip_control(&blocked.message).into_owned();
            self.note(&format!("{message}\n  to let it go on, in another terminal: {}\n", verdict::raise(blocked)));
            return Ok(());
        }
        if !self.owns().await {
            return Err(verdict::blocked(blocked).into());
        }
        self.blocked = Some(blocked.clone());
        self.stop();
        Ok(())
    }

    async fn ask(&mut self, ask: Ask) {
        if self.seen.cancelled {
            return;
        }
        match ask {
            Ask::Permission(request) if self.options.yes => {
                let note = format!("allowed by --yes: {}\n", summary(&request));
                let reply = PermissionReply { reply: PermissionReplyKind::Once, message: None };
                self.reply_for(Reply::Permission(request.id, reply), &note).await;
            }
            ask if self.options.interactive => self.asks.add(ask),
            Ask::Permission(request) => {
                let note = format!(
                    "denied: {} needs permission, and there is no terminal to ask on\n  \
                     hint: run it again with --yes, or add a rule to `permission` in trefoil.json\n",
                    summary(&request)
                );
                self.reply_for(Reply::Permission(request.id, reject(None)), &note).await;
            }
            Ask::Question(request) => {
                let note = "denied: the agent asks a question, and there is no terminal to answer on\n";
                self.reply_for(Reply::Question(request.id, None), note).await;
            }
        }
    }

    /// Answers in place of a human, and says so if that is what counts: somebody else may have been faster.
    async fn reply_for(&mut self, reply: Reply, note: &str) {
        if self.reply(reply).await {
            self.note(note);
        }
    }

    fn prompt(&mut self) {
        if let Some(text) = self.asks.prompt() {
            self.prompted = true;
            self.typed.forget();
            if let View::Human(renderer) = &mut self.view {
                let mut pieces = Vec::new();
                renderer.note("", &mut pieces);
                // That the answer's reader is gone shows with the next event.
                let _ = self.show(pieces);
            }
            self.screen.ask(&text);
        }
    }

    /// An ask was answered, here or elsewhere.
    fn settled(&mut self, id: &str) {
        if self.asks.settle(id) && std::mem::take(&mut self.prompted) {
            self.screen.answered();
            self.screen.note("\n  answered elsewhere\n");
        }
    }

    async fn line(&mut self, line: Option<String>) {
        self.prompted = false;
        self.screen.answered();
        match self.asks.take(line.as_deref()) {
            Some(Outcome::Reply(reply)) => {
                self.reply(reply).await;
            }
            Some(Outcome::More(why)) if !why.is_empty() => self.screen.note(&format!("  {why}\n")),
            Some(Outcome::More(_)) | None => {}
        }
    }

    /// Answers an ask. Returns whether the answer was taken.
    async fn reply(&mut self, reply: Reply) -> bool {
        let result = match reply {
            Reply::Permission(id, reply) => self.host.reply_permission(&self.scope, &id, reply).await,
            Reply::Question(id, answers) => self.host.reply_question(&self.scope, &id, answers).await,
        };
        match result {
            Ok(()) => return true,
            // Somebody else was faster, or the same answer settled it.
            Err(HostError::Conflict(_) | HostError::NotFound { .. }) => {}
            Err(error) => self.note(&format!("the answer was not taken: {}\n", api::strip_control(&error.to_string()))),
        }
        false
    }

    fn cancel(&mut self) {
        self.asks.clear();
        self.screen.answered();
        self.note("cancelling; press Ctrl-C again to quit at once\n");
        self.stop();
    }

    /// This process is told to end. A turn of its own is parked when the engine shuts down, after this; one of another process
    /// goes on there. `last`: what is known of its end.
    async fn leave(
        &mut self,
        signal: Signal,
        answer: HostFuture<'_, MessageWithParts>,
        last: Option<MessageWithParts>,
    ) -> anyhow::Result<MessageWithParts> {
        if !self.is_local() || !self.owns().await {
            return Err(verdict::left(signal).into());
        }
        if last.is_none() && self.options.sends {
            // What is on its way is stored in a moment; an answer that is there in that moment counts.
            let stored = async {
                while !self.is_stored().await {
                    tokio::time::sleep(LOOK).await;
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

    /// Whether the prompt waits for its answer.
    async fn is_stored(&self) -> bool {
        let waiting = self.host.waiting(&self.scope, &self.session).await.unwrap_or_default();
        waiting.iter().any(|id| Some(id) == self.options.first.as_ref())
    }

    fn stop(&mut self) {
        self.deadline = Some(tokio::time::Instant::now() + STOP_WAIT);
        let (host, scope, session) = (Arc::clone(&self.host), self.scope.clone(), self.session.clone());
        tokio::spawn(async move {
            let began = Instant::now();
            while began.elapsed() < STOP_WAIT {
                match host.abort(&scope, &session).await {
                    Ok(true) => return,
                    Ok(false) => tokio::time::sleep(ABORT_AGAIN).await,
                    Err(error) => {
                        tracing::warn!(%error, "cannot abort the turn");
                        return;
                    }
                }
            }
        });
    }

    /// Writes for the terminal as it is now: its user may have changed its size.
    fn fit(&mut self) {
        let width = term::width();
        if self.screen.spins() && width != self.options.style.width {
            self.options.style.width = width;
            if let View::Human(renderer) = &mut self.view {
                renderer.resize(width);
            }
            self.asks.resize(self.options.style, term::height());
        }
    }

    fn tick(&mut self) {
        self.fit();
        let style = self.options.style;
        let mut lines = Vec::new();
        let label = match &self.view {
            _ if self.deadline.is_some() => "stopping".to_string(),
            View::Human(_) if self.family.is_paused() && !self.family.live() => {
                format!("paused; `trefoil resume {}` lets it go on", self.session)
            }
            View::Human(_) if self.family.live() => {
                // One line less, for those that there is no room for.
                let (rows, more) = self.family.rows(api::now(), self.screen.room().saturating_sub(1));
                lines = picture::draw(&rows, style);
                if more > 0 {
                    lines.push(style.dim(&format!("   … and {more} more")));
                }
                format!("{} at work", plural(rows.len() + more, "subagent"))
            }
            View::Human(renderer) => {
                lines = renderer.live(api::now(), self.screen.room().saturating_sub(1));
                renderer.status(api::now())
            }
            View::Json(_) => "working".to_string(),
        };
        self.screen.tick(&lines, &label, style);
    }

    fn note(&mut self, text: &str) {
        match &mut self.view {
            View::Human(renderer) => {
                let mut pieces = Vec::new();
                renderer.note(&self.options.style.yellow(text), &mut pieces);
                let _ = self.show(pieces);
            }
            View::Json(_) => self.screen.note(text),
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
    Failure::new(Exit::Failed, message).hint("go on with `trefoil run -c \"go on\"`").into()
}
