//! What the client announced that it can do. The agent uses nothing else.

use agent_client_protocol_schema::v1::ClientCapabilities;
use serde_json::Value;

/// The capabilities of a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// It reads files, including unsaved changes.
    pub read_files: bool,
    /// It writes files.
    pub write_files: bool,
    /// It runs commands in terminals.
    pub terminals: bool,
    /// It shows forms.
    pub forms: bool,
    /// It shows subagents.
    pub subagents: bool,
    /// It shows notices.
    pub notices: bool,
    /// It shows compactions.
    pub compaction: bool,
    /// It shows options that are on or off.
    pub boolean_options: bool,
    /// It can run the agent's program in a terminal to sign in.
    pub terminal_login: bool,
    /// The same, in the form of older clients.
    pub legacy_terminal_login: bool,
}

impl Capabilities {
    /// Reads the parameters of `initialize`. Malformed capabilities count as absent.
    pub fn from_initialize(params: &Value) -> Self {
        let given = params.get("clientCapabilities").or_else(|| params.get("capabilities")).cloned();
        let can: ClientCapabilities = serde_json::from_value(given.unwrap_or_default()).unwrap_or_default();
        let session = can.session.as_ref();
        let options = session.and_then(|session| session.config_options.as_ref());
        Self {
            read_files: can.fs.read_text_file,
            write_files: can.fs.write_text_file,
            terminals: can.terminal,
            forms: can.elicitation.as_ref().is_some_and(|forms| forms.form.is_some()),
            subagents: can.subagents.is_some(),
            notices: session.is_some_and(|session| session.notices.is_some()),
            compaction: session.is_some_and(|session| session.compaction.is_some()),
            boolean_options: options.is_some_and(|options| options.boolean.is_some()),
            terminal_login: can.auth.terminal,
            legacy_terminal_login: can
                .meta
                .as_ref()
                .is_some_and(|meta| meta.get("terminal-auth") == Some(&Value::Bool(true))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_announced_capabilities_count() {
        for params in
            [json!({}), json!(null), json!({"clientCapabilities": 5}), json!({"clientCapabilities": {"fs": 1}})]
        {
            assert_eq!(Capabilities::from_initialize(&params), Capabilities::default(), "{params}");
        }
        let all = json!({"capabilities": {
            "fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true, "subagents": {},
            "elicitation": {"form": {}}, "auth": {"terminal": true}, "_meta": {"terminal-auth": true},
            "session": {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}},
        }});
        let can = Capabilities::from_initialize(&all);
        assert!(
            can.read_files
                && can.write_files
                && can.terminals
                && can.forms
                && can.subagents
                && can.terminal_login
                && can.legacy_terminal_login
        );
        assert!(can.notices && can.compaction && can.boolean_options);
        let odd = Capabilities::from_initialize(
            &json!({"clientCapabilities": {"terminal": "yes", "fs": {"readTextFile": true}}}),
        );
        assert!(odd.read_files && !odd.terminals && !odd.write_files);
    }
}
