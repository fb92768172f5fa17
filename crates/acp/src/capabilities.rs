//! What the client can do. What it did not announce is never used.

use agent_client_protocol_schema::v1::ClientCapabilities;
use serde_json::Value;

/// What a client announced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Abilities {
    /// It reads files, with what is not saved yet.
    pub read: bool,
    /// It writes files.
    pub write: bool,
    /// It runs commands in terminals.
    pub terminal: bool,
    /// It shows forms.
    pub forms: bool,
    /// It shows subagents.
    pub subagents: bool,
    /// It shows notices.
    pub notices: bool,
    /// It shows compactions.
    pub compaction: bool,
    /// It shows options that are on or off.
    pub booleans: bool,
    /// It runs the agent's program in a terminal to sign in.
    pub login: bool,
    /// The same, as older clients do it.
    pub old_login: bool,
}

impl Abilities {
    /// Reads the parameters of `initialize`. What is malformed counts as not announced.
    pub fn of(params: &Value) -> Self {
        let given = params.get("clientCapabilities").or_else(|| params.get("capabilities")).cloned();
        let can: ClientCapabilities = serde_json::from_value(given.unwrap_or_default()).unwrap_or_default();
        let session = can.session.as_ref();
        let options = session.and_then(|session| session.config_options.as_ref());
        Self {
            read: can.fs.read_text_file,
            write: can.fs.write_text_file,
            terminal: can.terminal,
            forms: can.elicitation.as_ref().is_some_and(|forms| forms.form.is_some()),
            subagents: can.subagents.is_some(),
            notices: session.is_some_and(|session| session.notices.is_some()),
            compaction: session.is_some_and(|session| session.compaction.is_some()),
            booleans: options.is_some_and(|options| options.boolean.is_some()),
            login: can.auth.terminal,
            old_login: can.meta.as_ref().is_some_and(|meta| meta.get("terminal-auth") == Some(&Value::Bool(true))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_announced_is_absent() {
        for params in
            [json!({}), json!(null), json!({"clientCapabilities": 5}), json!({"clientCapabilities": {"fs": 1}})]
        {
            assert_eq!(Abilities::of(&params), Abilities::default(), "{params}");
        }
        let all = json!({"capabilities": {
            "fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true, "subagents": {},
            "elicitation": {"form": {}}, "auth": {"terminal": true}, "_meta": {"terminal-auth": true},
            "session": {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}},
        }});
        let can = Abilities::of(&all);
        assert!(can.read && can.write && can.terminal && can.forms && can.subagents && can.login && can.old_login);
        assert!(can.notices && can.compaction && can.booleans);
        let odd = Abilities::of(&json!({"clientCapabilities": {"terminal": "yes", "fs": {"readTextFile": true}}}));
        assert!(odd.read && !odd.terminal && !odd.write);
    }
}
