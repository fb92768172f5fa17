//! Event subscriptions for programs: one stream, many listeners.

mod connection;
pub(crate) mod watch;

use std::future::Future;
use std::sync::Arc;

use api::{Event, HostError, WatchItem};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::task::AbortOnDropHandle;

/// The most events kept for the slowest listener; one further behind is cut off.
const BACKLOG: usize = 4096;

/// Follows the events of a host for any number of listeners. A listener gets the events after its creation.
///
/// Ends when the handle and all its listeners are dropped.
#[derive(Clone)]
pub struct Events {
    sender: broadcast::WeakSender<WatchItem>,
    pump: Arc<AbortOnDropHandle<()>>,
}

impl Events {
    /// Follows a stream returned by [`Host::watch`](api::Host::watch).
    pub fn follow(mut items: BoxStream<'static, WatchItem>) -> Self {
        let (sender, _) = broadcast::channel(BACKLOG);
        let weak = sender.downgrade();
        let pump = tokio::spawn(async move {
            while let Some(item) = items.next().await {
                // Fails if nobody is listening at the moment; someone may be later.
                let _ = sender.send(item);
            }
        });
        Self { sender: weak, pump: Arc::new(AbortOnDropHandle::new(pump)) }
    }

    /// All events.
    pub fn all(&self) -> BoxStream<'static, WatchItem> {
        let Some(receiver) = self.sender.upgrade().map(|sender| sender.subscribe()) else {
            return stream::empty().boxed();
        };
        let listener = Some((receiver, self.pump.clone()));
        stream::unfold(listener, |listener| async move {
            let (mut receiver, pump) = listener?;
            match receiver.recv().await {
                Ok(item) => Some((item, Some((receiver, pump)))),
                Err(RecvError::Lagged(_)) => Some((WatchItem::Lagged, None)),
                Err(RecvError::Closed) => None,
            }
        })
        .boxed()
    }

    /// The events of one type, for example `session.idle`, and the items that mark gaps.
    pub fn on(&self, kind: &str) -> BoxStream<'static, WatchItem> {
        let kind = kind.to_owned();
        let wanted = move |item: &WatchItem| match item {
            WatchItem::Frame(frame) => Event::type_of(frame.json()).as_deref() == Some(&kind),
            WatchItem::Resync(_) | WatchItem::Lagged => true,
        };
        self.all().filter(move |item| futures::future::ready(wanted(item))).boxed()
    }

    /// Waits for the next event of a type after this call, not after the first poll. A gap is an error, because the
    /// event may have been in it.
    pub fn once(&self, kind: &str) -> impl Future<Output = Result<Arc<Event>, HostError>> + Send + use<> {
        let mut items = self.on(kind);
        let kind = kind.to_owned();
        async move {
            let why = loop {
                match items.next().await {
                    Some(WatchItem::Frame(frame)) => match frame.event() {
                        Some(event) => return Ok(event),
                        None => continue,
                    },
                    Some(WatchItem::Resync(reason)) => break reason,
                    Some(WatchItem::Lagged) => break "the listener was too slow".to_owned(),
                    None => break "the stream ended".to_owned(),
                }
            };
            Err(HostError::Failed(format!("It is unknown whether {kind} happened: {why}. Read the state again")))
        }
    }
}

#[cfg(test)]
mod tests {
    use api::{EventBody, Frame};
    use tokio::sync::mpsc;

    use super::*;

    fn frame(body: EventBody) -> WatchItem {
        let event = Event::new(body);
        let json = serde_json::to_vec(&event).unwrap().into();
        WatchItem::Frame(Frame::new(None, "".into(), "".into(), Arc::new(event), json))
    }

    fn edited(file: &str) -> WatchItem {
        frame(EventBody::FileEdited { file: file.to_owned() })
    }

    fn feed() -> (mpsc::Sender<WatchItem>, Events) {
        let (sender, receiver) = mpsc::channel(8);
        let items = stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
        (sender, Events::follow(items.boxed()))
    }

    #[tokio::test]
    async fn every_listener_gets_its_events() {
        let (feed, events) = feed();
        let (all, edits, once) = (events.all(), events.on("file.edited"), events.once("file.edited"));
        for item in [frame(EventBody::LspUpdated {}), edited("a"), WatchItem::Resync("gap".to_owned()), edited("b")] {
            feed.send(item).await.unwrap();
        }
        assert!(matches!(&once.await.unwrap().body, EventBody::FileEdited { file } if file == "a"));
        drop(feed);
        assert_eq!(all.count().await, 4);
        let edits: Vec<WatchItem> = edits.collect().await;
        assert!(matches!(&edits[..], [WatchItem::Frame(_), WatchItem::Resync(_), WatchItem::Frame(_)]), "{edits:?}");
        assert!(events.once("file.edited").await.unwrap_err().to_string().contains("the stream ended"));
    }

    #[tokio::test]
    async fn a_gap_ends_a_wait() {
        let (feed, events) = feed();
        let once = events.once("session.idle");
        feed.send(WatchItem::Resync("a gap".to_owned())).await.unwrap();
        let error = once.await.unwrap_err().to_string();
        assert!(error.contains("session.idle") && error.contains("a gap"), "{error}");
    }

    #[tokio::test]
    async fn a_slow_listener_is_cut() {
        let (feed, events) = feed();
        let slow = events.all();
        let mut quick = events.all();
        for _ in 0..=BACKLOG {
            feed.send(edited("a")).await.unwrap();
            quick.next().await.unwrap();
        }
        let received: Vec<WatchItem> = slow.collect().await;
        assert!(matches!(received[..], [WatchItem::Lagged]));
    }

    #[tokio::test]
    async fn the_stream_is_dropped_with_the_last_listener() {
        let (feed, events) = feed();
        let listener = events.all();
        drop(events);
        assert!(!feed.is_closed());
        drop(listener);
        feed.closed().await;
    }
}
