//! The other side of the protocol: calls other agents, of both lines and over both transports.
//!
//! * `options`, `error`: how to call, and what can go wrong.
//! * `card`, `card_cache`: agent cards, and which interface of an agent to use.
//! * `http`, `stream`: requests and event streams, bounded.
//! * `view`: a task as its events tell it.
//! * `send`, `follow`: waiting for an answer; following a task over broken connections.
//! * `interrupt`: answers to what an agent asks.
//!
//! Who chose a URL decides what may happen there ([`ChosenBy`]): credentials go to hosts that the user named or allowed, and
//! nothing else leads into a private network. Redirects are not followed.

mod card;
mod card_cache;
mod error;
mod follow;
mod http;
mod interrupt;
mod options;
mod send;
mod stream;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use ::http::header;
use api::JsonMap;
use url::Url;

pub use self::card::{AgentCard, Extension, Skill, transport_name};
pub use self::error::ClientError;
pub use self::follow::Follower;
pub use self::interrupt::InterruptReply;
pub use self::options::{ClientCredentials, ClientOptions, HostList, Polling, StreamLimits};
pub use self::send::Answer;
pub use self::stream::PeerStream;
pub(crate) use self::view::request_id;
pub use self::view::{Change, TaskView, TextTooLarge};
pub use crate::wire::StreamItem;

use self::card::Choice;
use self::card_cache::CardCache;
use self::http::{Access, Fetched, Http, Request};
use crate::call::{Call, Reply, SendOptions, SendRequest};
use crate::model::{Message, Part, Role, Task};
use crate::{depth, wire};

/// The most bytes of a reply that is no stream.
const MAX_REPLY: usize = 16 << 20;

/// Who chose a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChosenBy {
    /// The user, on the command line or in a trusted configuration.
    User,
    /// A model. Only allowed hosts are called.
    Model,
}

/// A client of other agents. Cheap to clone; all clones share the cards.
#[derive(Debug, Clone)]
pub struct A2AClient {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: Arc<ClientOptions>,
    http: Http,
    cards: CardCache,
}

/// An agent at a URL.
#[derive(Debug, Clone)]
pub struct Peer {
    client: A2AClient,
    url: Url,
    chosen_by: ChosenBy,
}

/// How an agent is called.
struct Route {
    card: Arc<AgentCard>,
    card_url: Url,
    choice: Choice,
    access: Access,
}

impl A2AClient {
    /// A client with these options. Sends nothing yet.
    pub fn new(options: ClientOptions) -> Self {
        let options = Arc::new(options);
        let http = Http::new(options.clone());
        Self { inner: Arc::new(Inner { options, http, cards: CardCache::default() }) }
    }

    /// The agent at a URL: its own, or that of its card. Sends nothing yet.
    pub fn peer(&self, url: &str, chosen_by: ChosenBy) -> Result<Peer, ClientError> {
        let refused = |why: &str| ClientError::Url { url: url.to_owned(), why: why.to_owned() };
        let parsed = Url::parse(url.trim()).map_err(|error| refused(&error.to_string()))?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
            return Err(refused("it does not begin with http:// or https:// and a host"));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(ClientError::Url {
                url: "…".to_owned(),
                why: "it contains credentials, which belong into A2A_CLIENT_BASIC_AUTH".to_owned(),
            });
        }
        self.inner.http.access(&parsed, chosen_by)?;
        Ok(Peer { client: self.clone(), url: parsed, chosen_by })
    }

    /// Its options.
    pub fn options(&self) -> &ClientOptions {
        &self.inner.options
    }
}

/// A message of the user with one text.
pub fn text_message(text: &str, context: Option<&str>, task: Option<&str>) -> SendRequest {
    request_of(vec![Part::text(text)], context, task)
}

/// A message of the user.
pub(crate) fn request_of(parts: Vec<Part>, context: Option<&str>, task: Option<&str>) -> SendRequest {
    let message = Message {
        message_id: api::MessageId::new().to_string(),
        role: Role::User,
        parts,
        context_id: context.map(str::to_owned),
        task_id: task.map(str::to_owned),
        reference_task_ids: Vec::new(),
        extensions: Vec::new(),
        metadata: JsonMap::new(),
    };
    SendRequest { message, options: SendOptions::default(), metadata: JsonMap::new(), traceparent: None }
}

impl Peer {
    /// Its URL.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Its card: the one that is kept, or a new one.
    pub async fn get_agent_card(&self) -> Result<Arc<AgentCard>, ClientError> {
        Ok(self.route_card().await?.0)
    }

    /// Sends a message and returns the events of its task. From an agent that does not stream, that is one event.
    pub async fn send_message(&self, request: SendRequest) -> Result<PeerStream, ClientError> {
        let route = self.route().await?;
        if !route.card.streaming {
            return self.start(&route, Call::Send(Box::new(request))).await;
        }
        match self.start(&route, Call::Stream(Box::new(request.clone()))).await {
            Err(error) if error.is_unsupported() => self.start(&route, Call::Send(Box::new(request))).await,
            stream => stream,
        }
    }

    /// Sends a message without waiting for the answer.
    pub async fn post_message(&self, mut request: SendRequest) -> Result<(), ClientError> {
        request.options.return_immediately = true;
        let route = self.route().await?;
        self.start(&route, Call::Send(Box::new(request))).await.map(drop)
    }

    /// Reads a task.
    pub async fn get_task(&self, id: &str, history_length: Option<u32>) -> Result<Task, ClientError> {
        let route = self.route().await?;
        self.task_by(&route, id.to_owned(), history_length).await
    }

    async fn task_by(&self, route: &Route, id: String, history_length: Option<u32>) -> Result<Task, ClientError> {
        self.task_of(route, Call::Get { id, history_length }).await
    }

    /// Cancels a task.
    pub async fn cancel_task(&self, id: &str) -> Result<Task, ClientError> {
        let route = self.route().await?;
        self.task_of(&route, Call::Cancel { id: id.to_owned() }).await
    }

    async fn task_of(&self, route: &Route, call: Call) -> Result<Task, ClientError> {
        match self.call(route, &call).await? {
            Reply::Task(task) | Reply::Sent(task) => Ok(*task),
            _ => Err(self.malformed("its reply is no task")),
        }
    }

    /// Returns the further events of a task, from after the event with this number on.
    pub async fn resubscribe_task(&self, id: &str, after: Option<u64>) -> Result<PeerStream, ClientError> {
        let route = self.route().await?;
        self.start(&route, Call::Subscribe { id: id.to_owned(), after }).await
    }

    fn options(&self) -> &ClientOptions {
        &self.client.inner.options
    }

    fn malformed(&self, why: &str) -> ClientError {
        ClientError::Malformed { url: self.url.to_string(), why: why.to_owned() }
    }

    async fn route(&self) -> Result<Route, ClientError> {
        let (card, card_url) = self.route_card().await?;
        let choice = card.choose(self.options())?;
        self.route_to(card, &card_url, choice)
    }

    fn route_to(&self, card: Arc<AgentCard>, card_url: &Url, choice: Choice) -> Result<Route, ClientError> {
        let http = &self.client.inner.http;
        let access = http.interface_access(card_url, http.access(&self.url, self.chosen_by)?, &choice.url);
        Ok(Route { card, card_url: card_url.clone(), choice, access })
    }

    async fn route_card(&self) -> Result<(Arc<AgentCard>, Url), ClientError> {
        let Inner { options, http, cards } = &*self.client.inner;
        let cached = cards.get((&self.url, self.chosen_by), http, options).await?;
        Ok((cached.card, cached.url))
    }

    /// Makes a call that is no stream.
    async fn call(&self, route: &Route, call: &Call) -> Result<Reply, ClientError> {
        let (request, _) = self.request(route, call)?;
        let http = &self.client.inner.http;
        let Fetched { status, body, .. } = http.fetch(request, route.access, self.options().timeout, MAX_REPLY).await?;
        wire::parse_reply(call, route.choice.dialect, status, &body).map_err(|error| self.of_peer(error, route))
    }

    /// Makes a call and returns its events; a reply that is no stream is one event.
    async fn start(&self, route: &Route, call: Call) -> Result<PeerStream, ClientError> {
        let (request, is_stream) = self.request(route, &call)?;
        let (http, options) = (&self.client.inner.http, self.options());
        let (url, dialect, limits) = (request.url.clone(), route.choice.dialect, options.stream);
        let (status, body) = if is_stream {
            let response = http.send(request, route.access, options.timeout).await?;
            let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            if response.status().is_success() && kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
                return Ok(PeerStream::of(response, url, dialect, limits));
            }
            let status = response.status().as_u16();
            let late = |_| ClientError::Timeout { url: url.to_string(), timeout: options.timeout };
            let body = tokio::time::timeout(options.timeout, http::body(&url, response, MAX_REPLY));
            (status, body.await.map_err(late)??)
        } else {
            let fetched = http.fetch(request, route.access, options.timeout, MAX_REPLY).await?;
            (fetched.status, fetched.body)
        };
        let reply = wire::parse_reply(&call, dialect, status, &body).map_err(|error| self.of_peer(error, route))?;
        let item = match reply {
            Reply::Sent(task) | Reply::Task(task) => StreamItem::Task(task),
            Reply::Message(message) => StreamItem::Message(message),
            _ => return Err(self.malformed("its reply is neither a task nor a message")),
        };
        Ok(PeerStream::one(item, url, dialect, limits))
    }

    fn of_peer(&self, error: crate::Error, route: &Route) -> ClientError {
        ClientError::of_peer(&route.choice.url, error)
    }

    /// The request of a call, and whether its response is a stream.
    fn request(&self, route: &Route, call: &Call) -> Result<(Request, bool), ClientError> {
        let wanted = route.card.wanted_extensions();
        let tenant = route.choice.tenant.as_deref();
        let outgoing = wire::outgoing(call, route.choice.dialect, tenant, 1, &wanted);
        let mut outgoing = outgoing.map_err(|error| ClientError::Call { why: error.message })?;
        outgoing.headers.extend(depth::header(call));
        let url = below(&route.choice.url, &outgoing.path);
        let request = Request { method: outgoing.method, url, headers: outgoing.headers, body: outgoing.body };
        Ok((request, outgoing.is_stream))
    }
}

/// A path and query below the URL of an interface.
fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let path = path.trim_start_matches('/');
    if !path.is_empty() {
        url.set_path(&format!("{}/{path}", base.path().trim_end_matches('/')));
    }
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        url.set_query(Some(query));
    }
    url
}
