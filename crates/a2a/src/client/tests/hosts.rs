//! Who may be called, and who gets credentials.

use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde_json::json;
use web::AddressGuard;

use super::*;

/// Names of a test: each resolution returns the next address, and the last one from then on.
#[derive(Clone)]
struct Names(Arc<Mutex<Vec<SocketAddr>>>);

impl Names {
    fn new(addresses: &[&str]) -> Self {
        Self(Arc::new(Mutex::new(addresses.iter().map(|address| format!("{address}:0").parse().unwrap()).collect())))
    }
}

impl Resolve for Names {
    fn resolve(&self, _: Name) -> Resolving {
        let mut addresses = self.0.lock().unwrap();
        let first = if addresses.len() > 1 { addresses.remove(0) } else { addresses[0] };
        Box::pin(async move { Ok(Box::new(std::iter::once(first)) as Addrs) })
    }
}

fn with_token(options: ClientOptions) -> ClientOptions {
    ClientOptions { credentials: Some(ClientCredentials::Bearer("secret".to_owned())), ..options }
}

/// An agent whose card names this interface.
async fn pointing(url: String) -> A2aPeer {
    A2aPeer::start(move |_| json_response(200, &A2aLine::NEW.card(&url))).await
}

fn done(line: A2aLine, _: &A2aRequest) -> axum::response::Response {
    line.reply(line.task_item("completed", "done"))
}

#[tokio::test]
async fn a_host_that_the_user_chose_gets_the_credentials() {
    let agent = A2aPeer::of_line(A2aLine::NEW, done).await;
    peer_with(&agent.url(), with_token(options())).send(hello()).await.unwrap();
    assert!(agent.requests().iter().all(|request| request.header("authorization") == Some("Bearer secret")));
    let basic = ClientCredentials::basic("user:pass");
    peer_with(&agent.url(), ClientOptions { credentials: basic, ..options() }).send(hello()).await.unwrap();
    assert_eq!(agent.requests().last().unwrap().header("authorization"), Some("Basic dXNlcjpwYXNz"));
}

#[tokio::test]
async fn a_model_may_choose_allowed_hosts_only() {
    let agent = A2aPeer::of_line(A2aLine::NEW, done).await;
    let allowed = |hosts: &[&str]| ClientOptions { allowed_hosts: HostList::new(hosts), ..with_token(options()) };
    let named = format!("http://agent.test:{}", agent.port());
    for (options, url, why) in [
        (options(), agent.url(), "A2A_CLIENT_ALLOWED_HOSTS"),
        (allowed(&["agent.test"]), agent.url(), "A2A_CLIENT_ALLOWED_HOSTS"),
        (allowed(&["agent.test"]), named.replace("agent.test", "agent.test.evil.test"), "A2A_CLIENT_ALLOWED_HOSTS"),
        (allowed(&["agent.test"]), named.replace("agent.test", "agent.test@evil.test"), "credentials"),
        (allowed(&["agent.test"]), "file:///etc/passwd".to_owned(), "http"),
        // Allowed, but private.
        (allowed(&["127.0.0.1"]), agent.url(), "A2A_CLIENT_ALLOW_PRIVATE_HOSTS"),
    ] {
        let client = A2AClient::new(options);
        let sent = match client.peer(&url, ChosenBy::Model) {
            Ok(peer) => peer.send(hello()).await.map(drop),
            Err(error) => Err(error),
        };
        let error = sent.unwrap_err().to_string();
        assert!(error.contains(why), "{url}: {error}");
    }
    assert!(agent.requests().is_empty());
    let guard = AddressGuard::new(|_| true).with_names(Arc::new(Names::new(&["127.0.0.1"])));
    let client = A2AClient::new(ClientOptions { guard, ..allowed(&["agent.test"]) });
    client.peer(&named, ChosenBy::Model).unwrap().send(hello()).await.unwrap();
    assert!(agent.requests().iter().all(|request| request.header("authorization") == Some("Bearer secret")));
}

#[tokio::test]
async fn a_name_whose_answer_changes_to_a_private_address_is_refused() {
    let agent = A2aPeer::of_line(A2aLine::NEW, done).await;
    let url = format!("http://agent.test:{}", agent.port());
    let attempts = |addresses: &[&str]| {
        let guard = AddressGuard::new(web::is_public).with_names(Arc::new(Names::new(addresses)));
        let allowed_hosts = HostList::new(["agent.test"]);
        let card_timeout = Duration::from_millis(200);
        A2AClient::new(ClientOptions { guard, allowed_hosts, card_timeout, ..with_token(options()) })
    };
    // The documentation range is public to no one, so the first address never answers.
    for addresses in [&["127.0.0.1"][..], &["10.0.0.1"], &["169.254.169.254"], &["::1"].map(|_| "192.168.0.1")] {
        let error = attempts(addresses).peer(&url, ChosenBy::Model).unwrap().send(hello()).await.unwrap_err();
        assert!(matches!(error, ClientError::PrivateHost { .. }), "{addresses:?}: {error:?}");
    }
    assert!(agent.requests().is_empty());
}

#[tokio::test]
async fn a_card_leads_no_credentials_to_another_host() {
    let other = A2aPeer::of_line(A2aLine::NEW, done).await;
    // `localhost` and an address of this machine are the same host; a name is another one.
    let card = pointing(format!("http://other.test:{}", other.port())).await;
    let guard = AddressGuard::new(|_| true).with_names(Arc::new(Names::new(&["127.0.0.1"])));
    let plain = with_token(ClientOptions { guard: guard.clone(), ..options() });
    peer_with(&card.url(), plain.clone()).send(hello()).await.unwrap();
    assert_eq!(other.requests().pop().unwrap().header("authorization"), None);
    let allowed = ClientOptions { allowed_hosts: HostList::new(["other.test"]), ..plain };
    peer_with(&card.url(), allowed).send(hello()).await.unwrap();
    assert_eq!(other.requests().pop().unwrap().header("authorization"), Some("Bearer secret"));
}

#[tokio::test]
async fn a_card_does_not_lead_into_a_private_network() {
    let other = A2aPeer::of_line(A2aLine::NEW, done).await;
    let name = format!("http://other.test:{}", other.port());
    let card = pointing(name).await;
    let guard = AddressGuard::new(web::is_public).with_names(Arc::new(Names::new(&["127.0.0.1"])));
    let error = peer_with(&card.url(), ClientOptions { guard, ..options() }).send(hello()).await.unwrap_err();
    assert!(matches!(error, ClientError::PrivateHost { .. }), "{error:?}");
    let card = pointing("http://10.1.2.3/".to_owned()).await;
    let error = peer(&card.url()).send(hello()).await.unwrap_err();
    assert!(matches!(error, ClientError::PrivateHost { .. }), "{error:?}");
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let target = A2aPeer::of_line(A2aLine::NEW, done).await;
    for line in [A2aLine::OLD, A2aLine::NEW] {
        let location = target.url();
        for of_card in [true, false] {
            let location = location.clone();
            let agent = A2aPeer::start(move |request| {
                if request.is_for_card() && !of_card {
                    return json_response(200, &line.card(&format!("http://{}", request.header("host").unwrap())));
                }
                let mut response = json_response(307, &json!({}));
                response.headers_mut().insert("location", location.parse().unwrap());
                response
            })
            .await;
            let error = peer_with(&agent.url(), with_token(options())).send(hello()).await.unwrap_err();
            assert!(matches!(error, ClientError::Redirect { .. }), "{error:?}");
        }
    }
    assert!(target.requests().is_empty());
}
