//! Namespaces and keys. What is listed together has a common prefix, and the newest comes first.

use api::{Timestamp, sha256_hex};
use serde::{Deserialize, Serialize};

use crate::model::TaskState;

/// Rows of tasks, by id.
pub(super) const TASK: &str = "a2a.task";
/// What ended tasks said and made, by id.
pub(super) const CONTENT: &str = "a2a.content";
/// Prompt and messages of the tasks that have not ended, by id. A start reads these alone.
pub(super) const OPEN: &str = "a2a.open";
/// The tasks that have not ended and whose cancellation was asked for, by id.
pub(super) const CANCELED: &str = "a2a.canceled";
/// Messages that were taken, by owner and id.
pub(super) const MESSAGE: &str = "a2a.message";
/// Events, in chunks, by task and last number.
pub(super) const EVENT: &str = "a2a.event";
/// Ended tasks by [`Lane`], the newest first. The value counts the tasks of the lane up to this one.
pub(super) const INDEX: &str = "a2a.index";
/// How many tasks of a [`Lane`] were deleted.
pub(super) const DELETED: &str = "a2a.deleted";
/// Ended tasks, the oldest first.
pub(super) const ENDED: &str = "a2a.ended";
/// What is known of all ended tasks together, under the one key [`TOTALS`].
pub(super) const META: &str = "a2a.meta";
/// The key of the totals.
pub(super) const TOTALS: &str = "ended";
/// The sessions of contexts.
pub(super) const CONTEXT: &str = "a2a.context";
/// The owners of sessions.
pub(super) const SESSION: &str = "a2a.session";
/// Sessions that are reserved for a while.
pub(super) const CLAIM: &str = "a2a.claim";
/// Interrupts, by the id of the request.
pub(super) const INTERRUPT: &str = "a2a.interrupt";
/// Push configurations, by task and id.
pub(super) const PUSH: &str = "a2a.push";
/// How far the notifications of push configurations have come. Only of those that still have some to send.
pub(super) const DELIVERY: &str = "a2a.delivery";

/// Sorts after everything that a prefix may be followed by: keys have no control characters and ASCII alone where they
/// are made here.
const LAST: char = '\u{10ffff}';

/// How many characters of a hash stand for a text that a client chose.
const HASH_DIGITS: usize = 32;

/// Stands for a text of any length and content in a key.
pub(super) fn hash(text: &str) -> String {
    let mut hash = sha256_hex(text.as_bytes());
    hash.truncate(HASH_DIGITS);
    hash
}

/// When the status of a task changed, in microseconds. Unique among the tasks that have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Stamp(pub(super) u64);

impl Stamp {
    /// The first stamp of a millisecond.
    pub(super) fn of(time: Timestamp) -> Self {
        Self(u64::try_from(time).unwrap_or(0).saturating_mul(1000))
    }

    /// Its millisecond.
    pub(super) fn time(self) -> Timestamp {
        Timestamp::try_from(self.0 / 1000).unwrap_or(Timestamp::MAX)
    }

    pub(super) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Sorts later stamps first.
    fn descending(self) -> String {
        format!("{:016x}", u64::MAX - self.0)
    }

    fn ascending(self) -> String {
        format!("{:016x}", self.0)
    }
}

/// The ended tasks of an owner in one state, of all contexts or of one. A list without a state merges four of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lane(String);

impl Lane {
    pub(super) fn new(identity: &str, context: Option<&str>, state: TaskState) -> Self {
        let state = state_letter(state);
        Self(match context {
            None => format!("{identity}/{state}/"),
            Some(context) => format!("{identity}/{state}{}/", hash(context)),
        })
    }

    /// Its own key, in [`DELETED`].
    pub(super) fn name(&self) -> &str {
        &self.0
    }

    /// The key of a task in [`INDEX`].
    pub(super) fn key(&self, stamp: Stamp, task: &str) -> String {
        format!("{}{}/{task}", self.0, stamp.descending())
    }

    /// Sorts after all keys of a stamp and before those of earlier ones.
    pub(super) fn until(&self, stamp: Stamp) -> String {
        format!("{}{}{LAST}", self.0, stamp.descending())
    }

    /// Sorts after all keys.
    pub(super) fn end(&self) -> String {
        format!("{}{LAST}", self.0)
    }

    /// The stamp and the task of a key.
    pub(super) fn parse<'a>(&self, key: &'a str) -> Option<(Stamp, &'a str)> {
        let (stamp, task) = key.strip_prefix(&self.0)?.split_once('/')?;
        Some((Stamp(u64::MAX - u64::from_str_radix(stamp, 16).ok()?), task))
    }
}

fn state_letter(state: TaskState) -> char {
    match state {
        TaskState::Submitted => 's',
        TaskState::Working => 'w',
        TaskState::InputRequired => 'i',
        TaskState::AuthRequired => 'a',
        TaskState::Completed => 'c',
        TaskState::Canceled => 'x',
        TaskState::Failed => 'f',
        TaskState::Rejected => 'r',
    }
}

/// The key of a task in [`ENDED`].
pub(super) fn ended(stamp: Stamp, task: &str) -> String {
    format!("{}/{task}", stamp.ascending())
}

/// The stamp and the task of a key in [`ENDED`].
pub(super) fn parse_ended(key: &str) -> Option<(Stamp, &str)> {
    let (stamp, task) = key.split_once('/')?;
    Some((Stamp(u64::from_str_radix(stamp, 16).ok()?), task))
}

/// The key of a chunk of events, by the number of the last one.
pub(super) fn event(task: &str, last: u64) -> String {
    format!("{task}/{last:016x}")
}

/// The number of the last event in the chunk with a key.
pub(super) fn parse_event(key: &str) -> Option<u64> {
    let (_, number) = key.rsplit_once('/')?;
    u64::from_str_radix(number, 16).ok()
}

/// The key of a message.
pub(super) fn message(identity: &str, message_id: &str) -> String {
    format!("{identity}/{}", hash(message_id))
}

/// The key of a context in a place.
pub(super) fn context(identity: &str, context: &str, place: Option<&str>) -> String {
    match place {
        None => format!("{identity}/{}", hash(context)),
        Some(place) => format!("{identity}/{}/{}", hash(context), hash(place)),
    }
}

/// The key of something that belongs to a task.
pub(super) fn of_task(task: &str, id: &str) -> String {
    format!("{task}/{id}")
}

/// The range of the keys that belong to a task.
pub(super) fn all_of_task(task: &str) -> (String, String) {
    (format!("{task}/"), format!("{task}/{LAST}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_tasks_sort_first_and_keys_can_be_read_again() {
        let lane = Lane::new("me", Some("a/b"), TaskState::Completed);
        let (early, late) = (Stamp::of(1000), Stamp::of(2000));
        assert!(lane.key(late, "t") < lane.key(early, "a"));
        assert_eq!(lane.parse(&lane.key(late, "t/1")), Some((late, "t/1")));
        assert!(lane.name() < &*lane.key(late, "") && lane.key(late, "\u{ffff}") < lane.until(late));
        assert!(lane.until(late) < lane.key(early, "") && lane.until(early) < lane.end());
        assert_eq!(parse_ended(&ended(early, "t")), Some((early, "t")));
        assert_eq!((late.time(), late.next().time(), Stamp::of(-5)), (2000, 2000, Stamp(0)));
    }

    #[test]
    fn lanes_do_not_overlap() {
        let all = Lane::new("me", None, TaskState::Completed);
        let one = Lane::new("me", Some("c"), TaskState::Completed);
        let other = Lane::new("me2", None, TaskState::Completed);
        for key in [one.key(Stamp(1), "t"), other.key(Stamp(1), "t")] {
            assert!(&*key < all.name() || key > all.end(), "{key}");
            assert_eq!(all.parse(&key), None);
        }
    }
}
