//! A watcher's stream: a replay from the database, then the queue, without gaps or duplicates between them.

use std::collections::VecDeque;
use std::sync::Arc;

use api::{Cursor, WatchItem, WatchScope};
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use crate::error::StoreError;
use crate::feed::queue::QueueEnd;
use crate::feed::{Feed, Subscription};
use crate::sqlite::log;
use crate::sqlite::read::Readers;

/// How many bytes of the log a watcher reads ahead. The byte limit of the feed does not count them.
const REPLAY_BYTES: usize = 32 << 10;

struct WatchStream {
    readers: Arc<Readers>,
    scope: WatchScope,
    subscription: Subscription,
    /// Items read but not yet returned.
    pending: VecDeque<WatchItem>,
    /// Everything up to this sequence number was read.
    after: u64,
    ended: bool,
}

pub(crate) fn watch(
    feed: &Arc<Feed>,
    readers: &Arc<Readers>,
    owner: &str,
    scope: WatchScope,
    after: Option<Cursor>,
) -> Result<BoxStream<'static, WatchItem>, StoreError> {
    let mut pending = VecDeque::new();
    let mut resume_at = None;
    if let Some(cursor) = after {
        match readers.read(|conn| log::check_cursor(conn, &cursor))? {
            None => resume_at = Some(cursor.seq),
            Some(why) => pending.push_back(WatchItem::Resync(why)),
        }
    }
    let subscription = feed.attach(readers, owner, &scope, resume_at.unwrap_or(0))?;
    let after = resume_at.unwrap_or(subscription.base);
    let watch = WatchStream { readers: readers.clone(), scope, subscription, pending, after, ended: false };
    Ok(stream::unfold(watch, |mut watch| async move { Some((watch.next().await?, watch)) }).boxed())
}

impl WatchStream {
    async fn next(&mut self) -> Option<WatchItem> {
        loop {
            if let Some(item) = self.pending.pop_front() {
                return Some(item);
            }
            if self.ended {
                return None;
            }
            if self.after < self.subscription.base {
                self.replay();
                continue;
            }
            match self.subscription.queue.next().await {
                Ok(frame) => return Some(WatchItem::Frame(frame)),
                Err(end) => {
                    self.ended = true;
                    if end == QueueEnd::Lagged {
                        return Some(WatchItem::Lagged);
                    }
                }
            }
        }
    }

    fn replay(&mut self) {
        let (after, base) = (self.after, self.subscription.base);
        let read = self.readers.read(|conn| {
            let snapshot = conn.unchecked_transaction()?;
            let pruned = log::first(&snapshot)? > after + 1;
            Ok((pruned, log::replay(&snapshot, after, base.min(after + log::CHUNK), REPLAY_BYTES)?))
        });
        let why = match read {
            Ok((false, (frames, to))) => {
                let wanted = frames.into_iter().filter(|frame| frame.within(&self.scope));
                self.pending.extend(wanted.map(WatchItem::Frame));
                self.after = to;
                return;
            }
            Ok((true, _)) => "the log was pruned while it was read".to_owned(),
            Err(error) => {
                tracing::warn!(%error, "the log cannot be replayed");
                error.to_string()
            }
        };
        self.after = base;
        self.pending.push_back(WatchItem::Resync(why));
    }
}
