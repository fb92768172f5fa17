//! A turn: the work from one or more prompts to their answer.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Blocked, Cursor, MessageError, MessageId, SessionId, Timestamp, TreeAsk, Usd};

/// Names a turn: its session, and its number there, counted from 1. As text, the third turn of `ses_abc` is `trn_abc-3`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TurnId {
    /// The session.
    pub session: SessionId,
    /// The turn's number in its session.
    pub number: u64,
}

impl TurnId {
    /// Replaces the prefix of the session's id.
    const PREFIX: &str = "trn";

    /// The turn of a session with this number.
    pub fn new(session: &SessionId, number: u64) -> Self {
        Self { session: session.clone(), number }
    }

    /// Parses an id; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parse = || {
            let (session, number) = text.strip_prefix(Self::PREFIX)?.rsplit_once('-')?;
            let session = SessionId::parse(&format!("{}{session}", SessionId::PREFIX)).ok()?;
            // Only one spelling names a turn.
            let digits = number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0');
            Some(Self { session, number: number.parse().ok().filter(|_| digits)? })
        };
        parse().ok_or_else(|| format!("not the id of a turn: {text:?}"))
    }
}

impl fmt::Display for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = self.session.as_str().strip_prefix(SessionId::PREFIX).unwrap_or_default();
        write!(f, "{}{rest}-{}", Self::PREFIX, self.number)
    }
}

impl std::str::FromStr for TurnId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

impl Serialize for TurnId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TurnId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for TurnId {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TurnID".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^trn.*-[1-9][0-9]*$" })
    }
}

/// What happens to a prompt while a turn of its session is running or waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Delivery {
    /// It joins the running turn before its next step, and shares its answer.
    #[default]
    Join,
    /// It becomes a turn of its own, after all turns that were accepted before it.
    Queue,
}

/// An accepted prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Submitted {
    /// Its message; absent while the prompt is queued and the client chose no id.
    #[serde(rename = "messageID", skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
    /// The turn that answers it; absent for a prompt that asks for no reply.
    #[serde(rename = "turnID", skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// The position in the log at which it was accepted: what the turn does comes later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl Submitted {
    /// The position in the log at which it was accepted.
    pub fn cursor(&self) -> Option<Cursor> {
        self.cursor.as_deref().and_then(|cursor| cursor.parse().ok())
    }
}

/// The state of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TurnState {
    /// It has not begun, or waits to be resumed.
    Queued,
    /// It is running.
    Running,
    /// It is running, and waits for an ask to be answered or a budget to be raised.
    Waiting,
    /// It ended with an answer.
    Done,
    /// It ended with an error.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl TurnState {
    /// Whether a turn in this state does nothing any more.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// When things happened to a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnTime {
    /// When its first prompt was accepted.
    pub created: Timestamp,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
}

/// A turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Turn {
    /// Its id.
    pub id: TurnId,
    /// Its session.
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// Its state.
    pub state: TurnState,
    /// The prompts that it took in, in order. Empty while its prompt is queued, and for a turn that began without one.
    pub prompts: Vec<MessageId>,
    /// Who sent its first prompt, if that was not the person who owns the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Its last answer, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<MessageId>,
    /// Why its last answer failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<MessageError>,
    /// What its session and all descendants have used since it began, in US dollars.
    pub cost: Usd,
    /// The asks that it waits for, its own and those of its subagents.
    #[serde(default)]
    pub asks: Vec<TreeAsk>,
    /// Why it waits for its budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Blocked>,
    /// When things happened to it.
    pub time: TurnTime,
}

/// Which turns of a session to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListTurns {
    /// Only those that have ended, or only those that have not.
    pub ended: Option<bool>,
    /// Only the one that is running, or if there is none, the next one that will.
    pub current: bool,
    /// Only those before this one; the cursor of a page.
    pub before: Option<TurnId>,
    /// The maximum number of turns; 100 by default.
    pub limit: Option<usize>,
}

/// A page of turns, newest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TurnPage {
    /// The turns.
    pub turns: Vec<Turn>,
    /// The cursor for the next, older page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older: Option<TurnId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_spelling() {
        let session = SessionId::new();
        let id = TurnId::new(&session, 12);
        assert_eq!(TurnId::parse(&id.to_string()), Ok(id.clone()));
        assert_eq!(serde_json::from_str::<TurnId>(&serde_json::to_string(&id).unwrap()).unwrap(), id);
        let rest = session.as_str().strip_prefix("ses").unwrap();
        for bad in ["", "trn", "0", "01", "+1", "1x", "-", "99999999999999999999999"] {
            let bad = if bad.starts_with("trn") { bad.to_owned() } else { format!("trn{rest}-{bad}") };
            assert!(TurnId::parse(&bad).is_err_and(|why| why.contains("turn")), "{bad}");
        }
        assert!(TurnId::parse(&format!("ses{rest}-1")).is_err());
        assert!(TurnId::parse(&format!("trn{rest}")).is_err());
    }
}
