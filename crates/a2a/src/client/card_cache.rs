//! Finds the cards of agents, and keeps them for a while. An outdated card is fetched again only if it has changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderValue, Method, StatusCode, header};
use tokio::time::Instant;
use url::Url;

use super::card::{AgentCard, card_urls};
use super::http::{Access, Fetched, Http, Request};
use super::{ChosenBy, ClientError, ClientOptions};

/// The most bytes of a card.
const MAX_CARD: usize = 1 << 20;

/// A card that is kept.
#[derive(Debug, Clone)]
pub(super) struct CachedCard {
    pub card: Arc<AgentCard>,
    /// Where it was found.
    pub url: Url,
    etag: Option<HeaderValue>,
    fetched: Instant,
}

/// Cards by the URL of their agent. Who chose the URL decides what may be sent to it, so it is part of the key.
#[derive(Debug, Default)]
pub(super) struct CardCache(Mutex<HashMap<(Url, ChosenBy), CachedCard>>);

impl CardCache {
    /// Returns the card of an agent: the one that is kept, or a new one.
    pub async fn get(
        &self,
        (agent, chosen_by): (&Url, ChosenBy),
        http: &Http,
        options: &ClientOptions,
    ) -> Result<CachedCard, ClientError> {
        let key = (agent.clone(), chosen_by);
        let kept = self.lock().get(&key).cloned();
        if let Some(kept) = &kept
            && kept.fetched.elapsed() < options.card_ttl
        {
            return Ok(kept.clone());
        }
        let access = http.access(agent, chosen_by)?;
        let fetch = |url: Url, etag| fetch(http, access, options.card_timeout, url, etag);
        if let Some(kept) = kept.filter(|kept| kept.etag.is_some()) {
            let response = fetch(kept.url.clone(), kept.etag.clone()).await?;
            let card = match response.status {
                200 => Some(read(kept.url, response)?),
                304 => Some(CachedCard { fetched: Instant::now(), ..kept }),
                // It has moved.
                _ => None,
            };
            if let Some(card) = card {
                self.keep(key, card.clone(), options.max_cards);
                return Ok(card);
            }
        }
        let mut status = StatusCode::NOT_FOUND.as_u16();
        for url in card_urls(agent) {
            let response = fetch(url.clone(), None).await?;
            match response.status {
                404 => continue,
                200 => {
                    let card = read(url, response)?;
                    self.keep(key, card.clone(), options.max_cards);
                    return Ok(card);
                }
                other => status = other,
            }
            break;
        }
        let why = format!("there is no agent card (status {status})");
        Err(ClientError::Malformed { url: agent.to_string(), why })
    }

    /// Keeps a card, in place of the oldest one if there are too many.
    fn keep(&self, key: (Url, ChosenBy), card: CachedCard, limit: usize) {
        if limit == 0 {
            return;
        }
        let mut cards = self.lock();
        if !cards.contains_key(&key) && cards.len() >= limit {
            let oldest = cards.iter().min_by_key(|(_, card)| card.fetched).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| cards.remove(&oldest));
        }
        cards.insert(key, card);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Url, ChosenBy), CachedCard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn fetch(
    http: &Http,
    access: Access,
    timeout: Duration,
    url: Url,
    etag: Option<HeaderValue>,
) -> Result<Fetched, ClientError> {
    let mut headers = vec![(header::ACCEPT, HeaderValue::from_static("application/json"))];
    headers.extend(etag.map(|etag| (header::IF_NONE_MATCH, etag)));
    http.fetch(Request { method: Method::GET, url, headers, body: Vec::new() }, access, timeout, MAX_CARD).await
}

fn read(url: Url, response: Fetched) -> Result<CachedCard, ClientError> {
    let card = AgentCard::read(&response.body).map_err(|error| ClientError::of_peer(&url, error))?;
    Ok(CachedCard { card: Arc::new(card), url, etag: response.etag, fetched: Instant::now() })
}
