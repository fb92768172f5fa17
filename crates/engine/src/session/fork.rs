//! Forks. A long session is copied page by page without blocking others, and the copy stays invisible until it is
//! complete.

use std::collections::HashMap;
use std::sync::Arc;

use api::{
    Caller, CreateSession, EventBody, HostError, Message, MessageId, MessageWithParts, Part, PartHead, Session,
    SessionId,
};
use store::{Batch, MessagePages, SessionDraft, Store, StoreError};

use crate::Inner;
use crate::ask::rules::Constraints;
use crate::error::store_error;
use crate::project::instance::Instance;

/// A copy in progress.
struct ForkCopy {
    pages: MessagePages,
    draft: SessionDraft,
    origin: SessionId,
    /// The new session.
    fork: Session,
    /// The constraints of the original: a copy of a subagent's session may do no more than the original.
    constraints: Constraints,
    /// Who makes the copy; nobody for the owner of the machine.
    owner: Option<String>,
    /// Ids of the copied messages, and those of their copies.
    ids: HashMap<MessageId, MessageId>,
    /// Whether nothing has been written yet.
    first: bool,
}

/// A copied page that is ready to be written.
enum CopiedPage {
    Middle(Batch),
    Last(Batch),
}

impl Inner {
    /// Copies a session up to `before`, exclusive. Runs on a separate task, so that a caller that hangs up leaves
    /// nothing half done.
    pub(crate) async fn fork(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        id: &SessionId,
        before: Option<MessageId>,
    ) -> Result<Session, HostError> {
        let (inner, caller, id) = (self.clone(), caller.clone(), id.clone());
        let forked = self.tasks.spawn(async move { inner.copy(&caller, &id, before.as_ref()).await }).await;
        forked.map_err(|error| HostError::Failed(format!("the copy failed: {error}")))?
    }

    async fn copy(&self, caller: &Caller, id: &SessionId, before: Option<&MessageId>) -> Result<Session, HostError> {
        let origin = self.session(id)?;
        let instance = self.instance(origin.directory.as_ref());
        let mut constraints = Constraints::clone(&*self.constraints(&self.store, &origin).map_err(store_error)?);
        constraints.careful |= self.settings.careful;
        let title = fork_title(&origin.title);
        let input = CreateSession { title: Some(title), workspace_id: origin.workspace_id, ..CreateSession::default() };
        let mut fork = self.new_session(&instance, input);
        fork.permission = origin.permission;
        fork.metadata = origin.metadata;
        fork.agent = origin.agent;
        fork.model = origin.model;
        tracing::debug!(session = %fork.id, origin = %id, client = caller.client_name(), "copying a session");
        let copy = ForkCopy {
            pages: self.store.message_pages(id, None, before).map_err(store_error)?,
            draft: SessionDraft::new(&self.store, &instance.place, &fork.id),
            origin: id.clone(),
            fork: fork.clone(),
            constraints,
            owner: caller.identity.clone(),
            ids: HashMap::new(),
            first: true,
        };
        self.copy_pages(&instance, copy).await?;
        Ok(fork)
    }

    async fn copy_pages(&self, instance: &Instance, mut copy: ForkCopy) -> Result<(), HostError> {
        loop {
            // Parsing and writing JSON takes longer than the database does.
            let read = move |_: &Store| {
                let page = copy.next();
                Ok::<_, StoreError>((copy, page))
            };
            let page;
            (copy, page) = self.store.long_read(read).await.map_err(store_error)?;
            let written = match page {
                Ok(_) if self.tasks.is_closing() => Err(HostError::Unavailable("the engine shuts down".to_owned())),
                Ok(CopiedPage::Middle(batch)) => copy.draft.add(batch).await.map_err(store_error).map(|()| false),
                Ok(CopiedPage::Last(mut batch)) => match self.add_project(instance, &mut batch) {
                    Ok(()) => copy.draft.publish(batch).await.map_err(store_error).map(|()| true),
                    Err(error) => Err(error),
                },
                Err(error) => Err(store_error(error)),
            };
            match written {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => {
                    copy.draft.discard().await;
                    return Err(error);
                }
            }
        }
    }

    /// Removes unfinished copies left by dead processes.
    pub(crate) async fn discard_drafts(&self) -> Result<(), StoreError> {
        for draft in self.store.abandoned_drafts()? {
            tracing::info!(session = %draft, "removing an unfinished copy of a session");
            self.store.discard_draft(&draft).await?;
        }
        Ok(())
    }
}

impl ForkCopy {
    fn next(&mut self) -> Result<CopiedPage, StoreError> {
        let messages = self.pages.next_page()?;
        let last = self.pages.is_done();
        let mut batch = if last { self.draft.final_batch(&self.fork) } else { self.draft.new_batch() };
        if last {
            if let Some(owner) = &self.owner {
                batch.session_owner(&self.fork.id, owner);
            }
            self.constraints.put(&mut batch, &self.fork.id);
            batch.copy_file_versions(&self.origin, &self.fork.id);
        }
        // Only the session event is sent for a long copy: its content would be too much for any subscriber at once.
        let with_events = last && std::mem::take(&mut self.first);
        // A running step stays with its own session.
        let complete = |m: &MessageWithParts| m.info.as_assistant().is_none_or(|a| a.time.completed.is_some());
        for message in messages.into_iter().filter(complete) {
            self.put(message, with_events, &mut batch);
        }
        self.first = false;
        Ok(if last { CopiedPage::Last(batch) } else { CopiedPage::Middle(batch) })
    }

    /// Writes a copy with a new id. References to copied messages are mapped to their copies.
    fn put(&mut self, mut message: MessageWithParts, with_events: bool, batch: &mut Batch) {
        let (id, session) = (MessageId::new(), &self.fork.id);
        self.ids.insert(message.info.id().clone(), id.clone());
        match &mut message.info {
            Message::User(info) => {
                info.id = id.clone();
                info.session_id = session.clone();
            }
            Message::Assistant(info) => {
                info.id = id.clone();
                info.session_id = session.clone();
                if let Some(parent) = self.ids.get(&info.parent_id) {
                    info.parent_id = parent.clone();
                }
            }
        }
        batch.insert_message(&message.info);
        if with_events {
            batch.event(EventBody::message(message.info));
        }
        for mut part in message.parts {
            let new = PartHead::new(session, &id);
            if let Part::Other(map) = &mut part {
                map.insert("id".to_owned(), new.id.as_str().into());
                map.insert("sessionID".to_owned(), new.session_id.as_str().into());
                map.insert("messageID".to_owned(), new.message_id.as_str().into());
            } else if let Some(head) = part.head_mut() {
                *head = new;
            }
            batch.insert_part(&part);
            if let Some(event) = with_events.then(|| EventBody::part(part)).flatten() {
                batch.event(event);
            }
        }
    }
}

/// `Title (fork #1)`, then `#2` and so on.
fn fork_title(title: &str) -> String {
    let numbered = title.strip_suffix(')').and_then(|t| t.rsplit_once(" (fork #"));
    match numbered.and_then(|(base, n)| Some((base, n.parse::<u64>().ok()?))) {
        Some((base, n)) => format!("{base} (fork #{})", n + 1),
        None => format!("{title} (fork #1)"),
    }
}

#[cfg(test)]
mod tests {
    use super::fork_title;

    #[test]
    fn forks_are_numbered() {
        assert_eq!(fork_title("a"), "a (fork #1)");
        assert_eq!(fork_title("a (fork #1)"), "a (fork #2)");
        assert_eq!(fork_title("a (fork #x)"), "a (fork #x) (fork #1)");
    }
}
