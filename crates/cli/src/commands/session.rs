//! `trefoil session list|show|export|import|delete`, and how every command finds the session that it is given.

mod find;
mod import;

use anyhow::Context as _;
use api::{
    Host, ListMessages, ListSessions, Message, MessageId, MessageWithParts, Part, PartId, Scope, Session, SessionId,
    Timestamp,
};
use chrono::TimeZone as _;
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};
use crate::run::{Piece, Renderer};
use crate::terminal::{self, Style, amounts, one_line, print_json};
pub use find::{LAST, find_session};
pub use import::import;

/// The longest list, which is printed at once.
const MAX_LIST: usize = 10_000;
/// How many messages are read at once.
const PAGE: usize = 500;

/// A whole session, as `export` writes and `import` reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Export {
    /// The session.
    pub info: Session,
    /// Its messages, oldest first.
    pub messages: Vec<MessageWithParts>,
}

/// Lists sessions, newest first.
pub async fn list(host: &dyn Host, scope: &Scope, all: bool, limit: usize, json: bool) -> anyhow::Result<()> {
    let limit = Some(limit.min(MAX_LIST));
    let query = ListSessions { everywhere: all, roots: true, limit, ..ListSessions::default() };
    let sessions = host.sessions(scope, query).await?;
    if json {
        return print_json(&sessions);
    }
    if sessions.is_empty() {
        terminal::say("no sessions yet; start one with `trefoil run \"what to do\"`\n");
        return Ok(());
    }
    let row = |session: &Session| {
        let mut row = vec![session.id.to_string(), local_time(session.time.updated), one_line(&session.title, 60)];
        if all {
            row.push(one_line(&session.directory, 60));
        }
        row
    };
    Ok(terminal::print(&terminal::table(&sessions.iter().map(row).collect::<Vec<_>>()))?)
}

/// Shows a conversation.
pub async fn show(host: &dyn Host, scope: &Scope, id: &str, json: bool, style: Style) -> anyhow::Result<()> {
    let export = load(host, scope, id).await?;
    if json {
        return print_json(&export);
    }
    let cost = cost(host, &export.info).await;
    Ok(terminal::print(&transcript(&export, cost.as_deref(), style))?)
}

/// Writes a session as JSON.
pub async fn export(host: &dyn Host, scope: &Scope, id: &str) -> anyhow::Result<()> {
    print_json(&load(host, scope, id).await?)
}

/// Deletes sessions. If one of them is unknown, nothing is deleted.
pub async fn delete(host: &dyn Host, scope: &Scope, ids: &[String]) -> anyhow::Result<()> {
    let mut sessions = Vec::new();
    for id in ids {
        sessions.push(find_session(host, scope, id).await?);
    }
    for session in sessions {
        host.delete_session(&session.id).await.with_context(|| format!("cannot delete {}", session.id))?;
        terminal::say(&format!("deleted {}  {}\n", session.id, one_line(&session.title, 60)));
    }
    Ok(())
}

async fn load(host: &dyn Host, scope: &Scope, id: &str) -> anyhow::Result<Export> {
    let info = find_session(host, scope, id).await?;
    let mut pages = Vec::new();
    let mut before = None;
    loop {
        let page = host.messages(&info.id, ListMessages { limit: Some(PAGE), before }).await?;
        pages.push(page.messages);
        match page.older {
            Some(older) => before = Some(older),
            // The newest page comes first.
            None => return Ok(Export { info, messages: pages.into_iter().rev().flatten().collect() }),
        }
    }
}

/// What a session itself used, from its ledger: `$0.0123 ($0.0002 for the title)`.
async fn cost(host: &dyn Host, info: &Session) -> Option<String> {
    if !host.features().tree {
        return info.cost.filter(|cost| cost.0 > 0.0).map(|cost| amounts::dollars(cost.0));
    }
    let tree = host.tree(&info.id).await.ok()?;
    let node = tree.sessions.into_iter().next()?;
    let title = node.titling.map(|titling| amounts::price(&titling.used)).filter(|price| !price.is_empty());
    let title = title.map(|price| format!(" ({price} for the title)")).unwrap_or_default();
    Some(format!("{}{title}", amounts::price(&node.own))).filter(|cost| !cost.is_empty())
}

/// A conversation as text.
fn transcript(export: &Export, cost: Option<&str>, style: Style) -> String {
    let info = &export.info;
    let mut text = format!("{}\n", style.bold(&one_line(&info.title, 200)));
    let mut line = format!("{} · {} · {}", info.id, local_time(info.time.created), one_line(&info.directory, 200));
    if let Some(cost) = cost {
        line += &format!(" · {cost}");
    }
    text += &format!("{}\n", style.dim(&line));
    let renderer = Renderer::new(info.id.clone(), style, true);
    let mut renderer = if style.color { renderer.with_markdown() } else { renderer };
    for message in &export.messages {
        let mut pieces = Vec::new();
        if matches!(message.info, Message::User(_)) {
            text += &format!("\n{}", user_text(&message.parts, style));
            renderer.message(&message.info, &mut pieces);
        }
        for part in &message.parts {
            renderer.part(part, &mut pieces);
        }
        renderer.close_line(&mut pieces);
        for piece in pieces {
            match piece {
                Piece::Text(piece) | Piece::Note(piece) => text += &piece,
            }
        }
        if let Some(error) = message.info.as_assistant().and_then(|answer| answer.error.as_ref()) {
            let line = one_line(&format!("{}: {}", error.name(), error.message()), 400);
            text += &format!("{}\n", style.red(&line));
        }
    }
    for piece in renderer.finish(None) {
        let (Piece::Text(piece) | Piece::Note(piece)) = piece;
        text += &piece;
    }
    text
}

/// What the user wrote.
fn user_text(parts: &[Part], style: Style) -> String {
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Text(part) if part.synthetic != Some(true) => {
                for line in api::strip_control(&part.text).lines() {
                    text += &format!("{} {}\n", style.cyan(">"), style.bold(line));
                }
            }
            Part::File(file) => {
                let name = one_line(file.filename.as_deref().unwrap_or(&file.url), 100);
                text += &format!("{} {}\n", style.cyan(">"), style.dim(&format!("[{name}]")));
            }
            _ => {}
        }
    }
    text
}

fn local_time(time: Timestamp) -> String {
    match chrono::Local.timestamp_millis_opt(time) {
        chrono::LocalResult::Single(time) => time.format("%Y-%m-%d %H:%M").to_string(),
        _ => "?".to_string(),
    }
}

impl Export {
    /// Parses an export and checks that it is consistent: ids are valid and unique, every message belongs to the session, and
    /// every part to its message.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let export: Self = serde_json::from_str(text)
            .context("it is not an exported session (an object with `info` and `messages`)")?;
        let mut ids = std::collections::HashSet::new();
        let refuse = |why: String| Err(Failure::new(Exit::Failed, why).into());
        SessionId::parse(export.info.id.as_str()).map_err(|why| Failure::new(Exit::Failed, why))?;
        for message in &export.messages {
            let id = message.info.id();
            if *message.info.session_id() != export.info.id {
                return refuse(format!("message {id} belongs to another session"));
            }
            MessageId::parse(id.as_str()).map_err(|why| Failure::new(Exit::Failed, why))?;
            if !ids.insert(id.as_str()) {
                return refuse(format!("message {id} comes twice"));
            }
            for part in &message.parts {
                let Some(head) = part.head() else {
                    return refuse(format!("message {id} has a part of an unknown kind"));
                };
                if head.session_id != export.info.id || head.message_id != *id {
                    return refuse(format!("part {} does not belong to message {id}", head.id));
                }
                PartId::parse(head.id.as_str()).map_err(|why| Failure::new(Exit::Failed, why))?;
                if !ids.insert(head.id.as_str()) {
                    return refuse(format!("part {} comes twice", head.id));
                }
            }
        }
        Ok(export)
    }
}

#[cfg(test)]
mod tests;
