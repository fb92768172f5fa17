use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use testkit::{eventually, soon};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;

/// Answers by name; tells the test what it was told.
struct Echo {
    told: mpsc::UnboundedSender<String>,
}

impl Handler for Echo {
    fn request(self: &Arc<Self>, request: Request) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            match request.method.as_str() {
                "echo" => {
                    let params = request.params.clone();
                    request.reply(Ok(params));
                }
                "break" => panic!("on purpose"),
                "forget" => drop(request),
                "wait" => {
                    request.cancel.clone().cancelled().await;
                    request.reply(Err(Error::cancelled()));
                }
                other => {
                    let error = Error::method_not_found(other);
                    request.reply(Err(error));
                }
            }
        })
    }

    fn notification(self: &Arc<Self>, method: &str, _: Value) {
        let _ = self.told.send(method.to_owned());
        assert_ne!(method, "break", "on purpose");
    }
}

struct Side {
    peer: Peer,
    told: mpsc::UnboundedReceiver<String>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn side(stream: DuplexStream) -> Side {
    let (sender, told) = mpsc::unbounded_channel();
    let (read, write) = tokio::io::split(stream);
    let (peer, stop) = (Peer::default(), CancellationToken::new());
    let handler = Arc::new(Echo { told: sender });
    let task = tokio::spawn(run(ByteSource::new(read), ByteSink::new(write), peer.clone(), handler, stop.clone()));
    Side { peer, told, stop, task }
}

fn pair() -> (Side, Side) {
    let (one, other) = tokio::io::duplex(1024);
    (side(one), side(other))
}

const SOON: Waits = Waits::For(testkit::WAIT);

#[tokio::test]
async fn both_sides_ask_and_tell() {
    let (one, mut other) = pair();
    let (small, large) = (json!({"a": 1}), json!("x".repeat(100_000)));
    let (a, b) =
        tokio::join!(one.peer.ask::<Value>("echo", &small, SOON), other.peer.ask::<Value>("echo", &large, SOON));
    assert_eq!((a.unwrap(), b.unwrap().as_str().unwrap().len()), (json!({"a": 1}), 100_000));
    one.peer.tell("hello", &json!({})).await;
    assert_eq!(soon("the notification", other.told.recv()).await.unwrap(), "hello");
    let unknown = one.peer.ask::<Value>("nope", &json!({}), SOON).await.unwrap_err();
    assert_eq!(unknown.code, code::METHOD_NOT_FOUND);
    let odd = one.peer.ask::<u32>("echo", &json!("text"), SOON).await.unwrap_err();
    assert_eq!(odd.code, code::INVALID_PARAMS);
}

#[tokio::test]
async fn what_breaks_down_is_answered_and_harms_nobody() {
    let (one, mut other) = pair();
    for method in ["break", "forget"] {
        assert_eq!(one.peer.ask::<Value>(method, &json!({}), SOON).await.unwrap_err().code, code::INTERNAL);
    }
    one.peer.tell("break", &json!({})).await;
    assert_eq!(soon("the notification", other.told.recv()).await.unwrap(), "break");
    assert_eq!(one.peer.ask::<Value>("echo", &json!(1), SOON).await.unwrap(), json!(1));
}

#[tokio::test]
async fn a_question_that_is_dropped_is_withdrawn() {
    let (one, _other) = pair();
    let impatient = one.peer.ask::<Value>("wait", &json!({}), Waits::For(Duration::from_millis(10))).await;
    assert!(impatient.unwrap_err().message.contains("not answered"));
    let params = json!({});
    let asked = one.peer.ask::<Value>("wait", &params, Waits::Forever);
    assert!(tokio::time::timeout(Duration::from_millis(10), asked).await.is_err());
    // Both were told, and have ended: their places are free again.
    for _ in 0..super::MAX_REQUESTS + 10 {
        assert_eq!(one.peer.ask::<Value>("echo", &json!(1), SOON).await.unwrap(), json!(1));
    }
}

#[tokio::test]
async fn too_many_requests_are_refused_not_queued() {
    let (one, _other) = pair();
    let waiting: Vec<_> = (0..super::MAX_REQUESTS)
        .map(|_| {
            let peer = one.peer.clone();
            tokio::spawn(async move { peer.ask::<Value>("wait", &json!({}), Waits::Forever).await })
        })
        .collect();
    let answer = async || one.peer.ask::<Value>("echo", &json!(1), SOON).await;
    eventually("a refusal", async || {
        answer().await.is_err_and(|refused| {
            assert!(refused.message.contains("at once"), "{refused}");
            true
        })
    })
    .await;
    waiting.iter().for_each(|task| task.abort());
    eventually("room for another one", async || answer().await.is_ok()).await;
}

#[tokio::test]
async fn the_end_of_one_side_is_the_end_of_both() {
    let (one, other) = pair();
    let asked = tokio::spawn({
        let peer = one.peer.clone();
        async move { peer.ask::<Value>("wait", &json!({}), Waits::Forever).await }
    });
    eventually("an answer", async || one.peer.ask::<Value>("echo", &json!(1), SOON).await.is_ok()).await;
    other.stop.cancel();
    soon("the end of this side", other.task).await.unwrap();
    soon("the end of the other side", one.task).await.unwrap();
    assert!(soon("the answer", asked).await.unwrap().unwrap_err().message.contains("is stopping"));
    assert!(one.peer.is_closed() && one.peer.ask::<Value>("echo", &json!(1), SOON).await.is_err());
}
