use futures::StreamExt;

use super::*;

fn ask(server: &ModelServer, body: Value) -> tokio::task::JoinHandle<reqwest::Result<reqwest::Response>> {
    // Fails if another test was first, which is fine: a provider is installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let request = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = request.post(format!("{}/chat/completions", server.base_url())).header("x-kind", "unit").json(&body);
    tokio::spawn(request.send())
}

fn deltas(text: &str) -> Vec<Value> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|line| *line != "[DONE]");
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn the_test_decides_when_each_chunk_comes() {
    let mut server = ModelServer::start().await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hello"}],
        "tools": [{"type": "function", "function": {"name": "bash"}}]});
    let response = ask(&server, body);
    let mut call = server.next_call().await;
    assert_eq!(call.request.last_text("user"), "hello");
    assert_eq!(call.request.tools(), ["bash"]);
    assert_eq!(call.request.header("x-kind"), "unit");

    call.text("one").await;
    let mut stream = response.await.unwrap().unwrap().bytes_stream();
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!(deltas(std::str::from_utf8(&first).unwrap())[0]["choices"][0]["delta"]["content"], "one");

    call.tool("call_1", "bash", json!({"command": "ls"})).await;
    call.usage(json!({"prompt_tokens": 7}));
    call.finish("tool_calls").await;
    let mut rest = String::new();
    while let Some(bytes) = stream.next().await {
        rest.push_str(std::str::from_utf8(&bytes.unwrap()).unwrap());
    }
    assert!(rest.ends_with("data: [DONE]\n\n"));
    let chunks = deltas(&rest);
    let arguments: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str())
        .collect();
    assert_eq!(arguments, r#"{"command":"ls"}"#);
    assert_eq!(chunks.last().unwrap()["usage"]["prompt_tokens"], 7);
}

#[tokio::test]
async fn enqueued_replies_are_used_in_order_and_titles_are_separate() {
    let server = ModelServer::start().await;
    server.answer_titles("A title");
    server.enqueue(Reply::error(429, json!({"error": {"message": "slow down"}})));
    server.enqueue(Reply::text("hi").tool("c", "read", json!({})));
    let tools = json!({"messages": [], "tools": [{"function": {"name": "read"}}]});

    assert!(ask(&server, json!({"messages": []})).await.unwrap().unwrap().text().await.unwrap().contains("A title"));
    assert_eq!(ask(&server, tools.clone()).await.unwrap().unwrap().status(), 429);
    let text = ask(&server, tools).await.unwrap().unwrap().text().await.unwrap();
    assert!(text.contains("hi") && text.contains(r#""finish_reason":"tool_calls""#));
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn clients_see_broken_and_silent_connections() {
    let mut server = ModelServer::start().await;
    let response = ask(&server, json!({"messages": []}));
    let mut call = server.next_call().await;
    call.text("partial").await;
    call.drop_connection().await;
    let mut stream = response.await.unwrap().unwrap().bytes_stream();
    assert!(stream.next().await.unwrap().unwrap().starts_with(b"data: "));
    assert!(stream.next().await.unwrap().is_err());

    let response = ask(&server, json!({"messages": []}));
    server.next_call().await.silence();
    let mut stream = response.await.unwrap().unwrap().bytes_stream();
    assert!(futures::poll!(stream.next()).is_pending());
    drop(server);
    timeout(WAIT, stream.next()).await.unwrap();
}

#[tokio::test]
async fn a_client_that_hangs_up_is_noticed() {
    let mut server = ModelServer::start().await;
    let response = ask(&server, json!({"messages": []}));
    let mut call = server.next_call().await;
    call.text("partial").await;
    drop(response.await.unwrap().unwrap());
    call.closed().await;
}
