//! Long sessions over HTTP, and clients that do not read.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use api::{EventBody, Message, MessageId, Part, PartId, SessionId};
use reqwest::Method;
use serde_json::{Value, json};
use store::{Batch, Location, WATCH_BYTES};
use testkit::{WAIT, eventually};

use crate::common::Rig;

/// A session with this many messages of this many bytes each.
async fn long_session(rig: &Rig, messages: usize, bytes: usize) -> String {
    let (_, session) = rig.send(Method::POST, "/session", Some(json!({"title": "long"}))).await;
    let id: SessionId = session["id"].as_str().unwrap().parse().unwrap();
    let mut batch = Batch::new(&Location::new(rig.project.directory(), "p"));
    for number in 0..messages {
        let info = json!({"role": "user", "id": MessageId::new(), "sessionID": id, "time": {"created": number},
            "agent": "build", "model": {"providerID": "script", "modelID": "demo"}});
        let info: Message = serde_json::from_value(info).unwrap();
        batch.insert_message(&info);
        let part = json!({"type": "text", "id": PartId::new(), "sessionID": id, "messageID": info.id(),
            "text": format!("{number} {}", "x".repeat(bytes))});
        let part: Part = serde_json::from_value(part).unwrap();
        batch.insert_part(&part);
    }
    rig.store.commit(batch).await.unwrap();
    id.to_string()
}

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|message| message["info"]["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_long_list_is_streamed_and_equals_its_pages() {
    let rig = Rig::new(json!({})).await;
    let session = long_session(&rig, 600, 2000).await;
    let path = format!("/session/{session}/message");
    let response = rig.http.get(format!("{}{path}", rig.url)).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.content_length(), None, "the list is not built before it is sent");
    let whole: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert_eq!(whole.as_array().unwrap().len(), 600);
    // The same in pages, newest first, as clients read them.
    let (mut pages, mut query) = (Vec::new(), "limit=100".to_owned());
    loop {
        let response = rig.http.get(format!("{}{path}?{query}", rig.url)).send().await.unwrap();
        let next = response.headers().get("x-next-cursor").map(|next| next.to_str().unwrap().to_owned());
        pages.push(serde_json::from_slice::<Value>(&response.bytes().await.unwrap()).unwrap());
        match next {
            Some(next) => query = format!("limit=100&before={next}"),
            None => break,
        }
    }
    let paged: Vec<&Value> = pages.iter().rev().flat_map(|page| page.as_array().unwrap()).collect();
    assert!(paged.iter().copied().eq(whole.as_array().unwrap()), "pages equal the whole list");
    // A long page has a cursor, too.
    let response = rig.http.get(format!("{}{path}?limit=400", rig.url)).send().await.unwrap();
    let next = response.headers()["x-next-cursor"].to_str().unwrap().to_owned();
    let page: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert_eq!(ids(&page), ids(&whole)[200..]);
    let rest = rig.get(&format!("{path}?limit=400&before={next}")).await;
    assert_eq!(ids(&rest), ids(&whole)[..200]);
    let short = long_session(&rig, 3, 10).await;
    let response = rig.http.get(format!("{}/session/{short}/message", rig.url)).send().await.unwrap();
    assert!(response.content_length().is_some(), "a short list is sent in one go");
    let (status, _) = rig.send(Method::GET, "/session/ses_unknown/message", None).await;
    assert_eq!(status, 404);
}

/// One thread serves them all.
#[tokio::test]
async fn clients_that_read_a_lot_at_the_same_time_get_everything() {
    const CLIENTS: usize = 4;
    const MESSAGES: usize = 1000;
    const EVENTS: usize = 1500;
    let rig = Rig::new(json!({})).await;
    let session = long_session(&rig, MESSAGES, 500).await;
    let (own, stranger): (SessionId, _) = (session.parse().unwrap(), SessionId::new());
    let cursor = rig.get(&format!("/session/{session}/tree")).await["cursor"].as_str().unwrap().to_owned();
    let removed: Vec<MessageId> = (0..EVENTS).map(|_| MessageId::new()).collect();
    let mut batch = Batch::new(&Location::new(rig.project.directory(), "p"));
    for id in &removed {
        batch.event(EventBody::MessageRemoved { session_id: own.clone(), message_id: id.clone() });
        batch.event(EventBody::MessageRemoved { session_id: stranger.clone(), message_id: MessageId::new() });
    }
    rig.store.commit(batch).await.unwrap();
    let read = async || {
        let list = rig.get(&format!("/session/{session}/message")).await;
        assert_eq!(list.as_array().unwrap().len(), MESSAGES);
        for (number, message) in list.as_array().unwrap().iter().enumerate() {
            let text = message["parts"][0]["text"].as_str().unwrap();
            assert_eq!(text.split(' ').next(), Some(number.to_string().as_str()));
        }
    };
    let resume = async || {
        let mut events = rig.events(&format!("/session/{session}/tree/event?after={cursor}")).await;
        for id in &removed {
            let event = events.wait_for("message.removed").await;
            assert_eq!(event["properties"]["messageID"], json!(id));
        }
    };
    let clients = (0..CLIENTS).map(|_| futures::future::join3(read(), resume(), rig.get("/global/health")));
    futures::future::join_all(clients).await;
}

/// A client that sends a request, reads the beginning of the response, and then nothing.
fn stalled_client(rig: &Rig, path: &str) -> TcpStream {
    let address = rig.url.strip_prefix("http://").unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).unwrap();
    client.set_read_timeout(Some(WAIT)).unwrap();
    client.read_exact(&mut [0; 16]).unwrap();
    client
}

/// The value of one of the server's metrics.
async fn metric(rig: &Rig, name: &str) -> usize {
    let text = rig.http.get(format!("{}/metrics", rig.url)).send().await.unwrap().text().await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_bytes_are_bounded_and_freed_with_their_clients() {
    let rig = Rig::new(json!({})).await;
    let mut clients: Vec<TcpStream> = (0..8).map(|_| stalled_client(&rig, "/global/event")).collect();
    let list = long_session(&rig, 300, 20_000).await;
    clients.extend((0..4).map(|_| stalled_client(&rig, &format!("/session/{list}/message"))));
    let place = Location::new(rig.project.directory(), "p");
    let (mut most, message) = (0, "x".repeat(60_000));
    // More than the sockets take.
    for _ in 0..250 {
        let mut batch = Batch::new(&place);
        let (title, variant, duration) = (None, "info".to_owned(), None);
        batch.event(EventBody::TuiToastShow { title, message: message.clone(), variant, duration });
        rig.store.commit(batch).await.unwrap();
        most = most.max(rig.store.unread_bytes());
    }
    assert!(most <= WATCH_BYTES, "{most}");
    assert!(metric(&rig, "trefoil_unread_bytes").await > 0, "some bytes wait");
    // A client that reads is not delayed by them.
    let mut events = rig.events("/event").await;
    rig.send(Method::POST, "/session", Some(json!({"title": "heard"}))).await;
    events.wait_for("session.created").await;
    drop((clients, events));
    let gone = async || metric(&rig, "trefoil_subscribers").await == 0;
    eventually("the server notices that they are gone", gone).await;
    // Only the response of this request.
    let left = async || metric(&rig, "trefoil_unread_bytes").await == 0 && rig.store.unread_bytes() == 0;
    eventually("no bytes wait without a client", left).await;
}
