//! A session that the client has open.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_client_protocol_schema::v1::{
    ConfigOptionUpdate, CurrentModeUpdate, SessionNotification, SessionUpdate, ToolCallContent,
};
use api::{CatalogHost, HostError, MessageWithParts, Scope, Session, SessionId};
use follow::FeedHandle;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::catalog::{Selection, SessionCatalog};
use crate::capabilities::Capabilities;
use crate::editor::{PendingChanges, RecentReads, ShownTerminals};
use crate::lock;
use crate::rpc::{AppendableMessage, Peer};
use crate::size;
use crate::view::tool_call::ToolCallNotice;
use crate::view::{ChunkKind, Effect, SettledHistory, View};

/// A session that the client has open.
pub struct OpenSession {
    /// Its id.
    pub id: SessionId,
    /// Where it works.
    pub scope: Scope,
    /// What the client can do.
    pub capabilities: Capabilities,
    /// Its directory and additional directories.
    pub roots: Vec<PathBuf>,
    /// Files that its tools wrote.
    pub changes: PendingChanges,
    /// Files that its tools have read.
    pub recent_reads: RecentReads,
    /// Terminals of its tools that the client was shown.
    pub shown_terminals: ShownTerminals,
    peer: Peer,
    /// Held while updates of the session are sent, so that they go out in order.
    view: tokio::sync::Mutex<View>,
    catalog: Mutex<SessionCatalog>,
    selection: Mutex<Selection>,
    /// Held while a selection is made and sent, so that the newest is sent last.
    selection_lock: tokio::sync::Mutex<()>,
    /// Held while the catalog is loaded and sent, so that the newest is sent last.
    refresh_lock: tokio::sync::Mutex<()>,
    /// Whether a refresh waits to start.
    pub refresh_pending: AtomicBool,
    /// The open asks by id, each with the token that withdraws it.
    pub asks: Mutex<HashMap<String, CancellationToken>>,
    /// Cancelled when the session is closed.
    pub closed: CancellationToken,
    follower: Mutex<Option<AbortOnDropHandle<()>>>,
    /// Tells what its follower has shown.
    feed: Mutex<Option<FeedHandle>>,
}

impl OpenSession {
    /// A session of which nothing was shown yet.
    pub fn new(
        session: &Session,
        capabilities: Capabilities,
        roots: Vec<PathBuf>,
        peer: Peer,
        catalog: SessionCatalog,
    ) -> Self {
        let changes = PendingChanges::default();
        let selection = Selection::of_session(session, &catalog);
        Self {
            id: session.id.clone(),
            scope: Scope { directory: session.directory.clone(), workspace: session.workspace_id.clone() },
            capabilities,
            roots,
            view: tokio::sync::Mutex::new(View::new(session, capabilities, changes.clone())),
            changes,
            recent_reads: RecentReads::default(),
            shown_terminals: ShownTerminals::default(),
            peer,
            catalog: Mutex::new(catalog),
            selection: Mutex::new(selection),
            selection_lock: tokio::sync::Mutex::default(),
            refresh_lock: tokio::sync::Mutex::default(),
            refresh_pending: AtomicBool::new(false),
            asks: Mutex::default(),
            closed: CancellationToken::new(),
            follower: Mutex::default(),
            feed: Mutex::default(),
        }
    }

    /// Sets the feed that is shown.
    pub fn set_feed(&self, feed: FeedHandle) {
        *lock(&self.feed) = Some(feed);
    }

    /// The feed that is shown, once there is one.
    pub fn feed(&self) -> Option<FeedHandle> {
        lock(&self.feed).clone()
    }

    /// Sets the task that shows its events.
    pub fn set_follower(&self, follower: AbortOnDropHandle<()>) {
        if !self.closed.is_cancelled() {
            *lock(&self.follower) = Some(follower);
        }
    }

    /// Stops showing and asking.
    pub fn close(&self) {
        self.closed.cancel();
        lock(&self.follower).take();
    }

    /// The selection.
    pub fn selection(&self) -> Selection {
        lock(&self.selection).clone()
    }

    /// The catalog.
    pub fn catalog(&self) -> SessionCatalog {
        lock(&self.catalog).clone()
    }

    /// Changes the selection and informs the client, in the current form and in those of older clients. The client has
    /// been informed when this returns, whoever noticed the change first.
    pub async fn select<E>(
        &self,
        change: impl FnOnce(&SessionCatalog, &mut Selection) -> Result<(), E>,
    ) -> Result<(), E> {
        let _selection_lock = self.selection_lock.lock().await;
        let (before, after) = {
            let mut selection = lock(&self.selection);
            let before = selection.clone();
            change(&lock(&self.catalog), &mut selection)?;
            (before, selection.clone())
        };
        self.send_selection(&before, &after).await;
        Ok(())
    }

    async fn send_selection(&self, before: &Selection, after: &Selection) {
        if before.mode != after.mode {
            self.send_update(SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(after.mode.clone()))).await;
        }
        if before != after {
            let options = self.catalog().options(self.capabilities, after);
            self.send_update(SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(options))).await;
        }
    }

    /// Sends an update of this session.
    pub async fn send_update(&self, update: SessionUpdate) {
        notify_update(&self.peer, &self.id, update).await;
    }

    /// Sends the available commands.
    pub async fn send_commands(&self) {
        let update = self.catalog().available_commands();
        self.send_update(SessionUpdate::AvailableCommandsUpdate(update)).await;
    }

    /// Reloads the catalog and sends what changed.
    pub async fn refresh(&self, host: &dyn CatalogHost) -> Result<(), HostError> {
        let _refresh_lock = self.refresh_lock.lock().await;
        self.refresh_pending.store(false, Ordering::Release);
        let new = SessionCatalog::load(host, &self.scope, &self.id).await?;
        let old = std::mem::replace(&mut *lock(&self.catalog), new.clone());
        if old.commands() != new.commands() {
            self.send_commands().await;
        }
        let _selection_lock = self.selection_lock.lock().await;
        let selection = self.selection();
        if old.options(self.capabilities, &selection) != new.options(self.capabilities, &selection) {
            let options = new.options(self.capabilities, &selection);
            self.send_update(SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(options))).await;
        }
        Ok(())
    }

    /// Adopts a session's agent and model that someone else changed.
    pub async fn session_changed(&self, session: &Session) {
        let now = Selection::of_session(session, &lock(&self.catalog));
        let set = |_: &SessionCatalog, selection: &mut Selection| {
            if session.agent.is_some() {
                selection.mode.clone_from(&now.mode);
            }
            if session.model.is_some() {
                selection.model.clone_from(&now.model);
                selection.effort.clone_from(&now.effort);
            }
            Ok::<(), std::convert::Infallible>(())
        };
        let Ok(()) = self.select(set).await;
    }

    /// Lets `work` update the view, sends the resulting updates, and returns the remaining effects.
    pub async fn show(&self, work: impl FnOnce(&mut View) -> Vec<Effect>) -> Vec<Effect> {
        let mut view = self.view.lock().await;
        let effects = work(&mut view);
        let mut left = Vec::new();
        for effect in effects {
            match effect {
                Effect::Text(session, kind, message, text) => self.send_text(&session, kind, &message, &text).await,
                Effect::Update(session, update) => notify_update(&self.peer, &session, *update).await,
                Effect::Progress(session, call, update) => {
                    let terminal = terminal_id(&update);
                    let params = SessionNotification::new(session.to_string(), *update);
                    self.peer.notify_latest(format!("{session} {call}"), "session/update", &params).await;
                    terminal.inspect(|id| self.shown_terminals.mark_shown(id));
                }
                other => left.push(other),
            }
        }
        left
    }

    async fn send_text(&self, session: &SessionId, kind: ChunkKind, message: &str, text: &str) {
        let kind = match kind {
            ChunkKind::User => "user_message_chunk",
            ChunkKind::Agent => "agent_message_chunk",
            ChunkKind::Thought => "agent_thought_chunk",
        };
        // Ids need no quoting. The text is the last field, so that more can be appended.
        let prefix = format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session}","update":{{"sessionUpdate":"{kind}","messageId":"{message}","content":{{"type":"text","text":"#
        );
        for piece in size::chunks(text) {
            self.peer
                .notify_text(AppendableMessage { prefix: prefix.clone(), text: piece.to_owned(), suffix: "}}}}" })
                .await;
        }
    }

    /// Shows the newest messages again, where events may be missing; `whole` if there are no older ones.
    pub async fn show_again(&self, messages: Vec<MessageWithParts>, whole: bool) -> Vec<Effect> {
        self.show(|view| {
            view.set_order(messages.iter().map(|message| message.info.id()), whole);
            Vec::new()
        })
        .await;
        let mut left = Vec::new();
        for message in messages {
            left.extend(self.show(|view| view.show_stored(message, false)).await);
        }
        left
    }

    /// Shows a whole conversation, or only marks it as shown up to these messages.
    pub async fn replay(&self, messages: Vec<MessageWithParts>, shown: bool) {
        let settled = SettledHistory::of(&messages, shown);
        if shown {
            for message in messages {
                self.show(|view| view.show_stored(message, true)).await;
            }
        }
        self.show(|view| {
            view.mark_shown(settled);
            Vec::new()
        })
        .await;
    }
}

/// The terminal that an update shows.
fn terminal_id(update: &SessionUpdate) -> Option<String> {
    let SessionUpdate::ToolCallUpdate(update) = update else { return None };
    update.fields.content.iter().flatten().find_map(|content| match content {
        ToolCallContent::Terminal(terminal) => Some(terminal.terminal_id.to_string()),
        _ => None,
    })
}

async fn notify_update(peer: &Peer, session: &SessionId, update: SessionUpdate) {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        session_id: &'a SessionId,
        update: ToolCallNotice<'a>,
    }
    if let SessionUpdate::ToolCall(call) = &update {
        let params = Params { session_id: session, update: ToolCallNotice::new(call) };
        return peer.notify("session/update", &params).await;
    }
    let params = SessionNotification::new(session.to_string(), update);
    peer.notify("session/update", &params).await;
}
