//! Push configurations of tasks. What sends the notifications is in [`push`](crate::push).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{Inner, Service, apply, store_error};
use crate::push::{Pusher, Webhooks};
use crate::records::{MAX_PUSH_CONFIGS, PushRow, PutPush};
use crate::{Error, ErrorKind, Line, Principal, PushConfig};

/// The longest id of a configuration.
const MAX_ID_BYTES: usize = 128;
/// When to try again where too many tasks have notifications to send.
const RETRY_AFTER_SECONDS: u64 = 60;

/// Starts to send notifications, unless they are switched off. Once, when the service is opened; it ends with it.
pub(super) fn start(inner: &Arc<Inner>) {
    if inner.settings.push {
        let webhooks = Webhooks::new(inner.settings.push_allow_private_hosts);
        let (tracker, closing) = (inner.tracker.clone(), inner.closing.clone());
        Pusher::new(inner.records.clone(), webhooks, apply::apply, tracker, closing).start();
    }
}

/// Checks the configuration of a message that creates a task.
pub(super) async fn inline(
    inner: &Inner,
    who: &Principal,
    line: Line,
    task: &str,
    config: PushConfig,
) -> Result<PushRow, Error> {
    check_enabled(inner)?;
    let webhooks = Webhooks::new(inner.settings.push_allow_private_hosts);
    let row = prepare(&webhooks, who, line, task, config).await?;
    check_room(inner)?;
    Ok(row)
}

/// A configuration as it is stored.
async fn prepare(
    webhooks: &Webhooks,
    who: &Principal,
    line: Line,
    task: &str,
    mut config: PushConfig,
) -> Result<PushRow, Error> {
    task.clone_into(&mut config.task_id);
    let id = config.id.take().filter(|id| !id.is_empty()).unwrap_or_else(|| task.to_owned());
    if id.len() > MAX_ID_BYTES || id.chars().any(|char| char.is_control() || char == char::MAX) {
        let message =
            format!("id is longer than {MAX_ID_BYTES} bytes or has control characters; choose another, or none");
        return Err(Error::invalid("id", message));
    }
    config.id = Some(id);
    webhooks.check(&config).await?;
    Ok(PushRow { config, line, identity: who.identity.clone() })
}

fn check_enabled(inner: &Inner) -> Result<(), Error> {
    if inner.settings.push {
        return Ok(());
    }
    let message = "Push notifications are switched off; poll the task or subscribe to its stream";
    Err(Error::new(ErrorKind::PushNotSupported, message))
}

fn check_room(inner: &Inner) -> Result<(), Error> {
    if inner.records.can_follow() {
        return Ok(());
    }
    let message = format!("Too many tasks have push notifications to send; try again in {RETRY_AFTER_SECONDS} s");
    Err(Error::new(ErrorKind::TooManyRequests, message).with("retry_after", RETRY_AFTER_SECONDS))
}

/// The position after a page.
fn token(id: &str) -> String {
    URL_SAFE_NO_PAD.encode(id)
}

fn parse_token(token: &str) -> Result<String, Error> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok().filter(|bytes| bytes.len() <= MAX_ID_BYTES);
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(|| {
        Error::invalid("pageToken", "pageToken is no cursor of a page that was listed before; begin without one")
    })
}

impl Inner {
    /// Fails unless notifications are on and the task is the caller's.
    fn check_push(&self, who: &Principal, task: &str) -> Result<(), Error> {
        check_enabled(self)?;
        let row = self.records.row(task).map_err(|error| store_error(&error))?;
        self.access.task(who, task, row.as_ref().map(|row| row.identity.as_str()))
    }
}

impl Service {
    /// Creates or replaces a push configuration.
    ///
    /// # Errors
    ///
    /// If notifications are switched off, the task is not the caller's, or the webhook may not be called.
    pub async fn put_push(&self, who: &Principal, line: Line, config: PushConfig) -> Result<PushConfig, Error> {
        let inner = &self.inner;
        inner.check_push(who, &config.task_id)?;
        let webhooks = Webhooks::new(inner.settings.push_allow_private_hosts);
        let task = config.task_id.clone();
        let row = prepare(&webhooks, who, line, &task, config).await?;
        check_room(inner)?;
        let config = row.config.clone();
        match inner.records.put_push(row).await.map_err(|error| store_error(&error))? {
            PutPush::Stored => Ok(config),
            PutPush::TooMany => {
                let message = format!("Task {task} has {MAX_PUSH_CONFIGS} push configurations; delete one first");
                Err(Error::new(ErrorKind::UnsupportedOperation, message))
            }
        }
    }

    /// A push configuration.
    ///
    /// # Errors
    ///
    /// If notifications are switched off, the task is not the caller's, or it has no such configuration.
    pub async fn get_push(&self, who: &Principal, task: &str, id: Option<&str>) -> Result<PushConfig, Error> {
        self.inner.check_push(who, task)?;
        let id = id.filter(|id| !id.is_empty()).unwrap_or(task);
        let row = self.inner.records.push_row(task, id).map_err(|error| store_error(&error))?;
        row.map(|row| row.config).ok_or_else(|| {
            Error::new(
                ErrorKind::TaskNotFound,
                format!("Task {task} has no push configuration {id}; list those it has"),
            )
        })
    }

    /// A page of the push configurations of a task, and the cursor of the next one.
    ///
    /// # Errors
    ///
    /// If notifications are switched off, the task is not the caller's, or the cursor is none.
    pub async fn list_push(
        &self,
        who: &Principal,
        task: &str,
        page_size: Option<u32>,
        page_token: Option<&str>,
    ) -> Result<(Vec<PushConfig>, String), Error> {
        self.inner.check_push(who, task)?;
        let after = page_token.filter(|token| !token.is_empty()).map(parse_token).transpose()?;
        let size = page_size.map_or(MAX_PUSH_CONFIGS, |size| (size as usize).clamp(1, MAX_PUSH_CONFIGS));
        let page = self.inner.records.push_rows(task, after.as_deref(), size);
        let (rows, has_more) = page.map_err(|error| store_error(&error))?;
        let configs: Vec<PushConfig> = rows.into_iter().map(|row| row.config).collect();
        let last = configs.last().filter(|_| has_more).and_then(|config| config.id.as_deref());
        let next = last.map(token).unwrap_or_default();
        Ok((configs, next))
    }

    /// Deletes a push configuration. One that does not exist is deleted already.
    ///
    /// # Errors
    ///
    /// If notifications are switched off, or the task is not the caller's.
    pub async fn delete_push(&self, who: &Principal, task: &str, id: Option<&str>) -> Result<(), Error> {
        self.inner.check_push(who, task)?;
        let id = id.filter(|id| !id.is_empty()).unwrap_or(task);
        self.inner.records.delete_push(task, id).await.map_err(|error| store_error(&error)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal() -> Principal {
        Principal { identity: "me".to_owned(), credential: None, capabilities: crate::Capabilities::default() }
    }

    async fn prepared(id: Option<&str>) -> Result<PushRow, Error> {
        let config = PushConfig {
            task_id: "of somebody else".to_owned(),
            id: id.map(str::to_owned),
            url: "http://127.0.0.1/hook".to_owned(),
            ..PushConfig::default()
        };
        prepare(&Webhooks::new(true), &principal(), Line::V03, "t", config).await
    }

    #[tokio::test]
    async fn a_configuration_has_the_id_of_its_task_by_default() {
        for (id, expected) in [(None, "t"), (Some(""), "t"), (Some("p/1"), "p/1")] {
            let row = prepared(id).await.unwrap();
            assert_eq!((row.config.task_id.as_str(), row.config.id.as_deref()), ("t", Some(expected)));
            assert_eq!((row.identity.as_str(), row.line), ("me", Line::V03));
        }
        for bad in ["a\nb", &"x".repeat(MAX_ID_BYTES + 1)] {
            assert_eq!(prepared(Some(bad)).await.unwrap_err().fields["field"], "id");
        }
    }

    #[test]
    fn a_cursor_can_be_read_again() {
        assert_eq!(parse_token(&token("p/1")).unwrap(), "p/1");
        for bad in ["!", "_w", &token(&"x".repeat(MAX_ID_BYTES + 1))] {
            assert_eq!(parse_token(bad).unwrap_err().fields["field"], "pageToken", "{bad}");
        }
    }
}
