//! Tracks the subagents of other agents, which report them in three ways: `subagent_update` and the child's own updates
//! (the protocol), a call with a `subagent_type` whose output names the child's session (OpenCode, and others like it),
//! and OpenCode's `opencode/session/child_update`. An agent may use several of them; they have the child's session in
//! common.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// Subagents tracked on one connection; further ones are ignored.
const MAX_SUBAGENTS: usize = 1000;
/// The deepest nesting.
const MAX_DEPTH: usize = 16;

/// A subagent.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Subagent {
    /// The session that it works for.
    pub parent: String,
    /// Its own session, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The call that started it, if one reported it.
    #[serde(rename = "toolCallId", skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Its task.
    pub title: String,
    /// `running`, `idle`, `requires_action`, `failed`, or the agent's own word.
    pub state: String,
    /// Why it is idle, if the agent says so.
    #[serde(skip)]
    pub stop: Option<String>,
    /// What went wrong, if the agent says so.
    #[serde(skip)]
    pub error: Option<String>,
    /// Whether it can be cancelled alone.
    #[serde(skip)]
    pub cancel: bool,
}

/// The subagents of a connection.
#[derive(Debug, Default)]
pub(super) struct SubagentTracker {
    subagents: Vec<Subagent>,
    sessions: HashMap<String, usize>,
    calls: HashMap<(String, String), usize>,
    /// Subagents whose state came from the protocol itself: then the call that started one says nothing about its
    /// state, because it may end long before.
    state_reported: HashSet<usize>,
}

/// What one message says about a subagent.
#[derive(Debug, Default)]
struct SubagentChange<'a> {
    session: Option<&'a str>,
    call: Option<&'a str>,
    title: Option<&'a str>,
    state: Option<&'a str>,
    stop: Option<&'a str>,
    error: Option<&'a str>,
    cancel: Option<bool>,
}

impl SubagentTracker {
    /// Reads an update of a session; returns the subagent if anything changed.
    pub fn update(&mut self, session: &str, update: &Value) -> Option<Subagent> {
        match update["sessionUpdate"].as_str()? {
            "subagent_update" => {
                let title = update["title"].as_str().or_else(|| update["description"].as_str());
                let child = Some(update["sessionId"].as_str()?);
                let known = child.and_then(|child| self.sessions.get(child)).map(|index| &self.subagents[*index]);
                if known.is_some_and(|known| known.parent != session) {
                    // Only its parent reports it.
                    return None;
                }
                let state = &update["state"];
                let change = SubagentChange {
                    session: child,
                    title,
                    state: state["state"].as_str(),
                    stop: state["stopReason"].as_str(),
                    error: state["error"]["message"].as_str(),
                    // Missing capabilities stay as they were.
                    cancel: update.get("capabilities").map(|capabilities| capabilities["cancel"].is_object()),
                    call: None,
                };
                let known = self.apply(session, change);
                let index = child.and_then(|child| self.sessions.get(child)).filter(|_| state["state"].is_string());
                self.state_reported.extend(index);
                known
            }
            "tool_call" | "tool_call_update" => self.call(session, update),
            _ => None,
        }
    }

    fn call(&mut self, session: &str, update: &Value) -> Option<Subagent> {
        let call = update["toolCallId"].as_str()?;
        let child = update["rawOutput"]["metadata"]["sessionId"].as_str();
        let known = self.calls.contains_key(&(session.to_owned(), call.to_owned()));
        let delegates = update["rawInput"]["subagent_type"].is_string();
        // A pending call has not started a subagent yet.
        let state = match update["status"].as_str() {
            Some("in_progress") => Some("running"),
            Some("completed") => Some("idle"),
            Some("failed") => Some("failed"),
            _ => None,
        };
        if !(known || child.is_some() || (delegates && state.is_some())) {
            return None;
        }
        let title = update["rawInput"]["description"].as_str().or_else(|| update["title"].as_str());
        self.apply(
            session,
            SubagentChange { session: child, call: Some(call), title, state, ..SubagentChange::default() },
        )
    }

    /// Reads OpenCode's `child_update`; returns the subagent if anything changed.
    pub fn child_update(&mut self, params: &Value) -> Option<Subagent> {
        let parent = params["parentSessionId"].as_str().or_else(|| params["rootSessionId"].as_str())?;
        let child = Some(params["childSessionId"].as_str()?);
        let state = match params["status"].as_str() {
            Some("created") => Some("running"),
            Some("error") => Some("failed"),
            Some("completed") => Some("idle"),
            other => other,
        };
        self.apply(
            parent,
            SubagentChange { session: child, title: params["title"].as_str(), state, ..SubagentChange::default() },
        )
    }

    fn apply(&mut self, parent: &str, change: SubagentChange<'_>) -> Option<Subagent> {
        if change.session == Some(parent) {
            return None;
        }
        let key = change.call.map(|call| (parent.to_owned(), call.to_owned()));
        let by_session = change.session.and_then(|session| self.sessions.get(session).copied());
        let by_call = key.as_ref().and_then(|key| self.calls.get(key).copied());
        let index = match by_session.or(by_call) {
            Some(index) => index,
            None if self.subagents.len() < MAX_SUBAGENTS => {
                self.subagents.push(Subagent { parent: parent.to_owned(), ..Subagent::default() });
                self.subagents.len() - 1
            }
            None => return None,
        };
        let entry = &mut self.subagents[index];
        let before = entry.clone();
        if let Some(session) = change.session {
            entry.session = Some(session.to_owned());
            self.sessions.insert(session.to_owned(), index);
        }
        if let Some(key) = key {
            entry.call = Some(key.1.clone());
            self.calls.insert(key, index);
        }
        // Keep the first title: later ones say the same in other words.
        if let (true, Some(title)) = (entry.title.is_empty(), change.title) {
            entry.title = title.to_owned();
        }
        entry.cancel = change.cancel.unwrap_or(entry.cancel);
        if let Some(state) = change.state.filter(|_| change.call.is_none() || !self.state_reported.contains(&index)) {
            entry.state = state.to_owned();
            entry.stop = change.stop.map(str::to_owned);
            entry.error = change.error.map(str::to_owned);
        } else if entry.state.is_empty() {
            entry.state = "running".to_owned();
        }
        (*entry != before).then(|| entry.clone())
    }

    /// How deep below its root a session is.
    pub fn depth(&self, session: &str) -> usize {
        let mut session = session;
        for depth in 0..MAX_DEPTH {
            match self.sessions.get(session) {
                Some(index) => session = &self.subagents[*index].parent,
                None => return depth,
            }
        }
        MAX_DEPTH
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reported_by_the_protocol() {
        let mut tracker = SubagentTracker::default();
        let begins = json!({"sessionUpdate": "subagent_update", "sessionId": "c", "title": "Look", "state": {"state": "running"}});
        let subagent = tracker.update("p", &begins).unwrap();
        assert_eq!(
            (subagent.parent.as_str(), subagent.session.as_deref(), subagent.title.as_str()),
            ("p", Some("c"), "Look")
        );
        assert_eq!(tracker.update("p", &begins), None, "nothing new");
        let ends = json!({"sessionUpdate": "subagent_update", "sessionId": "c", "state": {"state": "idle"}});
        let subagent = tracker.update("p", &ends).unwrap();
        assert_eq!((subagent.state.as_str(), subagent.title.as_str()), ("idle", "Look"));
        let below = json!({"sessionUpdate": "subagent_update", "sessionId": "d"});
        assert_eq!(tracker.update("c", &below).unwrap().state, "running");
        assert_eq!((tracker.depth("p"), tracker.depth("c"), tracker.depth("d")), (0, 1, 2));
    }

    #[test]
    fn reported_by_the_call_that_waits() {
        let mut tracker = SubagentTracker::default();
        let call = |status: &str, more: Value| {
            let mut update = json!({"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": status,
                "title": "task", "rawInput": {"subagent_type": "general", "description": "Read it"}});
            update.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            update
        };
        assert_eq!(tracker.update("p", &call("pending", json!({}))), None);
        let subagent = tracker.update("p", &call("in_progress", json!({}))).unwrap();
        assert_eq!((subagent.session, subagent.title.as_str(), subagent.state.as_str()), (None, "Read it", "running"));
        let done = json!({"rawOutput": {"metadata": {"sessionId": "c", "parentSessionId": "p"}}});
        let subagent = tracker.update("p", &call("completed", done)).unwrap();
        assert_eq!((subagent.session.as_deref(), subagent.state.as_str()), (Some("c"), "idle"));
        assert_eq!(tracker.depth("c"), 1);
        let other = json!({"sessionUpdate": "tool_call", "toolCallId": "2", "status": "in_progress", "rawInput": {}});
        assert_eq!(tracker.update("p", &other), None);
    }

    #[test]
    fn several_reports_of_one_child() {
        let mut tracker = SubagentTracker::default();
        let child = json!({"rootSessionId": "p", "parentSessionId": "p", "childSessionId": "c", "title": "Look",
            "type": "status", "status": "running"});
        assert!(tracker.child_update(&child).is_some());
        let begins = json!({"sessionUpdate": "subagent_update", "sessionId": "c", "title": "Other words"});
        assert_eq!(tracker.update("p", &begins), None);
        let call = json!({"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed",
            "rawOutput": {"metadata": {"sessionId": "c"}}});
        let subagent = tracker.update("p", &call).unwrap();
        assert_eq!(
            (subagent.call.as_deref(), subagent.title.as_str(), subagent.state.as_str()),
            (Some("1"), "Look", "idle")
        );
        assert_eq!(tracker.subagents.len(), 1);
    }

    #[test]
    fn a_call_that_ends_early_does_not_end_its_subagent() {
        let mut tracker = SubagentTracker::default();
        let begins = json!({"sessionUpdate": "subagent_update", "sessionId": "c", "state": {"state": "running"},
            "capabilities": {"cancel": {}}});
        assert!(tracker.update("p", &begins).unwrap().cancel);
        let call = json!({"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed",
            "rawOutput": {"metadata": {"sessionId": "c"}}});
        let subagent = tracker.update("p", &call).unwrap();
        assert_eq!((subagent.call.as_deref(), subagent.state.as_str(), subagent.cancel), (Some("1"), "running", true));
        let failed = json!({"sessionUpdate": "subagent_update", "sessionId": "c", "capabilities": null,
            "state": {"state": "idle", "stopReason": "error", "error": {"code": 1, "message": "no key"}}});
        let subagent = tracker.update("p", &failed).unwrap();
        assert_eq!(
            (subagent.stop.as_deref(), subagent.error.as_deref(), subagent.cancel),
            (Some("error"), Some("no key"), false)
        );
    }

    #[test]
    fn a_session_is_not_its_own_subagent() {
        let mut tracker = SubagentTracker::default();
        assert_eq!(tracker.update("p", &json!({"sessionUpdate": "subagent_update", "sessionId": "p"})), None);
        assert_eq!(tracker.depth("p"), 0);
    }

    #[test]
    fn a_cycle_has_a_depth() {
        let mut tracker = SubagentTracker::default();
        for (parent, child) in [("a", "b"), ("b", "a")] {
            tracker.update(parent, &json!({"sessionUpdate": "subagent_update", "sessionId": child}));
        }
        assert_eq!(tracker.depth("a"), MAX_DEPTH);
    }
}
