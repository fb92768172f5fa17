use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use testkit::{eventually, soon};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;

/// Answers by method name and reports notifications to the test.
struct EchoHandler {
    notified: mpsc::UnboundedSender<String>,
}

impl Handler for EchoHandler {
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
        let _ = self.notified.send(method.to_owned());
        assert_ne!(method, "break", "on purpose");
    }
}

struct Endpoint {
    peer: Peer,
    notified: mpsc::UnboundedReceiver<String>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn endpoint(stream: DuplexStream) -> Endpoint {
    let (sender, notified) = mpsc::unbounded_channel();
    let (read, write) = tokio::io::split(stream);
    let (peer, stop) = (Peer::default(), CancellationToken::new());
    let handler = Arc::new(EchoHandler { notified: sender });
    let task = tokio::spawn(run(ByteSource::new(read), ByteSink::new(write), peer.clone(), handler, stop.clone()));
    Endpoint { peer, notified, stop, task }
}

fn pair() -> (Endpoint, Endpoint) {
    let (one, other) = tokio::io::duplex(1024);
    (endpoint(one), endpoint(other))
}

const SOON: Timeout = Timeout::After(testkit::WAIT);

#[tokio::test]
async fn both_sides_send_requests_and_notifications() {
    let (one, mut other) = pair();
    let (small, large) = (json!({"a": 1}), json!("x".repeat(100_000)));
    let (a, b) = tokio::join!(
        one.peer.request::<Value>("echo", &small, SOON),
        other.peer.request::<Value>("echo", &large, SOON)
    );
    assert_eq!((a.unwrap(), b.unwrap().as_str().unwrap().len()), (json!({"a": 1}), 100_000));
    one.peer.notify("hello", &json!({})).await;
    assert_eq!(soon("the notification", other.notified.recv()).await.unwrap(), "hello");
    let unknown = one.peer.request::<Value>("nope", &json!({}), SOON).await.unwrap_err();
    assert_eq!(unknown.code, code::METHOD_NOT_FOUND);
    let odd = one.peer.request::<u32>("echo", &json!("text"), SOON).await.unwrap_err();
    assert_eq!(odd.code, code::INVALID_PARAMS);
}

#[tokio::test]
async fn a_panicking_handler_is_answered_and_harms_nobody() {
    let (one, mut other) = pair();
    for method in ["break", "forget"] {
        assert_eq!(one.peer.request::<Value>(method, &json!({}), SOON).await.unwrap_err().code, code::INTERNAL);
    }
    one.peer.notify("break", &json!({})).await;
    assert_eq!(soon("the notification", other.notified.recv()).await.unwrap(), "break");
    assert_eq!(one.peer.request::<Value>("echo", &json!(1), SOON).await.unwrap(), json!(1));
}

#[tokio::test]
async fn a_dropped_request_is_cancelled() {
    let (one, _other) = pair();
    let impatient = one.peer.request::<Value>("wait", &json!({}), Timeout::After(Duration::from_millis(10))).await;
    assert!(impatient.unwrap_err().message.contains("not answered"));
    let params = json!({});
    let asked = one.peer.request::<Value>("wait", &params, Timeout::Never);
    assert!(tokio::time::timeout(Duration::from_millis(10), asked).await.is_err());
    // Both requests were cancelled and have ended, so their slots are free again.
    for _ in 0..super::MAX_ACTIVE_REQUESTS + 10 {
        assert_eq!(one.peer.request::<Value>("echo", &json!(1), SOON).await.unwrap(), json!(1));
    }
}

#[tokio::test]
async fn too_many_requests_are_refused_not_queued() {
    let (one, _other) = pair();
    let waiting: Vec<_> = (0..super::MAX_ACTIVE_REQUESTS)
        .map(|_| {
            let peer = one.peer.clone();
            tokio::spawn(async move { peer.request::<Value>("wait", &json!({}), Timeout::Never).await })
        })
        .collect();
    let answer = async || one.peer.request::<Value>("echo", &json!(1), SOON).await;
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
async fn both_sides_end_when_one_stops() {
    let (one, other) = pair();
    let asked = tokio::spawn({
        let peer = one.peer.clone();
        async move { peer.request::<Value>("wait", &json!({}), Timeout::Never).await }
    });
    eventually("an answer", async || one.peer.request::<Value>("echo", &json!(1), SOON).await.is_ok()).await;
    other.stop.cancel();
    soon("the end of this side", other.task).await.unwrap();
    soon("the end of the other side", one.task).await.unwrap();
    assert!(soon("the answer", asked).await.unwrap().unwrap_err().message.contains("is stopping"));
    assert!(one.peer.is_closed() && one.peer.request::<Value>("echo", &json!(1), SOON).await.is_err());
}
