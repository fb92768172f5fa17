//! How cards are found, kept and refused.

use std::sync::Arc;

use axum::response::Response;
use serde_json::json;

use super::*;

fn own_url(request: &A2aRequest) -> String {
    format!("http://{}", request.header("host").unwrap())
}

fn tagged(line: A2aLine, request: &A2aRequest, tag: &'static str) -> Response {
    let is_same = request.header("if-none-match") == Some(tag);
    let mut response = json_response(if is_same { 304 } else { 200 }, &line.card(&own_url(request)));
    if is_same {
        *response.body_mut() = Default::default();
    }
    response.headers_mut().insert("etag", tag.parse().unwrap());
    response
}

#[tokio::test]
async fn a_card_is_kept_and_asked_for_again_only_if_it_changed() {
    let agent = A2aPeer::start(|request| tagged(A2aLine::NEW, request, "W/\"1\"")).await;
    let kept = peer(&agent.url());
    for _ in 0..3 {
        kept.get_agent_card().await.unwrap();
    }
    assert_eq!(agent.requests().len(), 1);
    let outdated = peer_with(&agent.url(), ClientOptions { card_ttl: Duration::ZERO, ..options() });
    let first = outdated.get_agent_card().await.unwrap();
    let second = outdated.get_agent_card().await.unwrap();
    assert!(Arc::ptr_eq(&first, &second), "the agent said that it is the same");
    let tags: Vec<_> =
        agent.requests().iter().map(|request| request.header("if-none-match").map(str::to_owned)).collect();
    assert_eq!(tags, [None, None, Some("W/\"1\"".to_owned())]);
}

#[tokio::test]
async fn an_outdated_card_that_has_moved_is_looked_for_again() {
    let fetched = Arc::new(AtomicUsize::new(0));
    let count = fetched.clone();
    let agent = A2aPeer::start(move |request| {
        let moved = count.fetch_add(1, Ordering::Relaxed) > 0;
        match request.path.as_str() {
            "/.well-known/agent-card.json" if moved => json_response(404, &json!({})),
            _ => tagged(A2aLine::OLD, request, "\"a\""),
        }
    })
    .await;
    let peer = peer_with(&agent.url(), ClientOptions { card_ttl: Duration::ZERO, ..options() });
    peer.get_agent_card().await.unwrap();
    peer.get_agent_card().await.unwrap();
    let paths: Vec<_> = agent.requests().into_iter().map(|request| request.path).collect();
    let (new, old) = ("/.well-known/agent-card.json", "/.well-known/agent.json");
    assert_eq!(paths, [new, new, new, old]);
}

#[tokio::test]
async fn only_so_many_cards_are_kept() {
    for (max_cards, fetches) in [(0, 4), (1, 4), (2, 2)] {
        let agent = A2aPeer::start(|request| json_response(200, &A2aLine::NEW.card(&own_url(request)))).await;
        let client = A2AClient::new(ClientOptions { max_cards, ..options() });
        for path in ["/a", "/b", "/a", "/b"] {
            let peer = client.peer(&format!("{}{path}", agent.url()), ChosenBy::User).unwrap();
            peer.get_agent_card().await.unwrap();
        }
        assert_eq!(agent.requests().len(), fetches, "{max_cards}");
    }
}

#[tokio::test]
async fn the_older_path_is_tried_after_the_newer_one() {
    let agent = A2aPeer::start(|request| match request.path.as_str() {
        "/base/.well-known/agent.json" => json_response(200, &A2aLine::OLD.card(&own_url(request))),
        _ => json_response(404, &json!({})),
    })
    .await;
    let card = peer(&format!("{}/base/", agent.url())).get_agent_card().await.unwrap();
    assert_eq!(card.version, "1.2.3");
    let direct = peer(&format!("{}/base/.well-known/agent.json", agent.url()));
    assert!(direct.get_agent_card().await.is_ok(), "its own URL works too");
}

#[tokio::test]
async fn the_newest_line_and_the_preferred_transport_are_used() {
    let agent = A2aPeer::start(|request| {
        let url = own_url(request);
        let mut card = A2aLine::ALL[3].card(&url);
        let old = A2aLine::ALL[1].card(&url);
        for key in ["url", "protocolVersion", "preferredTransport", "additionalInterfaces"] {
            card[key] = old[key].clone();
        }
        match request.is_for_card() {
            true => json_response(200, &card),
            false => json_response(500, &json!({})),
        }
    })
    .await;
    let rpc = vec![wire::Transport::JsonRpc, wire::Transport::Rest];
    for (changed, first) in [
        (options(), "/message:stream"),
        (ClientOptions { use_client_preference: true, transports: rpc.clone(), ..options() }, "SendStreamingMessage"),
        (ClientOptions { transports: vec![wire::Transport::JsonRpc], ..options() }, "SendStreamingMessage"),
        (ClientOptions { line: Some(crate::Line::V03), ..options() }, "/v1/message:stream"),
    ] {
        assert!(peer_with(&agent.url(), changed).send(hello()).await.is_err());
        assert_eq!(operations(&agent).pop().as_deref(), Some(first));
    }
}

#[tokio::test]
async fn cards_that_cannot_be_used_say_why() {
    for (status, card, why) in [
        (200, json!({}), "no interface"),
        (200, json!({"url": "ftp://x", "protocolVersion": "0.3.0"}), "offers"),
        (200, json!([1]), "malformed"),
        (500, json!({}), "status 500"),
        (404, json!({}), "no agent card"),
    ] {
        let agent = A2aPeer::start(move |_| json_response(status, &card)).await;
        let error = peer(&agent.url()).send(hello()).await.unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
}

#[tokio::test]
async fn a_slow_card_and_a_huge_one_are_given_up() {
    let agent = A2aPeer::start(|_| json_response(200, &json!({"name": "x".repeat(2 << 20)}))).await;
    let error = peer(&agent.url()).get_agent_card().await.unwrap_err();
    assert!(matches!(error, ClientError::TooLarge { .. }), "{error:?}");
    let held = Arc::new(Mutex::new(Vec::new()));
    let agent = A2aPeer::start(move |_| {
        // The response begins, and nothing follows.
        let (sender, response) = testkit::open_stream();
        held.lock().unwrap().push(sender);
        response
    })
    .await;
    let slow = peer_with(&agent.url(), ClientOptions { card_timeout: Duration::from_millis(50), ..options() });
    let error = slow.get_agent_card().await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error:?}");
}
