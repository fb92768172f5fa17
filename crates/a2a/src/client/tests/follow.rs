//! Following a task over broken connections.

use std::sync::Arc;

use axum::response::Response;
use serde_json::json;
use testkit::{A2A_TASK, broken_stream, open_stream};

use super::*;
use crate::model::TaskState;

/// Follows to the end and returns what was told, piece by piece joined.
async fn told(follower: &mut Follower) -> Result<String, ClientError> {
    let mut text = String::new();
    while let Some(changes) = follower.next().await {
        for change in changes? {
            if let Change::Text(more) = change {
                text.push_str(&more);
            }
        }
    }
    Ok(text)
}

/// The number of a request among those of its kind.
#[derive(Default, Clone)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn next(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

fn cut(line: A2aLine, seq: u64) -> Response {
    broken_stream(&line.events([line.task_item("working", ""), line.text_update("one ", seq)]))
}

#[tokio::test]
async fn a_stream_that_was_cut_is_continued_after_its_last_number() {
    for line in A2aLine::ALL {
        let agent = A2aPeer::of_line(line, |line, request| match request.subscribes() {
            false => cut(line, 1),
            // The first number comes once more.
            true => event_stream(&line.events([
                line.text_update("one ", 1),
                line.text_update("two ", 2),
                line.text_update("two", 3),
                line.status_update("completed", "", json!(null)),
            ])),
        })
        .await;
        let mut follower = peer(&agent.url()).follow(hello());
        assert_eq!(told(&mut follower).await.unwrap(), "one two two", "{line:?}");
        assert_eq!(agent.requests_like(A2aRequest::subscribes)[0].header("last-event-id"), Some("1"));
        assert!(agent.requests_like(A2aRequest::gets).is_empty());
        let answer = peer(&agent.url()).send(hello()).await.unwrap();
        assert_eq!(answer.view.text(), "one two two", "send does so too");
    }
}

#[tokio::test]
async fn without_numbers_a_snapshot_or_the_task_fills_the_gap() {
    for (line, has_snapshot) in A2aLine::ALL.into_iter().flat_map(|line| [(line, false), (line, true)]) {
        let agent = A2aPeer::of_line(line, move |line, request| {
            if request.gets() {
                return line.reply(line.task("completed", "one two three"));
            }
            if !request.subscribes() {
                return cut(line, 0);
            }
            let mut items = vec![line.text_update("three", 0), line.status_update("completed", "", json!(null))];
            if has_snapshot {
                items.insert(0, line.task_item("working", "one two "));
            }
            event_stream(&line.events(items))
        })
        .await;
        let mut follower = peer(&agent.url()).follow(hello());
        assert_eq!(told(&mut follower).await.unwrap(), "one two three", "{line:?} {has_snapshot}");
        assert_eq!(agent.requests_like(A2aRequest::gets).len(), usize::from(!has_snapshot));
    }
}

#[tokio::test]
async fn a_gap_in_the_numbers_is_seen() {
    let line = A2aLine::NEW;
    let agent = A2aPeer::of_line(line, |line, request| match (request.gets(), request.subscribes()) {
        (true, _) => line.reply(line.task("completed", "one two three")),
        (_, false) => cut(line, 1),
        _ => {
            event_stream(&line.events([line.text_update("three", 3), line.status_update("completed", "", json!(null))]))
        }
    })
    .await;
    let mut follower = peer(&agent.url()).follow(hello());
    assert_eq!(told(&mut follower).await.unwrap(), "one two three");
}

#[tokio::test]
async fn a_task_whose_stream_ends_early_is_read_until_it_ends() {
    for line in A2aLine::ALL {
        let reads = Count::default();
        let agent = A2aPeer::of_line(line, move |line, request| {
            if request.gets() {
                let done = reads.next() > 1;
                return line
                    .reply(line.task(if done { "completed" } else { "working" }, if done { "all" } else { "" }));
            }
            match request.subscribes() {
                true => line.error(-32004, 400, "UNSUPPORTED_OPERATION", "no streams here"),
                false => event_stream(&line.events([line.task_item("submitted", "")])),
            }
        })
        .await;
        let mut follower = peer(&agent.url()).follow(hello());
        assert_eq!(told(&mut follower).await.unwrap(), "all", "{line:?}");
        assert_eq!(follower.view().state(), Some(TaskState::Completed));
        assert_eq!(agent.requests_like(A2aRequest::sends).len(), 1, "a message is sent once");
    }
}

#[tokio::test]
async fn an_agent_that_is_gone_for_good_is_given_up() {
    let line = A2aLine::NEW;
    let agent = A2aPeer::of_line(line, |line, request| match request.sends() {
        true => cut(line, 1),
        false => broken_stream(&[]),
    })
    .await;
    let mut follower = peer(&agent.url()).follow(hello());
    let error = told(&mut follower).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    assert!(follower.next().await.is_none(), "nothing follows an error");
    assert!(agent.requests_like(A2aRequest::subscribes).len() < 20);
}

#[tokio::test]
async fn a_message_that_may_have_arrived_is_not_sent_again() {
    let agent = A2aPeer::of_line(A2aLine::NEW, |_, _| broken_stream(&[])).await;
    let mut follower = peer(&agent.url()).follow(hello());
    assert!(told(&mut follower).await.unwrap_err().is_transient());
    assert_eq!(operations(&agent), ["SendStreamingMessage"]);
}

#[tokio::test]
async fn a_task_is_followed_by_its_id() {
    for line in A2aLine::ALL {
        let agent = A2aPeer::of_line(line, |line, _| {
            event_stream(&line.events([
                line.task_item("working", "so far "),
                line.text_update("and on", 5),
                line.status_update("failed", "it broke", json!(null)),
            ]))
        })
        .await;
        let mut follower = peer(&agent.url()).follow_task(A2A_TASK);
        assert_eq!(told(&mut follower).await.unwrap(), "so far and on", "{line:?}");
        assert_eq!(follower.view().status_text().as_deref(), Some("it broke"));
    }
}

#[tokio::test]
async fn polling_is_bounded_as_configured() {
    let line = A2aLine::OLD;
    for (enabled, timeout, reads, state) in [
        (false, Duration::from_secs(60), 0..1, TaskState::Working),
        (true, Duration::from_secs(60), 4..5, TaskState::Completed),
        (true, Duration::from_millis(15), 1..3, TaskState::Working),
    ] {
        let count = Count::default();
        let agent = A2aPeer::of_line(line, move |line, request| match request.gets() {
            true => line.reply(line.task(if count.next() < 3 { "working" } else { "completed" }, "")),
            false => event_stream(&line.events([line.task_item("working", "")])),
        })
        .await;
        let polling = Polling { enabled, timeout, ..options().polling };
        let answer = peer_with(&agent.url(), ClientOptions { polling, ..options() }).send(hello()).await.unwrap();
        assert_eq!(answer.view.state(), Some(state), "{enabled} {timeout:?}");
        assert!(reads.contains(&agent.requests_like(A2aRequest::gets).len()), "{enabled} {timeout:?}");
    }
}

#[tokio::test]
async fn polling_stops_when_the_task_needs_its_client() {
    let line = A2aLine::NEW;
    let agent = A2aPeer::of_line(line, |line, request| match request.gets() {
        true => line.reply(line.task("auth-required", "")),
        false => event_stream(&line.events([line.task_item("working", "")])),
    })
    .await;
    let polling = Polling { enabled: true, timeout: Duration::from_secs(60), ..options().polling };
    let answer = peer_with(&agent.url(), ClientOptions { polling, ..options() }).send(hello()).await.unwrap();
    assert_eq!(answer.view.state(), Some(TaskState::AuthRequired));
    assert_eq!(agent.requests_like(A2aRequest::gets).len(), 1);
}

#[tokio::test]
async fn endless_and_silent_streams_are_bounded() {
    let line = A2aLine::NEW;
    let small = StreamLimits { event: 1000, bytes: 5000, ..StreamLimits::default() };
    let many = A2aPeer::of_line(line, |line, _| event_stream(&vec![line.wrap(line.text_update("x", 0)); 100])).await;
    let huge =
        A2aPeer::of_line(line, |line, _| event_stream(&[line.wrap(line.text_update(&"x".repeat(2000), 0))])).await;
    for agent in [many, huge] {
        let error =
            peer_with(&agent.url(), ClientOptions { stream: small, ..options() }).send(hello()).await.unwrap_err();
        assert!(matches!(error, ClientError::TooLarge { .. }), "{error:?}");
    }
    let held = Arc::new(Mutex::new(Vec::new()));
    let silent = A2aPeer::of_line(line, move |_, _| {
        let (sender, response) = open_stream();
        held.lock().unwrap().push(sender);
        response
    })
    .await;
    for (limits, is_silence) in [
        (StreamLimits { idle: Duration::from_millis(30), ..small }, true),
        (StreamLimits { duration: Duration::from_millis(30), ..small }, false),
    ] {
        let peer = peer_with(&silent.url(), ClientOptions { stream: limits, ..options() });
        let error = peer.send_message(hello()).await.unwrap().next().await.unwrap().unwrap_err();
        assert_eq!(matches!(error, ClientError::Silent { .. }), is_silence, "{error:?}");
    }
}

#[tokio::test]
async fn silence_of_a_task_at_work_is_no_failure() {
    let line = A2aLine::NEW;
    let held = Arc::new(Mutex::new(Vec::new()));
    let count = Count::default();
    let agent = A2aPeer::of_line(line, move |line, request| {
        let number = count.next();
        if request.subscribes() && number > 20 {
            return event_stream(&line.events([line.task_item("completed", "done")]));
        }
        let (sender, response) = open_stream();
        sender.try_send(line.wrap(line.task_item("working", ""))).unwrap();
        held.lock().unwrap().push(sender);
        response
    })
    .await;
    let stream = StreamLimits { idle: Duration::from_millis(10), ..StreamLimits::default() };
    let peer = peer_with(&agent.url(), ClientOptions { stream, ..options() });
    let mut follower = peer.follow(hello());
    assert_eq!(told(&mut follower).await.unwrap(), "done");
}

#[tokio::test]
async fn a_hundred_megabytes_are_not_read() {
    let line = A2aLine::NEW;
    let agent = A2aPeer::of_line(line, |line, request| {
        let chunk = bytes::Bytes::from(vec![b' '; 1 << 20]);
        let chunks = futures::stream::iter((0..100).map(move |_| Ok::<_, std::io::Error>(chunk.clone())));
        let mut response = line.reply(json!(null));
        if request.sends() {
            response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
        }
        *response.body_mut() = axum::body::Body::from_stream(chunks);
        response
    })
    .await;
    let peer = peer(&agent.url());
    for error in [peer.get_task("x", None).await.unwrap_err(), peer.send(hello()).await.unwrap_err()] {
        assert!(matches!(error, ClientError::TooLarge { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_task_is_cancelled_as_soon_as_it_is_known() {
    for line in A2aLine::ALL {
        let (sender, response) = open_stream();
        let response = Mutex::new(Some(response));
        let agent = A2aPeer::of_line(line, move |line, request| match request.cancels() {
            true => line.reply(line.task("canceled", "")),
            false => response.lock().unwrap().take().unwrap(),
        })
        .await;
        let peer = peer(&agent.url());
        let cancelled = tokio::spawn(async move { peer.follow(hello()).cancel(testkit::WAIT).await });
        agent.wait_for("the message", A2aRequest::sends).await;
        sender.send(line.wrap(line.task_item("working", ""))).await.unwrap();
        assert!(cancelled.await.unwrap(), "{line:?}");
        assert_eq!(agent.requests_like(A2aRequest::cancels).len(), 1);
    }
}

#[tokio::test]
async fn cancelling_a_task_that_has_ended_meanwhile_is_no_failure() {
    let agent = A2aPeer::of_line(A2aLine::NEW, |line, request| match request.cancels() {
        true => line.error(-32002, 400, "TASK_NOT_CANCELABLE", "it has ended"),
        false => event_stream(&line.events([line.task_item("working", "")])),
    })
    .await;
    assert!(peer(&agent.url()).follow(hello()).cancel(testkit::WAIT).await);
    let gone = A2aPeer::of_line(A2aLine::NEW, |line, request| match request.cancels() {
        true => broken_stream(&[]),
        false => event_stream(&line.events([line.task_item("working", "")])),
    })
    .await;
    assert!(!peer(&gone.url()).follow(hello()).cancel(Duration::from_millis(100)).await);
}
