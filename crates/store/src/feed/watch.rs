//! A watcher's stream: a replay from the database, then the queue, without gaps or duplicates between them.
//!
//! The replay reads one page at a time as a long read, and the next one only when the page is consumed. So neither its
//! caller's thread nor the memory depends on the length of the log.

use std::collections::VecDeque;
use std::sync::Arc;

use api::{Cursor, WatchItem, WatchScope};
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use crate::error::StoreError;
use crate::feed::Feed;
use crate::feed::attach::Subscription;
use crate::feed::queue::QueueEnd;
use crate::feed::stored::{LogPage, StoredLog};
use crate::long_read::LongReads;

/// How many bytes of the log a watcher reads ahead: a page, which also has a bounded number of rows. The byte limit
/// of the feed does not count them.
const REPLAY_BYTES: usize = 32 << 10;

struct WatchStream {
    log: Arc<dyn StoredLog>,
    long_reads: LongReads,
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
    (log, long_reads): (&Arc<dyn StoredLog>, &LongReads),
    owner: &str,
    scope: WatchScope,
    after: Option<Cursor>,
) -> Result<BoxStream<'static, WatchItem>, StoreError> {
    let mut pending = VecDeque::new();
    let mut resume_at = None;
    if let Some(cursor) = after {
        match log.check_cursor(&cursor)? {
            None => resume_at = Some(cursor.seq),
            Some(why) => pending.push_back(WatchItem::Resync(why)),
        }
    }
    let subscription = feed.attach(&**log, owner, &scope, resume_at.unwrap_or(0))?;
    let after = resume_at.unwrap_or(subscription.base);
    let (log, long_reads) = (log.clone(), long_reads.clone());
    let watch = WatchStream { log, long_reads, scope, subscription, pending, after, ended: false };
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
                self.replay().await;
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

    /// Reads the next page of the log.
    async fn replay(&mut self) {
        // A page may be there at once, and the other tasks of this thread must run all the same.
        tokio::task::yield_now().await;
        let (after, base) = (self.after, self.subscription.base);
        let (log, scope) = (self.log.clone(), self.scope.clone());
        let read = self.long_reads.run(move || {
            let mut page = log.page(after, base, REPLAY_BYTES)?;
            page.frames.retain(|frame| frame.within(&scope));
            Ok::<_, StoreError>(page)
        });
        let why = match read.await.flatten() {
            Ok(LogPage { frames, end, is_pruned: false }) => {
                self.pending.extend(frames.into_iter().map(WatchItem::Frame));
                self.after = end;
                return;
            }
            Ok(LogPage { is_pruned: true, .. }) => "the log was pruned while it was read".to_owned(),
            Err(error) => {
                tracing::warn!(%error, "the log cannot be replayed");
                error.to_string()
            }
        };
        self.after = base;
        self.pending.push_back(WatchItem::Resync(why));
    }
}
