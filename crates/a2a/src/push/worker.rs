//! The notifications of one push configuration, one after another.

use std::time::Duration;

use api::Timestamp;
use store::StoreError;

use super::Inner;
use super::body::{body, notifies};
use super::webhook::Outcome;
use crate::event::NumberedEvent;
use crate::model::Line;
use crate::records::{Delivery, PushRow, TaskRow};

/// How often a notification is tried. Then everything up to now is given up, and the next event is tried afresh.
const MAX_ATTEMPTS: u32 = 10;
/// The longest wait between two attempts. All attempts together take less time than the log of an ended task is kept.
const RETRY_MAX: Duration = Duration::from_secs(5 * 60);
/// The most events that wait for a webhook. In place of more, it gets the task as it is.
const MAX_WAITING: u64 = 1000;
/// How many events of 0.3 are looked at at a time, most of which need no notification.
const PAGE: usize = 64;
/// How often in a row rows cannot be read or written before the worker waits for the next event.
const MAX_ERRORS: u32 = 5;

/// What to do next.
enum Step {
    /// Go on.
    More,
    /// Try again later.
    Wait(Duration),
    /// Nothing is to be sent now.
    Idle,
}

/// A notification.
struct Notification {
    /// The number of the last event that it covers.
    upto: u64,
    /// The event; without one it is about the task.
    event: Option<NumberedEvent>,
}

/// Sends until there is nothing to send.
pub(super) async fn run(inner: &Inner, key: (String, String)) {
    let mut errors = 0;
    loop {
        let wait = tokio::select! {
            () = inner.closing.cancelled() => return,
            step = step(inner, &key.0, &key.1) => match step {
                Ok(Step::More) => {
                    errors = 0;
                    continue;
                }
                Ok(Step::Wait(time)) => Some(time),
                Ok(Step::Idle) => None,
                Err(error) => {
                    errors += 1;
                    tracing::warn!(task = key.0, config = key.1, %error, "push notifications are delayed");
                    (errors < MAX_ERRORS).then_some(inner.retry)
                }
            },
        };
        match wait {
            None if inner.may_stop(&key) => return,
            None => {}
            Some(time) => tokio::select! {
                () = inner.closing.cancelled() => return,
                () = tokio::time::sleep(time) => {}
            },
        }
    }
}

async fn step(inner: &Inner, task: &str, config: &str) -> Result<Step, StoreError> {
    let records = &inner.records;
    let Some(mut delivery) = records.delivery(task, config)? else { return Ok(Step::Idle) };
    let open = records.last_open_event(task);
    // Read after that: if the task has not ended there, this may already have its end.
    let (Some(push), Some(row)) = (records.push_row(task, config)?, records.row(task)?) else {
        records.end_delivery(&delivery).await?;
        return Ok(Step::Idle);
    };
    let last = open.unwrap_or(row.last_seq);
    if delivery.sent >= last {
        if open.is_none() {
            records.end_delivery(&delivery).await?;
        }
        return Ok(Step::Idle);
    }
    if let Some(wait) = waiting_time(delivery.next) {
        return Ok(Step::Wait(wait));
    }
    let Some(next) = next(inner, &mut delivery, push.line, last).await? else {
        records.set_delivery(&mut delivery).await?;
        return Ok(Step::More);
    };
    let outcome = send(inner, &push, &row, &next).await?;
    settle(inner, delivery, outcome, next.upto, last).await
}

/// How long to wait until a time. Never longer than between two attempts, in case the clock was changed.
fn waiting_time(until: Timestamp) -> Option<Duration> {
    let wait = u64::try_from(until.saturating_sub(api::now())).ok().filter(|wait| *wait > 0)?;
    Some(Duration::from_millis(wait).min(RETRY_MAX))
}

/// The next notification. `None` if the events that were looked at need none; `delivery` is behind them then.
async fn next(
    inner: &Inner,
    delivery: &mut Delivery,
    line: Line,
    last: u64,
) -> Result<Option<Notification>, StoreError> {
    if last - delivery.sent > MAX_WAITING {
        return Ok(Some(Notification { upto: last, event: None }));
    }
    let limit = if line == Line::V10 { 1 } else { PAGE };
    let events = inner.records.events(&delivery.task, delivery.sent, limit).await?;
    if events.first().is_none_or(|first| first.seq != delivery.sent + 1) {
        // The log is gone.
        return Ok(Some(Notification { upto: last, event: None }));
    }
    for event in events {
        if notifies(line, &event.event) {
            return Ok(Some(Notification { upto: event.seq, event: Some(event) }));
        }
        delivery.sent = event.seq;
    }
    Ok(None)
}

async fn send(
    inner: &Inner,
    push: &PushRow,
    row: &TaskRow,
    notification: &Notification,
) -> Result<Outcome, StoreError> {
    let body = body(inner, row, push.line, notification.upto, notification.event.as_ref()).await?;
    let owner = inner.owner(&push.identity);
    // They are never closed.
    let (_of_owner, _of_all) = (owner.acquire().await, inner.requests.acquire().await);
    Ok(inner.webhooks.post(push, body).await)
}

/// Notes what came of a notification.
async fn settle(
    inner: &Inner,
    mut delivery: Delivery,
    outcome: Outcome,
    upto: u64,
    last: u64,
) -> Result<Step, StoreError> {
    let (task, config) = (delivery.task.clone(), delivery.config.clone());
    let attempts = delivery.attempts + 1;
    (delivery.attempts, delivery.next) = (0, 0);
    let mut step = Step::More;
    match outcome {
        Outcome::Taken => delivery.sent = upto,
        Outcome::Refused(why) => {
            tracing::warn!(task, config, event = upto, why, "a webhook refused a push notification");
            delivery.sent = upto;
        }
        Outcome::Failed(why) if attempts >= MAX_ATTEMPTS => {
            tracing::warn!(task, config, why, attempts, "a webhook fails; what waited for it is given up");
            delivery.sent = last;
        }
        Outcome::Failed(why) => {
            let wait = backoff(inner.retry, attempts);
            tracing::debug!(task, config, why, attempts, ?wait, "a push notification is sent again later");
            delivery.attempts = attempts;
            delivery.next = api::now().saturating_add(Timestamp::try_from(wait.as_millis()).unwrap_or(0));
            step = Step::Wait(wait);
        }
    }
    // If the configuration was replaced or deleted meanwhile, the next step sees that.
    inner.records.set_delivery(&mut delivery).await?;
    Ok(step)
}

/// The wait after an attempt: it doubles, and varies, so that webhooks that failed together are not tried together.
fn backoff(first: Duration, attempts: u32) -> Duration {
    let wait = first.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(RETRY_MAX);
    wait.mul_f64(0.75 + fastrand::f64() / 4.0)
}
