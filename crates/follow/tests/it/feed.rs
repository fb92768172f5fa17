//! Gaps between events, and text that is ready at once.

use std::sync::Arc;

use api::{
    CreateSession, Event, EventBody, Frame, Host as _, HostError, MessageId, PartId, PromptInput, PromptPart, Scope,
    SessionId, UpdateSession, WatchItem,
};
use engine::Engine;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use testkit::{TempProject, soon};
use trefoil_follow::{Feed, Item, Patience};

/// A project with a session.
struct Lab {
    project: TempProject,
    engine: Engine,
    session: SessionId,
}

impl Lab {
    async fn new() -> Self {
        let project = TempProject::new();
        let engine = crate::open(&project);
        let scope = Scope::new(project.directory());
        let session = engine.create_session(&scope, CreateSession::default()).await.unwrap().id;
        Self { project, engine, session }
    }

    fn feed(&self, events: BoxStream<'static, WatchItem>) -> Feed {
        let scope = Scope::new(self.project.directory());
        Feed::new(Arc::new(self.engine.clone()), scope, self.session.clone(), Patience::NONE, events)
    }

    fn delta(&self, message: &MessageId, part: &PartId, text: &str) -> WatchItem {
        let body = EventBody::PartDelta {
            session_id: self.session.clone(),
            message_id: message.clone(),
            part_id: part.clone(),
            field: "text".to_owned(),
            delta: text.to_owned(),
        };
        WatchItem::Frame(Frame::live("/p".into(), "p".into(), Arc::new(Event::new(body))))
    }
}

async fn next(feed: &mut Feed) -> Result<Item, HostError> {
    soon("the next item", feed.next()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_is_closed_with_the_stored_state() {
    let lab = Lab::new().await;
    let parts = vec![PromptPart::text("SCRIPT: [{\"text\": \"one\"}]")];
    let answer = lab.engine.prompt(&lab.session, PromptInput { parts, ..PromptInput::default() }).await.unwrap();
    let input = CreateSession { parent_id: Some(lab.session.clone()), ..CreateSession::default() };
    let child = lab.engine.create_session(&Scope::new(lab.project.directory()), input).await.unwrap();
    let gap = stream::iter([WatchItem::Resync("a test".to_owned())]).chain(stream::pending());
    let mut feed = lab.feed(gap.boxed());
    let handle = feed.handle();
    let Ok(Item::Stored(stored)) = next(&mut feed).await else { panic!("no stored state") };
    assert_eq!(stored.subagents.iter().map(|child| &child.id).collect::<Vec<_>>(), [&child.id]);
    assert!(stored.is_whole && stored.messages.len() == 2 && stored.asks.is_empty());
    let events: Vec<EventBody> = stored.into_events().collect();
    assert!(matches!(&events[0], EventBody::SessionCreated { session_id, .. } if *session_id == child.id));
    // It counts as delivered once the next item is asked for.
    tokio::select! {
        biased;
        item = feed.next() => panic!("{item:?}"),
        () = soon("the answer", handle.delivered(answer.info.id())) => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_ends_is_opened_again() {
    let lab = Lab::new().await;
    let mut feed = lab.feed(stream::empty().boxed());
    assert!(matches!(next(&mut feed).await, Ok(Item::Stored(_))));
    let change = UpdateSession { title: Some("Seen".to_owned()), ..UpdateSession::default() };
    lab.engine.update_session(&lab.session, change).await.unwrap();
    let Ok(Item::Event(event)) = next(&mut feed).await else { panic!("no event") };
    assert!(matches!(&event.body, EventBody::SessionUpdated { info, .. } if info.title == "Seen"), "{event:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_gone_is_reported_and_events_continue() {
    let lab = Lab::new().await;
    lab.engine.delete_session(&lab.session).await.unwrap();
    let (message, part) = (MessageId::new(), PartId::new());
    let after = lab.delta(&message, &part, "on");
    let mut feed = lab.feed(stream::iter([WatchItem::Resync("a test".to_owned()), after]).boxed());
    assert!(matches!(next(&mut feed).await, Ok(Item::Unread(HostError::NotFound { .. }))));
    assert!(matches!(next(&mut feed).await, Ok(Item::Event(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn text_that_is_ready_comes_in_one_delta() {
    let lab = Lab::new().await;
    let (message, one, two) = (MessageId::new(), PartId::new(), PartId::new());
    let deltas = [(&one, "a"), (&one, "b"), (&two, "c"), (&two, "d"), (&one, "e")];
    let deltas: Vec<WatchItem> = deltas.map(|(part, text)| lab.delta(&message, part, text)).into();
    let mut feed = lab.feed(stream::iter(deltas).chain(stream::pending()).boxed());
    for (part, text) in [(&one, "ab"), (&two, "cd"), (&one, "e")] {
        let Ok(Item::Event(event)) = next(&mut feed).await else { panic!("no event") };
        let EventBody::PartDelta { part_id, delta, .. } = &event.body else { panic!("{event:?}") };
        assert_eq!((part_id, delta.as_str()), (part, text));
    }
}
