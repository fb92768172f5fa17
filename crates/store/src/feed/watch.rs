//! A watcher's stream: replay from the database, then the queue, without gap or repetition between them.

use std::collections::VecDeque;
use std::sync::Arc;

use api::{Cursor, WatchItem, WatchScope};
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use crate::error::StoreError;
use crate::feed::queue::End;
use crate::feed::{Attached, Feed};
use crate::sqlite::log;
use crate::sqlite::read::Readers;

/// How much of the log one watcher reads ahead, in bytes: what is read for it waits for nobody else.
const REPLAY_BYTES: usize = 32 << 10;

struct Watch {
    readers: Arc<Readers>,
    scope: WatchScope,
    attached: Attached,
    /// Read and not yet handed out.
    ready: VecDeque<WatchItem>,
    /// Everything up to here was read.
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
    let mut ready = VecDeque::new();
    let mut from = None;
    if let Some(cursor) = after {
        match readers.read(|conn| log::unknown(conn, &cursor))? {
            None => from = Some(cursor.seq),
            Some(why) => ready.push_back(WatchItem::Resync(why)),
        }
    }
    let attached = feed.attach(readers, owner, &scope, from.unwrap_or(0))?;
    let after = from.unwrap_or(attached.base);
    let watch = Watch { readers: readers.clone(), scope, attached, ready, after, ended: false };
    Ok(stream::unfold(watch, |mut watch| async move { Some((watch.next().await?, watch)) }).boxed())
}

impl Watch {
    async fn next(&mut self) -> Option<WatchItem> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            if self.ended {
                return None;
            }
            if self.after < self.attached.base {
                self.replay();
                continue;
            }
            match self.attached.queue.next().await {
                Ok(frame) => return Some(WatchItem::Frame(frame)),
                Err(end) => {
                    self.ended = true;
                    if end == End::Lagged {
                        return Some(WatchItem::Lagged);
                    }
                }
            }
        }
    }

    fn replay(&mut self) {
        let (after, base) = (self.after, self.attached.base);
        let read = self.readers.read(|conn| {
            let snapshot = conn.unchecked_transaction()?;
            let pruned = log::first(&snapshot)? > after + 1;
            Ok((pruned, log::replay(&snapshot, after, base.min(after + log::CHUNK), REPLAY_BYTES)?))
        });
        let why = match read {
            Ok((false, (frames, to))) => {
                let wanted = frames.into_iter().filter(|frame| frame.within(&self.scope));
                self.ready.extend(wanted.map(WatchItem::Frame));
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
        self.ready.push_back(WatchItem::Resync(why));
    }
}
