//! Attaching a watcher. The database is read before the feed's mutex is taken, because every commit needs the mutex.
//! What is published in between is noticed.

use std::collections::HashMap;
use std::sync::Arc;

use api::{PartId, WatchScope};
use rusqlite::Connection;

use crate::error::StoreError;
use crate::feed::queue::{Queue, QueuedFrame};
use crate::feed::{Feed, FeedState, GrowingPart, MAX_GROWING_PARTS, Watcher, text};
use crate::sqlite::log;
use crate::sqlite::read::Readers;

/// The state of a feed without watchers, which does not follow other processes.
#[derive(Debug)]
struct Unfollowed {
    /// The growing parts of this process.
    own: Vec<PartId>,
    publications: u64,
}

/// The end of the log in one snapshot of the database, with the parts that are growing there. The last event of a part
/// that has ended lies before that end.
#[derive(Debug)]
struct CaughtUp {
    tip: u64,
    /// Parts of this process that have ended, whoever ended them.
    ended: Vec<PartId>,
    growing: HashMap<PartId, GrowingPart>,
    /// What was published before the snapshot.
    publications: u64,
}

/// A new watcher's queue.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// The queue holds everything after this sequence number.
    pub base: u64,
    pub queue: Arc<Queue>,
    pub _guard: SubscriptionGuard,
}

/// Removes the watcher on drop.
#[derive(Debug)]
pub(crate) struct SubscriptionGuard {
    feed: Arc<Feed>,
    key: u64,
}

impl Drop for SubscriptionGuard {
    fn drop(&mut self) {
        self.feed.lock().watchers.remove(&self.key);
    }
}

impl Feed {
    /// Registers a watcher that knows everything up to `floor`. Its queue begins with the full text so far of every
    /// growing part. Reads only for the first watcher: at most [`MAX_GROWING_PARTS`] parts.
    pub(crate) fn attach(
        self: &Arc<Self>,
        readers: &Readers,
        owner: &str,
        scope: &WatchScope,
        floor: u64,
    ) -> Result<Subscription, StoreError> {
        // Nobody followed other processes' commits, and a new watcher does not need the old ones.
        let unfollowed = self.lock().unfollowed();
        let caught_up = unfollowed
            .map(|unfollowed| readers.read(|conn| unfollowed.catch_up(&*conn.unchecked_transaction()?, owner)))
            .transpose()?;
        let mut state = self.lock();
        // Unless another watcher came first.
        if let Some(caught_up) = caught_up.filter(|_| state.watchers.is_empty()) {
            state.apply(caught_up);
        }
        if floor > state.published {
            // The watcher has seen events that this process has not sent yet, and they may have ended any part of
            // another process. A forgotten part is sent again, in full, when it grows.
            state.growing.retain(|_, growing| growing.is_own);
        }
        let base = state.published.max(floor);
        let queue = Arc::new(Queue::default());
        for growing in state.growing.values() {
            if let Some(frame) = text::part_frame(&growing.location, &growing.part).filter(|frame| frame.within(scope))
            {
                // The queue is empty and holds more than MAX_GROWING_PARTS, so this cannot fail.
                queue.push(QueuedFrame::new(&frame, state.frames_sent, &self.counter));
            }
        }
        let key = state.next_key;
        state.next_key += 1;
        state.watchers.insert(key, Watcher { scope: scope.clone(), base, queue: queue.clone() });
        Ok(Subscription { base, queue, _guard: SubscriptionGuard { feed: self.clone(), key } })
    }
}

impl Unfollowed {
    /// Reads the end of the log and what is growing there.
    fn catch_up(self, snapshot: &Connection, owner: &str) -> Result<CaughtUp, StoreError> {
        let tip = log::tip(snapshot)?;
        let mut ended = Vec::new();
        for id in self.own {
            if !log::is_growing(snapshot, &id)? {
                ended.push(id);
            }
        }
        let mut growing = HashMap::new();
        for row in log::growing(snapshot, MAX_GROWING_PARTS)? {
            let Some((id, ..)) = text::ids(&row.part) else { continue };
            let is_own = row.owner == owner;
            growing.insert(id, GrowingPart { location: row.location, part: row.part, is_own });
        }
        Ok(CaughtUp { tip, ended, growing, publications: self.publications })
    }
}

impl FeedState {
    /// What must be read before the first watcher can attach; `None` if there are watchers.
    fn unfollowed(&self) -> Option<Unfollowed> {
        self.watchers.is_empty().then(|| {
            let own = self.growing.iter().filter(|(_, growing)| growing.is_own).map(|(id, _)| id.clone());
            Unfollowed { own: own.collect(), publications: self.publications }
        })
    }

    /// Moves to the end of the log without sending anything.
    fn apply(&mut self, caught_up: CaughtUp) {
        let CaughtUp { tip, ended, growing, publications } = caught_up;
        self.published = self.published.max(tip);
        // A part that has ended never grows again, so this holds whatever was published meanwhile.
        ended.iter().for_each(|id| drop(self.growing.remove(id)));
        self.growing.retain(|_, growing| growing.is_own);
        // Otherwise one of these parts may have ended since. A part that is missing is sent in full when it grows.
        if self.publications == publications {
            for (id, row) in growing {
                if self.growing.len() < MAX_GROWING_PARTS {
                    self.growing.entry(id).or_insert(row);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use api::{MessageId, Part, SessionId};
    use serde_json::json;

    use super::*;
    use crate::batch::{Batch, Location};

    fn location() -> Location {
        Location::new("/repo", "project")
    }

    fn part() -> (PartId, Part) {
        let part = json!({"type": "text", "id": PartId::new(), "sessionID": SessionId::new(),
            "messageID": MessageId::new(), "text": "x", "time": {"start": 1}});
        let part: Part = serde_json::from_value(part).unwrap();
        (part.head().unwrap().id.clone(), part)
    }

    #[test]
    fn a_snapshot_older_than_what_was_published_adds_no_growing_text() {
        for is_published in [false, true] {
            let (feed, (id, part)) = (Feed::new(1000), part());
            let unfollowed = feed.lock().unfollowed().unwrap();
            let row = GrowingPart { location: location(), part, is_own: false };
            let (tip, growing) = (5, HashMap::from([(id.clone(), row)]));
            let caught_up = CaughtUp { tip, ended: Vec::new(), growing, publications: unfollowed.publications };
            if is_published {
                feed.publish_own(&Batch::new(&location()), &[], &[], 6);
            }
            let mut state = feed.lock();
            state.apply(caught_up);
            assert_eq!(state.published, if is_published { 6 } else { 5 });
            assert_eq!(state.growing.contains_key(&id), !is_published, "it may have ended since");
        }
    }

    #[test]
    fn own_text_that_another_process_ended_is_forgotten() {
        for is_published in [false, true] {
            let (feed, (id, part)) = (Feed::new(1000), part());
            feed.send_delta(&location(), &part, "x");
            let unfollowed = feed.lock().unfollowed().unwrap();
            assert_eq!(unfollowed.own, std::slice::from_ref(&id));
            let (publications, ended, growing) = (unfollowed.publications, unfollowed.own, HashMap::new());
            if is_published {
                feed.publish_own(&Batch::new(&location()), &[], &[], 6);
            }
            let mut state = feed.lock();
            state.apply(CaughtUp { tip: 5, ended, growing, publications });
            assert!(!state.growing.contains_key(&id));
        }
    }
}
