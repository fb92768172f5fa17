//! Filters the events of a session and its descendants.

use std::collections::HashSet;

use crate::{EventBody, Frame, SessionId};

/// A session and its descendants, tracked by events: created children join, deleted sessions leave.
#[derive(Debug, Clone)]
pub struct Subtree {
    members: HashSet<SessionId>,
}

impl Subtree {
    /// The session and its current descendants.
    pub fn new(root: SessionId, below: impl IntoIterator<Item = SessionId>) -> Self {
        Self { members: below.into_iter().chain([root]).collect() }
    }

    /// Adds back sessions that were deleted since, each with its parent, in the order of deletion: those that belonged
    /// to the subtree stay members until their deletion event arrives.
    pub fn revive(&mut self, deleted: Vec<(SessionId, Option<SessionId>)>) {
        // Children are deleted before their parents, so parents come first in reverse.
        for (session, parent) in deleted.into_iter().rev() {
            if parent.is_some_and(|parent| self.members.contains(&parent)) {
                self.members.insert(session);
            }
        }
    }

    /// Whether an event belongs to the subtree. Events must arrive in order.
    pub fn admits(&mut self, frame: &Frame) -> bool {
        let Some(session) = &frame.session else { return false };
        let member = self.members.contains(session);
        match frame.event().as_deref().map(|event| &event.body) {
            Some(EventBody::SessionCreated { info, .. }) if !member => {
                let born = info.parent_id.as_ref().is_some_and(|parent| self.members.contains(parent));
                born && self.members.insert(session.clone())
            }
            Some(EventBody::SessionDeleted { .. }) => self.members.remove(session),
            _ => member,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Cursor, Event, MessageId, PartId, Session};

    fn session(id: &str, parent: Option<&str>) -> Session {
        serde_json::from_value(serde_json::json!({
            "id": id, "slug": "s", "projectID": "p", "directory": "/p", "title": "t", "version": "0", "cost": 0,
            "parentID": parent, "time": {"created": 1, "updated": 1},
        }))
        .unwrap()
    }

    fn id(text: &str) -> SessionId {
        SessionId::parse(text).unwrap()
    }

    fn frame(body: EventBody, durable: bool) -> Frame {
        let event = Event::new(body);
        let cursor = durable.then(|| Cursor { seq: 1, id: event.id.clone() });
        let json = serde_json::to_vec(&event).unwrap().into();
        Frame::new(cursor, "/p".into(), "p".into(), Arc::new(event), json)
    }

    fn created(child: &str, parent: Option<&str>) -> Frame {
        frame(EventBody::SessionCreated { session_id: id(child), info: Box::new(session(child, parent)) }, true)
    }

    fn deleted(child: &str, parent: Option<&str>) -> Frame {
        frame(EventBody::SessionDeleted { session_id: id(child), info: Box::new(session(child, parent)) }, true)
    }

    fn idle(session: &str) -> Frame {
        frame(EventBody::SessionIdle { session_id: id(session) }, true)
    }

    fn delta(session: &str) -> Frame {
        let (message_id, part_id) = (MessageId::new(), PartId::new());
        let (field, delta) = ("text".into(), "x".into());
        frame(EventBody::PartDelta { session_id: id(session), message_id, part_id, field, delta }, false)
    }

    #[test]
    fn created_sessions_join_and_deleted_ones_leave() {
        let mut tree = Subtree::new(id("ses_root"), [id("ses_old")]);
        for mine in ["ses_root", "ses_old"] {
            assert!(tree.admits(&idle(mine)) && tree.admits(&delta(mine)));
        }
        for other in ["ses_other", "ses_new"] {
            assert!(!tree.admits(&idle(other)) && !tree.admits(&delta(other)));
        }
        assert!(!tree.admits(&created("ses_stranger", None)));
        assert!(!tree.admits(&created("ses_nephew", Some("ses_stranger"))));
        assert!(tree.admits(&created("ses_new", Some("ses_old"))));
        assert!(tree.admits(&created("ses_newer", Some("ses_new"))));
        assert!(tree.admits(&created("ses_newer", Some("ses_new"))), "created twice, it still belongs");
        assert!(tree.admits(&idle("ses_newer")) && tree.admits(&delta("ses_newer")));
        assert!(tree.admits(&deleted("ses_newer", Some("ses_new"))));
        assert!(!tree.admits(&idle("ses_newer")));
        assert!(!tree.admits(&deleted("ses_newer", Some("ses_new"))), "deleted once");
        assert!(!tree.admits(&created("ses_late", Some("ses_newer"))));
    }

    #[test]
    fn events_without_a_session_are_not_admitted() {
        let mut tree = Subtree::new(id("ses_root"), []);
        assert!(!tree.admits(&frame(EventBody::LspUpdated {}, true)));
        assert!(!tree.admits(&frame(EventBody::ServerHeartbeat {}, false)));
    }

    #[test]
    fn sessions_deleted_since_stay_members_until_their_deletion_event() {
        let mut tree = Subtree::new(id("ses_root"), []);
        tree.revive(vec![
            (id("ses_leaf"), Some(id("ses_twig"))),
            (id("ses_foreign"), Some(id("ses_other"))),
            (id("ses_twig"), Some(id("ses_root"))),
            (id("ses_orphan"), None),
        ]);
        assert!(tree.admits(&idle("ses_leaf")) && tree.admits(&idle("ses_twig")));
        assert!(!tree.admits(&idle("ses_foreign")) && !tree.admits(&idle("ses_orphan")));
        assert!(tree.admits(&deleted("ses_leaf", Some("ses_twig"))));
        assert!(!tree.admits(&idle("ses_leaf")));
    }
}
