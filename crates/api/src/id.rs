//! Identifiers in OpenCode's format: `<prefix>_<12 hex digits><14 base62 characters>`.
//!
//! The hex digits are the low 48 bits of `unix_ms * 4096 + counter` ([`IdStamp`]), so ids that a process makes later
//! sort later, even when the clock steps back. Session ids hold the complement, so the newest session sorts first.
//!
//! We order nothing by ids or times, but official clients sort messages and parts by id. So ids for a session that
//! already has messages are made with [`MessageId::after`], whatever the clock says.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch; the only time format on the wire.
pub type Timestamp = i64;

/// The offset of this process's clock, in milliseconds.
static SHIFT: AtomicI64 = AtomicI64::new(0);

/// The current time, for display only: it may step back, so nothing is ordered by it.
pub fn now() -> Timestamp {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX).saturating_add(SHIFT.load(Ordering::Relaxed))
}

/// Sets the offset of this process's clock in milliseconds, and forgets which ids it made, as a new process would. A
/// hook for tests.
pub fn shift_clock(by: i64) {
    SHIFT.store(by, Ordering::Relaxed);
    LAST.store(0, Ordering::Relaxed);
}

/// A day in milliseconds.
const DAY: i64 = 24 * 60 * 60 * 1000;
const BASE16: &[u8; 16] = b"0123456789abcdef";
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The last stamp used. Process-wide, because any two ids of a process must be ordered.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Returns a stamp greater than every earlier one of this process, even when the clock steps back.
fn stamp() -> u64 {
    let fresh = (now().max(0) as u64).wrapping_mul(4096) + 1;
    let step = |last: u64| Some(fresh.max(last + 1));
    match LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step) {
        Ok(last) | Err(last) => fresh.max(last + 1),
    }
}

fn render(prefix: &str, bits: u64) -> String {
    // Written by hand because a turn makes dozens of ids.
    let digit = |place: u32| char::from(BASE16[(bits >> (4 * place)) as usize % 16]);
    let mut text = String::with_capacity(prefix.len() + 27);
    text.push_str(prefix);
    text.push('_');
    text.extend((0..12).rev().map(digit));
    text.extend((0..14).map(|_| char::from(BASE62[fastrand::usize(..62)])));
    text
}

fn ascending(prefix: &str) -> String {
    render(prefix, stamp())
}

/// The time and counter in an id, by which ids sort.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdStamp(u64);

impl IdStamp {
    const MAX: u64 = (1 << 48) - 1;

    /// The stamp of an ascending id. `None` for an id that a client chose in a format of its own.
    pub fn of(id: &str) -> Option<Self> {
        Self::parse(id.split_once('_')?.1.get(..12)?)
    }

    /// Parses twelve hexadecimal digits.
    pub fn parse(digits: &str) -> Option<Self> {
        let known = digits.len() == 12 && digits.bytes().all(|byte| BASE16.contains(&byte));
        known.then(|| u64::from_str_radix(digits, 16).ok().map(Self))?
    }
}

impl fmt::Display for IdStamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012x}", self.0)
    }
}

/// The stamp for a new id that sorts after all ids with the given stamp. Nothing sorts after the maximum.
fn after(newest: IdStamp) -> u64 {
    let fresh = stamp() & IdStamp::MAX;
    if fresh > newest.0 || newest.0 >= IdStamp::MAX { fresh } else { newest.0 + 1 }
}

fn descending(prefix: &str) -> String {
    render(prefix, !stamp())
}

/// When an id was made, if it is at most two years old and in our format. Not for session ids, which descend.
pub fn made_at(id: &str) -> Option<Timestamp> {
    let (_, rest) = id.split_once('_')?;
    let bits = i64::from_str_radix(rest.get(..12)?, 16).ok()? / 4096;
    // The id has only the low bits of the time, and is not from the future beyond small clock differences.
    let (now, span) = (now(), 1 << 36);
    let made = now - (now - bits).rem_euclid(span);
    Some(if now - made > span - DAY { made + span } else { made })
}

/// An id for a tool call that the model did not name.
pub fn tool_call_id() -> String {
    ascending("call")
}

/// A readable name for a session: `adjective-noun`.
pub fn slug() -> String {
    const ADJECTIVES: [&str; 24] = [
        "amber", "brave", "calm", "clear", "cosy", "deft", "early", "fair", "gentle", "glad", "keen", "light", "lucid",
        "mellow", "nimble", "patient", "plain", "quiet", "rapid", "sturdy", "sunny", "vivid", "warm", "wise",
    ];
    const NOUNS: [&str; 24] = [
        "alder", "badger", "brook", "cedar", "clover", "comet", "dune", "ember", "fern", "finch", "harbor", "heron",
        "island", "lantern", "maple", "meadow", "otter", "pebble", "quarry", "raven", "spruce", "thistle", "valley",
        "willow",
    ];
    format!("{}-{}", ADJECTIVES[fastrand::usize(..24)], NOUNS[fastrand::usize(..24)])
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $pattern:literal, $make:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The prefix of every id of this kind, without the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// A new id.
            #[expect(clippy::new_without_default, reason = "an id is never a neutral default")]
            pub fn new() -> Self {
                Self($make($prefix).into())
            }

            /// Accepts an id from outside. Like OpenCode it checks only the prefix, and the length in addition.
            pub fn parse(text: &str) -> Result<Self, String> {
                if !text.starts_with($prefix) {
                    return Err(format!("Expected a string starting with {:?}, got {:?}", $prefix, clip(text)));
                }
                if text.len() > 128 {
                    return Err(format!("An id has at most 128 characters, got {}", text.len()));
                }
                Ok(Self(text.into()))
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::parse(text)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

impl MessageId {
    /// A new id that sorts after all ids with that stamp, even if the clock is behind them.
    pub fn after(newest: IdStamp) -> Self {
        Self(render(Self::PREFIX, after(newest)).into())
    }
}

impl PartId {
    /// A new id that sorts after all ids with that stamp, even if the clock is behind them.
    pub fn after(newest: IdStamp) -> Self {
        Self(render(Self::PREFIX, after(newest)).into())
    }
}

fn clip(text: &str) -> String {
    text.chars().take(40).collect()
}

id!(
    /// A session; newer ids sort first.
    SessionId, "ses", "^ses", descending
);
id!(
    /// A message; newer ids sort last.
    MessageId, "msg", "^msg", ascending
);
id!(
    /// A part of a message.
    PartId, "prt", "^prt", ascending
);
id!(
    /// A permission request.
    PermissionId, "per", "^per", ascending
);
id!(
    /// A standing approval, from a reply of `always`.
    ApprovalId, "psv", "^psv", ascending
);
id!(
    /// A question to the human.
    QuestionId, "que", "^que", ascending
);
id!(
    /// A terminal.
    PtyId, "pty", "^pty", ascending
);
id!(
    /// An event.
    EventId, "evt", "^evt_", ascending
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascending_ids_sort_by_age_within_a_millisecond() {
        let ids: Vec<MessageId> = (0..20_000).map(|_| MessageId::new()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn session_ids_sort_newest_first() {
        let ids: Vec<SessionId> = (0..20_000).map(|_| SessionId::new()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] > pair[1]));
    }

    #[test]
    fn format_is_prefix_hex_base62() {
        let id = EventId::new();
        let (prefix, rest) = id.as_str().split_once('_').unwrap();
        assert_eq!(prefix, "evt");
        assert_eq!(rest.len(), 26);
        assert!(rest[..12].chars().all(|c| c.is_ascii_hexdigit()));
        assert!(rest[12..].chars().all(|c| c.is_ascii_alphanumeric()));
        let bits = u64::from_str_radix(&rest[..12], 16).unwrap();
        let want = (now() as u64 * 4096) & ((1 << 48) - 1);
        assert!(want.abs_diff(bits) < 4096 * 10_000, "the hex digits carry the time");
    }

    #[test]
    fn made_at_reads_the_time_from_an_id() {
        let now = now();
        assert!(now.abs_diff(made_at(PermissionId::new().as_str()).unwrap()) < 10_000);
        for age in [0, 60_000, 400 * DAY, -60_000] {
            let id = render("per", ((now - age) as u64).wrapping_mul(4096));
            assert!((now - age).abs_diff(made_at(&id).unwrap()) < 10_000, "{age}");
        }
        assert_eq!(made_at("per_nope"), None);
        assert_eq!(made_at("per_äöüäöüäöü"), None);
    }

    #[test]
    fn stamps_order_as_ids_do() {
        let (one, two) = (MessageId::new(), MessageId::new());
        let (first, second) = (IdStamp::of(one.as_str()).unwrap(), IdStamp::of(two.as_str()).unwrap());
        assert!(first < second);
        assert_eq!(IdStamp::parse(&first.to_string()), Some(first));
        assert_eq!(first.to_string(), one.as_str()[4..16]);
        for odd in ["msg_", "msg_0123456789a", "msg_0123456789aX", "msg_0123456789AB", "msg-0123456789ab", "msg_äöüäöü"]
        {
            assert_eq!(IdStamp::of(odd), None, "{odd}");
        }
    }

    #[test]
    fn an_id_sorts_after_ids_from_a_clock_that_is_ahead() {
        let ahead = render("msg", (now() as u64 + 300_000) * 4096);
        let mut newest = IdStamp::of(&ahead).unwrap();
        let mut last = ahead;
        for _ in 0..1000 {
            let next = MessageId::after(newest);
            assert!(next.as_str() > last.as_str(), "{next} {last}");
            newest = IdStamp::of(next.as_str()).unwrap();
            last = next.to_string();
        }
        let usual = MessageId::after(IdStamp::default());
        assert!(made_at(usual.as_str()).unwrap().abs_diff(now()) < 10_000, "the clock counts if it is ahead itself");
        let end = IdStamp::parse("ffffffffffff").unwrap();
        assert!(made_at(PartId::after(end).as_str()).unwrap().abs_diff(now()) < 10_000, "nothing sorts after the last");
    }

    #[test]
    fn concurrent_ids_are_unique() {
        let made: Vec<PartId> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..5_000).map(|_| PartId::new()).collect::<Vec<_>>())).collect();
            threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
        });
        let stamps: std::collections::HashSet<_> = made.iter().map(|id| id.as_str()[..16].to_owned()).collect();
        assert_eq!(stamps.len(), made.len());
    }

    #[test]
    fn parse_names_the_expected_prefix() {
        assert!(MessageId::parse("msg_x").is_ok());
        assert_eq!(MessageId::parse("nope").unwrap_err(), r#"Expected a string starting with "msg", got "nope""#);
        assert!(MessageId::parse(&format!("msg_{}", "x".repeat(500))).is_err());
    }
}
