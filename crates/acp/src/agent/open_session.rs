//! A session that the client has open.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_client_protocol_schema::v1::{
    ConfigOptionUpdate, CurrentModeUpdate, SessionNotification, SessionUpdate, ToolCallContent,
};
use api::{Host, HostError, MessageId, MessageWithParts, Scope, Session, SessionId};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::catalog::{Choices, Chosen};
use crate::capabilities::Abilities;
use crate::editor::{Changes, Reads, Terminals};
use crate::lock;
use crate::rpc::{Growing, Peer};
use crate::size;
use crate::view::{Act, Settled, View, Voice};

/// The most messages that are read again when events may be missing.
pub const REREAD: usize = 200;

/// A session that the client has open.
pub struct Open {
    /// The session.
    pub id: SessionId,
    /// Where it works.
    pub scope: Scope,
    /// What the client can do.
    pub abilities: Abilities,
    /// The folders that belong to it.
    pub roots: Vec<PathBuf>,
    /// What its tools write.
    pub changes: Changes,
    /// What its tools have read.
    pub reads: Reads,
    /// The terminals in which its tools run commands.
    pub terminals: Terminals,
    peer: Peer,
    /// Held while anything of the session is told, so that it is told in order.
    view: tokio::sync::Mutex<View>,
    choices: Mutex<Choices>,
    chosen: Mutex<Chosen>,
    /// Held while something is chosen and told, so that the newest is told last.
    telling: tokio::sync::Mutex<()>,
    /// Held while what there is to choose from is read and told, so that the newest is told last.
    refreshing: tokio::sync::Mutex<()>,
    /// Whether somebody waits to do that.
    pub refresh_waits: AtomicBool,
    /// What is asked at the moment, and how it is withdrawn.
    pub asks: Mutex<HashMap<String, CancellationToken>>,
    /// Changes when an answer was told to its end.
    told: watch::Sender<()>,
    /// Cancelled when the session is closed.
    pub closed: CancellationToken,
    follower: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Open {
    /// A session of which nothing was told yet.
    pub fn new(session: &Session, abilities: Abilities, roots: Vec<PathBuf>, peer: Peer, choices: Choices) -> Self {
        let changes = Changes::default();
        let chosen = Chosen::of(session, &choices);
        Self {
            id: session.id.clone(),
            scope: Scope { directory: session.directory.clone(), workspace: session.workspace_id.clone() },
            abilities,
            roots,
            view: tokio::sync::Mutex::new(View::new(session, abilities, changes.clone())),
            changes,
            reads: Reads::default(),
            terminals: Terminals::default(),
            peer,
            choices: Mutex::new(choices),
            chosen: Mutex::new(chosen),
            telling: tokio::sync::Mutex::default(),
            refreshing: tokio::sync::Mutex::default(),
            refresh_waits: AtomicBool::new(false),
            asks: Mutex::default(),
            told: watch::Sender::default(),
            closed: CancellationToken::new(),
            follower: Mutex::default(),
        }
    }

    /// The task that shows its events.
    pub fn followed_by(&self, follower: AbortOnDropHandle<()>) {
        if !self.closed.is_cancelled() {
            *lock(&self.follower) = Some(follower);
        }
    }

    /// Nothing of it is shown or asked any more.
    pub fn close(&self) {
        self.closed.cancel();
        lock(&self.follower).take();
    }

    /// What is chosen.
    pub fn chosen(&self) -> Chosen {
        lock(&self.chosen).clone()
    }

    /// What there is to choose from.
    pub fn choices(&self) -> Choices {
        lock(&self.choices).clone()
    }

    /// Chooses; the client is told what follows from it for those who know other words for it. When this returns it has
    /// been told, whoever was first to notice.
    pub async fn choose<E>(&self, change: impl FnOnce(&Choices, &mut Chosen) -> Result<(), E>) -> Result<(), E> {
        let _telling = self.telling.lock().await;
        let (before, after) = {
            let mut chosen = lock(&self.chosen);
            let before = chosen.clone();
            change(&lock(&self.choices), &mut chosen)?;
            (before, chosen.clone())
        };
        self.tell_chosen(&before, &after).await;
        Ok(())
    }

    async fn tell_chosen(&self, before: &Chosen, after: &Chosen) {
        if before.mode != after.mode {
            self.update(SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(after.mode.clone()))).await;
        }
        if before != after {
            let options = self.choices().options(self.abilities, after);
            self.update(SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(options))).await;
        }
    }

    /// Tells an update of this session.
    pub async fn update(&self, update: SessionUpdate) {
        tell(&self.peer, &self.id, update).await;
    }

    /// Tells which commands there are.
    pub async fn tell_commands(&self) {
        let update = self.choices().available();
        self.update(SessionUpdate::AvailableCommandsUpdate(update)).await;
    }

    /// Looks whether there is something else to choose or to run now, and tells.
    pub async fn refresh(&self, host: &dyn Host) -> Result<(), HostError> {
        let _refreshing = self.refreshing.lock().await;
        self.refresh_waits.store(false, Ordering::Release);
        let new = Choices::load(host, &self.scope, &self.id).await?;
        let old = std::mem::replace(&mut *lock(&self.choices), new.clone());
        if old.commands() != new.commands() {
            self.tell_commands().await;
        }
        let _telling = self.telling.lock().await;
        let chosen = self.chosen();
        if old.options(self.abilities, &chosen) != new.options(self.abilities, &chosen) {
            let options = new.options(self.abilities, &chosen);
            self.update(SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(options))).await;
        }
        Ok(())
    }

    /// Somebody else has given the session another agent or model.
    pub async fn changed(&self, session: &Session) {
        let now = Chosen::of(session, &lock(&self.choices));
        let set = |_: &Choices, chosen: &mut Chosen| {
            if session.agent.is_some() {
                chosen.mode.clone_from(&now.mode);
            }
            if session.model.is_some() {
                chosen.model.clone_from(&now.model);
                chosen.effort.clone_from(&now.effort);
            }
            Ok::<(), std::convert::Infallible>(())
        };
        let Ok(()) = self.choose(set).await;
    }

    /// Does something with the view, and tells what follows; gives what is left to be done.
    pub async fn show(&self, work: impl FnOnce(&mut View) -> Vec<Act>) -> Vec<Act> {
        let mut view = self.view.lock().await;
        let last = view.ended().last().cloned();
        let acts = work(&mut view);
        let mut left = Vec::new();
        for act in acts {
            match act {
                Act::Text(session, voice, message, text) => self.text(&session, voice, &message, &text).await,
                Act::Update(session, update) => tell(&self.peer, &session, *update).await,
                Act::Progress(session, call, update) => {
                    let terminal = terminal(&update);
                    let params = SessionNotification::new(session.to_string(), *update);
                    self.peer.tell_latest(format!("{session} {call}"), "session/update", &params).await;
                    terminal.inspect(|id| self.terminals.shown(id));
                }
                other => left.push(other),
            }
        }
        if view.ended().last() != last.as_ref() {
            self.told.send_replace(());
        }
        left
    }

    async fn text(&self, session: &SessionId, voice: Voice, message: &str, text: &str) {
        let kind = match voice {
            Voice::User => "user_message_chunk",
            Voice::Agent => "agent_message_chunk",
            Voice::Thought => "agent_thought_chunk",
        };
        // Ids need no quoting; the text is the last field, so that it can grow.
        let before = format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session}","update":{{"sessionUpdate":"{kind}","messageId":"{message}","content":{{"type":"text","text":"#
        );
        for piece in size::pieces(text) {
            self.peer.tell_text(Growing { before: before.clone(), text: piece.to_owned(), after: "}}}}" }).await;
        }
    }

    /// Shows the stored state again where events may be missing.
    pub async fn reread(&self, host: &dyn Host) -> Result<Vec<Act>, HostError> {
        let query = api::ListMessages { limit: Some(REREAD), before: None };
        let page = host.messages(&self.scope, &self.id, query).await?;
        let mut left = Vec::new();
        self.show(|view| {
            view.list(page.messages.iter().map(|message| message.info.id()), page.older.is_none());
            Vec::new()
        })
        .await;
        for message in page.messages {
            left.extend(self.show(|view| view.stored(message, false)).await);
        }
        Ok(left)
    }

    /// Shows a whole conversation, or only notes that it was shown up to these messages.
    pub async fn replay(&self, messages: Vec<MessageWithParts>, shown: bool) {
        let settled = Settled::of(&messages, shown);
        if shown {
            for message in messages {
                self.show(|view| view.stored(message, true)).await;
            }
        }
        self.show(|view| {
            view.skip(settled);
            Vec::new()
        })
        .await;
    }

    /// Waits until an answer was told to its end, if it ever is.
    pub async fn until_told(&self, answer: &MessageId) {
        let mut told = self.told.subscribe();
        // Whoever tells has the view until the end is told as well.
        while !self.view.lock().await.ended().contains(answer) && told.changed().await.is_ok() {}
    }

    /// Whether something is being told at the moment.
    pub fn is_telling(&self) -> bool {
        self.view.try_lock().is_err()
    }
}

/// The terminal that an update shows.
fn terminal(update: &SessionUpdate) -> Option<String> {
    let SessionUpdate::ToolCallUpdate(update) = update else { return None };
    update.fields.content.iter().flatten().find_map(|content| match content {
        ToolCallContent::Terminal(terminal) => Some(terminal.terminal_id.to_string()),
        _ => None,
    })
}

async fn tell(peer: &Peer, session: &SessionId, update: SessionUpdate) {
    if let SessionUpdate::ToolCall(call) = &update {
        let params = serde_json::json!({ "sessionId": session, "update": crate::view::tool_call::whole_call(call) });
        return peer.tell("session/update", &params).await;
    }
    let params = SessionNotification::new(session.to_string(), update);
    peer.tell("session/update", &params).await;
}
