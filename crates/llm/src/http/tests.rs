//! Against a server on loopback.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body as Answer;
use axum::extract::Request;
use axum::response::Response as Reply;
use futures::StreamExt;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;
use crate::{Content, Endpoint, ErrorClass, FinishReason, Llm, OpenAiChat, Prompt, PromptMessage, Settings};

/// The maximum wait in any test.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

const GOOD: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn text(text: &str) -> LlmEvent {
    LlmEvent::Text(text.into())
}

fn sse(body: impl Into<Answer>) -> Reply {
    Reply::builder().header("content-type", "text/event-stream").body(body.into()).unwrap()
}

fn refuse(status: u16, headers: &[(&str, &str)], body: &str) -> Reply {
    let builder =
        headers.iter().fold(Reply::builder().status(status), |builder, (name, value)| builder.header(*name, *value));
    builder.body(Answer::from(body.to_owned())).unwrap()
}

/// Starts a server that answers every request with `reply`; returns its base URL.
async fn serve(reply: impl Fn(Request) -> Reply + Clone + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().fallback(move |request: Request| {
        let reply = reply(request);
        async move { reply }
    });
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}/v1")
}

/// A server that answers the first connection with these bytes and then runs `then`.
async fn raw<F: Future<Output = ()> + Send>(
    bytes: &'static str,
    then: impl FnOnce(TcpStream) -> F + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = [0; 64 * 1024];
        let mut size = 0;
        // A request's body ends with its JSON; a TLS hello is one packet.
        while size == 0 || (request.starts_with(b"POST") && !request[..size].ends_with(b"}")) {
            size += socket.read(&mut request[size..]).await.unwrap();
        }
        socket.write_all(bytes.as_bytes()).await.unwrap();
        socket.flush().await.unwrap();
        then(socket).await;
    });
    format!("http://{address}/v1")
}

fn chat(base_url: String) -> OpenAiChat {
    OpenAiChat { base_url, api_key: Some("sk-secret-1".into()), model: "m".into(), ..OpenAiChat::default() }
}

fn prompt() -> Prompt {
    Prompt { messages: vec![PromptMessage::User(vec![Content::Text("hello".into())]).into()], ..Prompt::default() }
}

async fn ask(chat: OpenAiChat, prompt: Prompt) -> Vec<Result<LlmEvent, LlmError>> {
    let stream = Llm::new("trefoil/test").stream(&Endpoint::OpenAiChat(chat), &prompt);
    let frame = |event: &Result<LlmEvent, LlmError>| matches!(event, Ok(LlmEvent::Begin { .. } | LlmEvent::End { .. }));
    let events = stream.filter(|event| std::future::ready(!frame(event))).collect();
    timeout(TEST_TIMEOUT, events).await.expect("the stream ends")
}

async fn failure(base_url: String) -> LlmError {
    match ask(chat(base_url), prompt()).await.pop() {
        Some(Err(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn requests_follow_the_wire_format() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let base = serve(move |request| {
        let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let seen = ["authorization", "user-agent", "x-session-id", "x-vendor", "content-type"].map(header);
        tell.send((request.method().to_string(), request.uri().to_string(), seen)).unwrap();
        sse(GOOD)
    })
    .await;
    let mut chat = chat(format!("{base}/?version=2"));
    chat.headers = vec![("X-Vendor".into(), "endpoint".into()), ("x-session-id".into(), "old".into())];
    let mut prompt = prompt();
    prompt.settings.headers = vec![("X-Session-Id".into(), "ses_1".into())];
    let events = ask(chat, prompt).await;
    assert_eq!(events, [Ok(text("hi")), Ok(LlmEvent::Finish(FinishReason::Stop))]);
    let (method, uri, seen) = timeout(TEST_TIMEOUT, told.recv()).await.expect("it was asked").unwrap();
    assert_eq!((method.as_str(), uri.as_str()), ("POST", "/v1/chat/completions?version=2"));
    let expected = ["Bearer sk-secret-1", "trefoil/test", "ses_1", "endpoint", "application/json"];
    assert_eq!(seen, expected.map(|value| Some(value.to_owned())));
}

#[tokio::test]
async fn characters_and_events_may_be_cut_anywhere() {
    let body = "data: {\"choices\":[{\"delta\":{\"content\":\"h\u{e9}llo \u{1f980}\"}}]}\r\n\r\n: keep-alive\r\n\r\ndata: [DONE]\r\n\r\n";
    let base = serve(move |_| {
        let bytes: Vec<_> = body.bytes().map(|byte| Ok::<_, Infallible>(vec![byte])).collect();
        sse(Answer::from_stream(stream::iter(bytes)))
    })
    .await;
    let events = ask(chat(base), prompt()).await;
    assert_eq!(events, [Ok(text("h\u{e9}llo \u{1f980}")), Ok(LlmEvent::Finish(FinishReason::Unknown))]);
}

#[tokio::test]
async fn statuses_become_errors_without_secrets() {
    let body = r#"{"error": {"message": "bad key sk-secret-1", "type": "auth"}}"#;
    let base = serve(move |_| refuse(401, &[("set-cookie", "id=1"), ("x-request-id", "r1")], body)).await;
    let error = failure(base.clone()).await;
    assert_eq!((error.class, error.status, error.message.as_str()), (ErrorClass::Auth, Some(401), "bad key ***"));
    assert_eq!(error.url.as_deref(), Some(format!("{base}/chat/completions").as_str()));
    assert_eq!(error.headers["x-request-id"], "r1");
    assert!(!format!("{error:?}").contains("sk-secret") && !error.headers.contains_key("set-cookie"));
    assert!(!format!("{:?}", chat(base)).contains("sk-secret"));

    let limited = failure(serve(|_| refuse(429, &[("retry-after-ms", "1500"), ("retry-after", "9")], "")).await).await;
    assert_eq!((limited.class, limited.retry_after), (ErrorClass::Retryable, Some(Duration::from_millis(1500))));

    let long = r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#;
    assert_eq!(failure(serve(move |_| refuse(400, &[], long)).await).await.class, ErrorClass::ContextOverflow);

    let moved = failure(serve(|_| refuse(308, &[("location", "https://other.example/v1")], "")).await).await;
    assert!(moved.class == ErrorClass::Invalid && moved.message.contains("https://other.example/v1"), "{moved}");
}

#[tokio::test]
async fn an_error_after_text_comes_after_the_text() {
    let body =
        "data: {\"choices\":[{\"delta\":{\"content\":\"part\"}}]}\n\ndata: {\"error\":{\"message\":\"boom\"}}\n\n";
    let events = ask(chat(serve(move |_| sse(body)).await), prompt()).await;
    assert_eq!(events.len(), 2);
    assert_eq!(events[0], Ok(text("part")));
    assert_eq!(events[1].as_ref().unwrap_err().message, "boom");
}

#[tokio::test]
async fn responses_that_are_not_streams() {
    let json = |body: &'static str| move |_| refuse(200, &[("content-type", "application/json")], body);
    let whole = r#"{"choices":[{"index":0,"message":{"content":"all at once"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}"#;
    let events = ask(chat(serve(json(whole)).await), prompt()).await;
    assert_eq!((events.len(), &events[0]), (3, &Ok(text("all at once"))));
    assert_eq!(failure(serve(json(r#"{"error":{"message":"inside"}}"#)).await).await.message, "inside");
    assert_eq!(failure(serve(json("{}")).await).await.class, ErrorClass::Retryable);
    let html = serve(|_| refuse(200, &[("content-type", "text/html; charset=utf-8")], "<html>login</html>")).await;
    let error = failure(html).await;
    assert!(error.class == ErrorClass::Invalid && error.message.contains("baseURL"), "{error}");
    assert!(failure(serve(|_| sse("<!doctype html>\n<p>")).await).await.message.contains("web page"));
    assert!(failure(serve(|_| sse("")).await).await.message.contains("before it answered"));
}

#[tokio::test]
async fn silence_hits_the_idle_timeout() {
    let body = || stream::iter([Ok::<_, Infallible>(": hello\n\n")]).chain(stream::pending());
    let mut chat = chat(serve(move |_| sse(Answer::from_stream(body()))).await);
    chat.timeouts.idle = Duration::from_millis(50);
    let error = ask(chat, prompt()).await.pop().unwrap().unwrap_err();
    assert!(error.class == ErrorClass::Retryable && error.message.contains("sent nothing for 50ms"), "{error}");
}

#[tokio::test]
async fn an_endless_answer_is_closed() {
    let chunk = format!("data: {}\n\n", json!({"choices": [{"delta": {"content": "x".repeat(64 << 10)}}]}));
    let body = move || {
        stream::repeat_with({
            let chunk = chunk.clone();
            move || Ok::<_, Infallible>(chunk.clone())
        })
    };
    let chat = chat(serve(move |_| sse(Answer::from_stream(body()))).await);
    let mut answer = ask(chat, prompt()).await;
    let error = answer.pop().unwrap().unwrap_err();
    assert_eq!(error.class, ErrorClass::TooLong);
    let said = answer.into_iter().map(|event| match event.unwrap() {
        LlmEvent::Text(text) => text.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(said.sum::<usize>(), crate::MAX_ANSWER, "what came before the bound was told");
}

#[tokio::test]
async fn empty_chunks_do_not_keep_a_stream_alive() {
    let body = || stream::repeat_with(|| Ok::<_, Infallible>("data: {\"choices\":[{\"delta\":{}}]}\n\n"));
    let mut chat = chat(serve(move |_| sse(Answer::from_stream(body()))).await);
    chat.timeouts.idle = Duration::from_millis(100);
    let error = ask(chat, prompt()).await.pop().unwrap().unwrap_err();
    assert!(error.class == ErrorClass::Retryable && error.message.contains("keep-alives"), "{error}");
}

#[tokio::test]
async fn a_server_that_never_answers_times_out() {
    let mut chat = chat(raw("", |socket| async move { hold(socket).await }).await);
    chat.timeouts.header = Duration::from_millis(50);
    let error = ask(chat, prompt()).await.pop().unwrap().unwrap_err();
    assert!(error.class == ErrorClass::Retryable && error.message.contains("did not answer"), "{error}");
}

/// Keeps a connection open until the other side closes it.
async fn hold(mut socket: TcpStream) {
    drop(timeout(TEST_TIMEOUT, socket.read(&mut [0; 16])).await);
}

#[tokio::test]
async fn a_cut_connection_is_an_error_and_an_early_end_is_not() {
    const CHUNK: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"part\"}}]}\n\n";
    let plain = Box::leak(
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{CHUNK}")
            .into_boxed_str(),
    );
    let events = ask(chat(raw(plain, |socket| async move { drop(socket) }).await), prompt()).await;
    assert_eq!(events, [Ok(text("part")), Ok(LlmEvent::Finish(FinishReason::Unknown))]);

    let promised = Box::leak(
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n{CHUNK}")
            .into_boxed_str(),
    );
    let events = ask(chat(raw(promised, |socket| async move { drop(socket) }).await), prompt()).await;
    assert_eq!(events[0], Ok(text("part")));
    assert_eq!(events[1].as_ref().unwrap_err().class, ErrorClass::Retryable);
}

#[tokio::test]
async fn an_unreachable_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = failure(format!("http://user:pass-word@{address}/v1?key=k")).await;
    assert!(error.class == ErrorClass::Retryable && error.message.contains("cannot be reached"), "{error}");
    assert_eq!(error.url, Some(format!("http://{address}/v1/chat/completions")));
}

/// We bring our own crypto provider; without it the client would panic. A machine without root certificates gets an
/// error that says so.
#[tokio::test]
async fn https_needs_no_preparation() {
    let base = raw("no tls here", |socket| async move { hold(socket).await }).await.replace("http:", "https:");
    let mut chat = chat(base);
    chat.timeouts.header = Duration::from_secs(2);
    let error = ask(chat, prompt()).await.pop().unwrap().unwrap_err();
    assert!(error.class == ErrorClass::Retryable || error.message.contains("root certificates"), "{error}");
}

#[tokio::test]
async fn dropping_the_stream_closes_the_request() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let base = raw("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: hi\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n", |socket| async move {
        hold(socket).await;
        tell.send(()).unwrap();
    })
    .await;
    let mut stream = Llm::new("t").stream(&Endpoint::OpenAiChat(chat(base)), &prompt());
    let mut next = async || timeout(TEST_TIMEOUT, stream.next()).await.unwrap();
    assert!(matches!(next().await, Some(Ok(LlmEvent::Begin { .. }))));
    assert_eq!(next().await, Some(Ok(text("x"))));
    drop(stream);
    // The connection is closed right away, and not by the timeout of the server that holds it.
    timeout(TEST_TIMEOUT / 2, told.recv()).await.expect("the connection is closed").unwrap();
}

#[tokio::test]
async fn a_finished_request_leaves_its_connection_for_reuse() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let app = Router::new().fallback(move |request: Request| {
        let peer =
            request.extensions().get::<axum::extract::ConnectInfo<std::net::SocketAddr>>().map(|info| info.0.port());
        tell.send(peer).unwrap();
        async { sse(GOOD) }
    });
    let service = app.into_make_service_with_connect_info::<std::net::SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    let llm = Llm::new("t");
    let endpoint = Endpoint::OpenAiChat(chat(base));
    for _ in 0..2 {
        let events: Vec<_> = timeout(TEST_TIMEOUT, llm.stream(&endpoint, &prompt()).collect()).await.unwrap();
        assert_eq!(events.len(), 4);
    }
    let first = told.recv().await.unwrap();
    assert!(first.is_some() && first == told.recv().await.unwrap());
}

#[tokio::test]
async fn invalid_requests_are_refused_before_sending() {
    for base in ["ftp://h/v1", "nonsense", "", "file:///etc/passwd"] {
        let error = failure(base.to_owned()).await;
        assert!(error.class == ErrorClass::Invalid && error.message.contains("baseURL"), "{error}");
    }
    let error = failure("ftp://me:pass-word@h/v1?key=hidden".to_owned()).await;
    assert!(!error.message.contains("hidden") && !error.message.contains("pass-word"), "{error}");
    let settings = Settings { headers: vec![("x-bad".into(), "a\nb".into())], ..Settings::default() };
    let events = ask(chat("http://127.0.0.1:1".into()), Prompt { settings, ..prompt() }).await;
    assert!(events[0].as_ref().unwrap_err().message.contains("x-bad"));
}

#[test]
fn addresses() {
    let path = |base: &str| address(base, "chat/completions").unwrap().to_string();
    assert_eq!(path("https://h/v1"), "https://h/v1/chat/completions");
    assert_eq!(path(" https://h/v1/// "), "https://h/v1/chat/completions");
    assert_eq!(path("https://h"), "https://h/chat/completions");
    assert_eq!(path("https://h/v1/chat/completions?a=b#c"), "https://h/v1/chat/completions?a=b");
}

#[test]
fn clients_are_shared_and_bounded() {
    let clients = Arc::new(Clients::new("t"));
    let kind = ClientKind::of(&Url::parse("http://127.0.0.1:1").unwrap());
    for seconds in 0..20 {
        clients.get(ClientKey { kind, connect: Duration::from_secs(seconds % 10) }).unwrap();
    }
    assert!(clients.built.lock().unwrap().len() <= MAX_CLIENTS);
}
