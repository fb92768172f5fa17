//! The directory that requests about sessions and asks name, although their callers give only an id.

use api::{
    CreateSession, Host, HostError, ListSessions, PermissionId, PermissionReply, PermissionReplyKind, SessionId,
};
use serde_json::json;
use trefoil_client::{Client, Options};

use super::calls::{scope, session, session_id, spawn};
use super::fake::{Fake, Kind};

/// The directory that the next request names, which is for the todo list of the session.
async fn directory_of_todo(fake: &mut Fake, client: &Client) -> Option<String> {
    let call = spawn(client, |client| async move { client.todo(&session_id()).await });
    let request = fake.next().await;
    assert_eq!(request.line(), "GET /session/ses_a/todo");
    let directory = request.header("x-opencode-directory").map(str::to_owned);
    request.json(200, &json!([]));
    call.await.unwrap().unwrap();
    directory
}

#[tokio::test]
async fn a_session_is_asked_for_its_directory_once() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    let options = Options { directory: Some("/default".to_owned()), ..Options::default() };
    let client = Client::new(&fake.url(), options).unwrap();
    let call = spawn(&client, |client| async move { client.todo(&session_id()).await });
    let request = fake.next().await;
    let directory = request.header("x-opencode-directory");
    assert_eq!((request.line().as_str(), directory), ("GET /session/ses_a", Some("/default")));
    request.json(200, &session());
    let request = fake.next().await;
    let directory = request.header("x-opencode-directory");
    assert_eq!((request.line().as_str(), directory), ("GET /session/ses_a/todo", Some("/a%20b/%C3%BC%25")));
    request.json(200, &json!([]));
    call.await.unwrap().unwrap();
    assert_eq!(directory_of_todo(&mut fake, &client).await.as_deref(), Some("/a%20b/%C3%BC%25"));
}

#[tokio::test]
async fn a_missing_session_is_not_worked_on() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    let client = fake.client();
    let call = spawn(&client, |client| async move { client.todo(&session_id()).await });
    fake.next().await.json(404, &json!({"name": "NotFoundError", "data": {"message": "Session not found: ses_a"}}));
    assert!(matches!(call.await.unwrap(), Err(HostError::NotFound { what: "session", .. })));
    assert!(fake.is_quiet());
}

#[tokio::test]
async fn sessions_in_responses_need_no_further_request() {
    let directory = Some("/a%20b/%C3%BC%25");
    for way in ["create", "list", "children"] {
        let mut fake = Fake::start(Kind::OpenCode).await;
        let client = fake.client();
        let call = spawn(&client, move |client| async move {
            match way {
                "create" => drop(client.create_session(&scope(), CreateSession::default()).await.unwrap()),
                "list" => drop(client.sessions(&scope(), ListSessions::default()).await.unwrap()),
                _ => drop(client.children(&SessionId::parse("ses_parent").unwrap()).await.unwrap()),
            }
        });
        if way == "children" {
            let mut parent = session();
            parent["id"] = json!("ses_parent");
            fake.next().await.json(200, &parent);
        }
        let found = if way == "create" { session() } else { json!([session()]) };
        fake.next().await.json(200, &found);
        call.await.unwrap();
        assert_eq!(directory_of_todo(&mut fake, &client).await.as_deref(), directory, "{way}");
    }
}

#[tokio::test]
async fn requests_are_answered_where_they_were_listed() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    let options = Options { directory: Some("/default".to_owned()), ..Options::default() };
    let client = Client::new(&fake.url(), options).unwrap();
    let call = spawn(&client, |client| async move { client.permissions(&scope()).await });
    let pending = json!({"id": "per_a", "sessionID": "ses_a", "permission": "bash", "patterns": ["ls"],
        "always": [], "metadata": {}});
    fake.next().await.json(200, &json!([pending]));
    assert_eq!(call.await.unwrap().unwrap().len(), 1);
    for (id, directory) in [("per_a", "/a%20b/%C3%BC%25"), ("per_b", "/default")] {
        let call = spawn(&client, move |client| async move {
            let reply = PermissionReply { reply: PermissionReplyKind::Once, message: None };
            client.reply_permission(&PermissionId::parse(id).unwrap(), reply).await
        });
        let request = fake.next().await;
        assert_eq!(request.header("x-opencode-directory"), Some(directory), "{id}");
        request.json(200, &json!(true));
        call.await.unwrap().unwrap();
    }
}
