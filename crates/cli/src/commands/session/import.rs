//! `trefoil session import`. No host accepts a whole session, so this writes to the journal itself: all of it or nothing.

use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use api::{
    CatalogHost, JsonMap, Message, MessageWithParts, Part, Scope, Session, ToolError, ToolPart, ToolState, ToolTime,
};
use store::{Batch, Location, SessionDraft, Store, StoreError};

use super::Export;
use crate::exit::{Exit, Failure};
use crate::terminal;
use crate::wiring::LocalEngine;

/// Messages per write.
const CHUNK: usize = 128;
/// The largest export that is read, in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// Imports a session from a file into this directory.
pub async fn import(
    host: &dyn CatalogHost,
    local: &LocalEngine,
    scope: &Scope,
    directory: &Path,
    file: &Path,
) -> anyhow::Result<()> {
    let store = &local.store;
    let mut export = read(directory, file).with_context(|| format!("cannot import {}", file.display()))?;
    let exists = |what: String| {
        Failure::new(Exit::Failed, format!("cannot import {}: {what} already exists", file.display()))
            .hint("delete that session first if the file should replace it")
    };
    if store.session(&export.info.id)?.is_some() {
        return Err(exists(format!("session {}", export.info.id)).into());
    }
    if store.unswept_sessions()?.contains(&export.info.id) {
        // Leftovers of a deleted session with this id must not become part of the new one.
        local.engine.sweep().await?;
    }
    for message in &export.messages {
        if store.message(message.info.id())?.is_some() {
            return Err(exists(format!("message {}", message.info.id())).into());
        }
        for head in message.parts.iter().filter_map(|part| part.head()) {
            if store.part(&head.id)?.is_some() {
                return Err(exists(format!("part {}", head.id)).into());
            }
        }
    }
    adopt(&mut export, host, store, scope).await?;
    let info = export.info;
    let place = Location::new(scope.directory.as_str(), info.project_id.as_str());
    let mut draft = SessionDraft::new(store, &place, &info.id);
    if let Err(error) = write(&mut draft, &info, &export.messages).await {
        draft.discard().await;
        return Err(error).with_context(|| format!("cannot import {}", file.display()));
    }
    terminal::say(&format!("imported {}\n", terminal::plural(export.messages.len(), "message")));
    Ok(terminal::print(&format!("{}\n", info.id))?)
}

/// Writes a session in chunks, so that others can write in between. It appears once it is complete.
async fn write(draft: &mut SessionDraft, info: &Session, messages: &[MessageWithParts]) -> Result<(), StoreError> {
    let put = |batch: &mut Batch, messages: &[MessageWithParts]| {
        for message in messages {
            batch.insert_message(&message.info);
            message.parts.iter().for_each(|part| batch.insert_part(part));
        }
    };
    let mut pieces = messages.chunks(CHUNK);
    let last = pieces.next_back().unwrap_or_default();
    for piece in pieces {
        let mut batch = draft.new_batch();
        put(&mut batch, piece);
        draft.add(batch).await?;
    }
    let mut batch = draft.final_batch(info);
    put(&mut batch, last);
    draft.publish(batch).await
}

/// Makes the session one of this directory, and drops its references to other places.
async fn adopt(export: &mut Export, host: &dyn CatalogHost, store: &Store, scope: &Scope) -> anyhow::Result<()> {
    export.messages.iter_mut().for_each(end_running_work);
    let info = &mut export.info;
    let project = host.project(scope).await?;
    let path = Path::new(&scope.directory).strip_prefix(&project.worktree).ok();
    let path = path.filter(|_| project.vcs.is_some()).unwrap_or(Path::new(""));
    info.path = Some(path.to_string_lossy().into_owned());
    info.project_id = project.id;
    info.directory = scope.directory.clone();
    info.workspace_id = None;
    info.share = None;
    info.revert = None;
    // The author of the file does not decide what is allowed here.
    info.permission = None;
    if let Some(parent) = &info.parent_id
        && store.session(parent)?.is_none()
    {
        info.parent_id = None;
    }
    Ok(())
}

/// Ends what was running when the file was written: it does not continue here.
fn end_running_work(message: &mut MessageWithParts) {
    if let Message::Assistant(answer) = &mut message.info {
        answer.time.completed.get_or_insert(answer.time.created);
    }
    for part in &mut message.parts {
        if let Part::Tool(tool) = part
            && !tool.state.is_done()
        {
            mark_interrupted(tool);
        }
    }
}

fn mark_interrupted(tool: &mut ToolPart) {
    let now = api::now();
    tool.state = ToolState::Error(ToolError {
        input: tool.state.input().clone(),
        error: "interrupted: the session was exported while this call ran, so its outcome is unknown".to_owned(),
        metadata: Some(JsonMap::from_iter([("interrupted".to_owned(), true.into())])),
        time: ToolTime { start: now, end: Some(now), compacted: None },
    });
}

fn read(directory: &Path, file: &Path) -> anyhow::Result<Export> {
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        std::io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    } else {
        std::fs::File::open(directory.join(file))?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Failure::new(Exit::Failed, format!("it has more than {} MB", MAX_BYTES >> 20)).into());
    }
    Export::parse(std::str::from_utf8(&bytes).context("it is not UTF-8 text")?)
}
