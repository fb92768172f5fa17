use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::TcpListener;

use super::*;

const MAX: usize = 1000;

/// A server whose paths say what it answers. Counts its requests.
struct Site {
    address: SocketAddr,
    hits: Arc<AtomicUsize>,
}

impl Site {
    async fn start(ip: &str) -> Self {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let hits = Arc::new(AtomicUsize::new(0));
        let app = Router::new().fallback(answer).with_state(hits.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, hits }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn hits(&self) -> usize {
        self.hits.load(Ordering::Relaxed)
    }
}

async fn answer(State(hits): State<Arc<AtomicUsize>>, uri: Uri, headers: HeaderMap) -> Response {
    hits.fetch_add(1, Ordering::Relaxed);
    assert!(headers.get("authorization").is_none());
    let target = uri.query().unwrap_or_default().to_owned();
    let typed = |media: &str, body: Body| ([("content-type", media.to_owned())], body).into_response();
    match uri.path() {
        "/to" => (StatusCode::FOUND, [("location", target)]).into_response(),
        "/round" => (StatusCode::TEMPORARY_REDIRECT, [("location", "/round".to_owned())]).into_response(),
        "/big" => vec![b'x'; MAX + 1].into_response(),
        "/endless" => {
            let chunks = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b'x'; 100]));
            Body::from_stream(chunks).into_response()
        }
        "/gone" => StatusCode::GONE.into_response(),
        "/silent" => {
            std::future::pending::<()>().await;
            StatusCode::OK.into_response()
        }
        "/exact" => vec![b'x'; MAX].into_response(),
        _ => typed("Text/HTML; charset=utf-8", "hello".into()),
    }
}

/// Loopback stands for the internet here, except for one address, which stands for the private network.
const PRIVATE: &str = "127.0.0.2";

fn is_allowed(address: IpAddr) -> bool {
    address.is_loopback() && address.to_string() != PRIVATE
}

fn guard() -> AddressGuard {
    AddressGuard::new(is_allowed)
}

/// A name server that answers with the next address each time, and then with the last.
struct Changing(Vec<SocketAddr>, AtomicUsize);

impl Resolve for Changing {
    fn resolve(&self, _: Name) -> Resolving {
        let index = self.1.fetch_add(1, Ordering::Relaxed).min(self.0.len() - 1);
        let answer = vec![self.0[index]];
        Box::pin(async move { Ok(Box::new(answer.into_iter()) as Addrs) })
    }
}

#[tokio::test]
async fn a_file_arrives_with_its_media_type() {
    let site = Site::start("127.0.0.1").await;
    let fetched = fetch(&guard(), &site.url("/page"), MAX).await.unwrap();
    assert_eq!(fetched, Fetched { media_type: Some("text/html".to_owned()), body: b"hello".to_vec() });
    let fetched = fetch(&guard(), &site.url("/to?/page"), MAX).await.unwrap();
    assert_eq!(fetched.body, b"hello");
    assert_eq!(fetch(&guard(), &site.url("/exact"), MAX).await.unwrap().body.len(), MAX);
}

#[tokio::test]
async fn limits_of_size_and_redirects() {
    let site = Site::start("127.0.0.1").await;
    for path in ["/big", "/endless"] {
        let error = fetch(&guard(), &site.url(path), MAX).await.unwrap_err();
        assert!(matches!(error, FetchError::TooLarge(_, MAX)), "{error}");
    }
    let before = site.hits();
    let error = fetch(&guard(), &site.url("/round"), MAX).await.unwrap_err();
    assert!(matches!(error, FetchError::Redirects(_)), "{error}");
    assert_eq!(site.hits() - before, MAX_REDIRECTS + 1);
    let error = fetch(&guard(), &site.url("/gone"), MAX).await.unwrap_err();
    assert_eq!(error, FetchError::Status(site.url("/gone"), 410));
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let site = Site::start("127.0.0.1").await;
    let error = fetch_within(&guard(), &site.url("/silent"), MAX, Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(error, FetchError::Late(..)), "{error}");
}

#[tokio::test]
async fn private_addresses_are_not_connected_to() {
    let (open, private) = (Site::start("127.0.0.1").await, Site::start(PRIVATE).await);
    for url in [
        private.url("/page"),
        open.url(&format!("/to?{}", private.url("/page"))),
        open.url(&format!("/to?{}", open.url(&format!("/to?{}", private.url("/page"))))),
        "http://10.0.0.1/".to_owned(),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://[::ffff:10.0.0.1]/".to_owned(),
        "http://0x7f000002/".to_owned(),
        "http://2130706434/".to_owned(),
    ] {
        let error = fetch(&guard(), &url, MAX).await.unwrap_err();
        assert!(matches!(error, FetchError::Private(_)), "{url}: {error}");
    }
    assert_eq!(private.hits(), 0);
}

#[tokio::test]
async fn a_name_that_changes_its_address_leads_nowhere() {
    let (open, private) = (Site::start("127.0.0.1").await, Site::start(PRIVATE).await);
    let names = |addresses: Vec<SocketAddr>| guard().with_names(Arc::new(Changing(addresses, AtomicUsize::new(0))));
    // The address is private at once.
    let url = format!("http://name.example:{}/page", private.address.port());
    let error = fetch(&names(vec![private.address]), &url, MAX).await.unwrap_err();
    assert!(matches!(error, FetchError::Private(_)), "{error}");
    // The connection goes to the address that was checked, even if the next answer is another.
    let url = format!("http://name.example:{}/page", open.address.port());
    let fetched = fetch(&names(vec![open.address, private.address]), &url, MAX).await.unwrap();
    assert_eq!(fetched.body, b"hello");
    // A redirect to the same name on another port resolves it again, and is checked again.
    let url =
        format!("http://name.example:{}/to?http://name.example:{}/page", open.address.port(), private.address.port());
    let error = fetch(&names(vec![open.address, private.address]), &url, MAX).await.unwrap_err();
    assert!(matches!(error, FetchError::Private(_)), "{error}");
    assert_eq!(private.hits(), 0);
}

#[tokio::test]
async fn only_addresses_on_the_web_are_fetched() {
    let site = Site::start("127.0.0.1").await;
    for url in ["ftp://127.0.0.1/x", "file:///etc/passwd", "http:", "http://", "nothing", "", "data:,x"] {
        let error = fetch(&guard(), url, MAX).await.unwrap_err();
        assert!(matches!(error, FetchError::Address(_)), "{url}: {error}");
    }
    for target in ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://x"] {
        let error = fetch(&guard(), &site.url(&format!("/to?{target}")), MAX).await.unwrap_err();
        assert!(matches!(error, FetchError::Address(_)), "{target}: {error}");
    }
}

#[test]
fn errors_show_no_password_and_are_short() {
    assert_eq!(shown("http://user:secret@host/x"), "http://host/x");
    assert!(shown(&"x".repeat(10_000)).len() <= MAX_SHOWN);
}
