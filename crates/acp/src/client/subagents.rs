//! Subagents of other agents, as they tell of them in three ways: `subagent_update` and the child's own updates (the
//! protocol), a call with a `subagent_type` whose output names the child's session (OpenCode, and others like it), and
//! OpenCode's `opencode/session/child_update`. An agent may use several at once: the child's session is what they share.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// Subagents that are remembered on one connection; further ones are not followed.
const MAX_SUBAGENTS: usize = 1000;
/// How deep below each other they can be.
const MAX_DEPTH: usize = 16;

/// What is known of a subagent.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Subagent {
    /// The session that it works for.
    pub parent: String,
    /// Its own session, once that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The call that started it, if it was told of by one.
    #[serde(rename = "toolCallId", skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// What it does.
    pub title: String,
    /// `running`, `idle`, `requires_action`, `failed`, or a word of the agent's own.
    pub state: String,
    /// Why it rests, if the agent says so.
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
pub(super) struct Family {
    known: Vec<Subagent>,
    sessions: HashMap<String, usize>,
    calls: HashMap<(String, String), usize>,
    /// Those whose state was told in the protocol's own way: the call that began one says nothing more about that, since
    /// it may end long before.
    told: HashSet<usize>,
}

/// What a message says of one.
#[derive(Debug, Default)]
struct News<'a> {
    session: Option<&'a str>,
    call: Option<&'a str>,
    title: Option<&'a str>,
    state: Option<&'a str>,
    stop: Option<&'a str>,
    error: Option<&'a str>,
    cancel: Option<bool>,
}

impl Family {
    /// What an update of a session says of a subagent, if that is new.
    pub fn update(&mut self, session: &str, update: &Value) -> Option<Subagent> {
        match update["sessionUpdate"].as_str()? {
            "subagent_update" => {
                let title = update["title"].as_str().or_else(|| update["description"].as_str());
                let child = Some(update["sessionId"].as_str()?);
                let known = child.and_then(|child| self.sessions.get(child)).map(|index| &self.known[*index]);
                if known.is_some_and(|known| known.parent != session) {
                    // Nobody else tells of it.
                    return None;
                }
                let state = &update["state"];
                let news = News {
                    session: child,
                    title,
                    state: state["state"].as_str(),
                    stop: state["stopReason"].as_str(),
                    error: state["error"]["message"].as_str(),
                    // What is left out stays as it was.
                    cancel: update.get("capabilities").map(|capabilities| capabilities["cancel"].is_object()),
                    call: None,
                };
                let known = self.learn(session, news);
                let index = child.and_then(|child| self.sessions.get(child)).filter(|_| state["state"].is_string());
                self.told.extend(index);
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
        // A call that is only announced has not started anybody yet.
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
        self.learn(session, News { session: child, call: Some(call), title, state, ..News::default() })
    }

    /// What OpenCode's `child_update` says of a subagent, if that is new.
    pub fn child_update(&mut self, params: &Value) -> Option<Subagent> {
        let parent = params["parentSessionId"].as_str().or_else(|| params["rootSessionId"].as_str())?;
        let child = Some(params["childSessionId"].as_str()?);
        let state = match params["status"].as_str() {
            Some("created") => Some("running"),
            Some("error") => Some("failed"),
            Some("completed") => Some("idle"),
            other => other,
        };
        self.learn(parent, News { session: child, title: params["title"].as_str(), state, ..News::default() })
    }

    fn learn(&mut self, parent: &str, news: News<'_>) -> Option<Subagent> {
        if news.session == Some(parent) {
            return None;
        }
        let key = news.call.map(|call| (parent.to_owned(), call.to_owned()));
        let by_session = news.session.and_then(|session| self.sessions.get(session).copied());
        let by_call = key.as_ref().and_then(|key| self.calls.get(key).copied());
        let index = match by_session.or(by_call) {
            Some(index) => index,
            None if self.known.len() < MAX_SUBAGENTS => {
                self.known.push(Subagent { parent: parent.to_owned(), ..Subagent::default() });
                self.known.len() - 1
            }
            None => return None,
        };
        let entry = &mut self.known[index];
        let before = entry.clone();
        if let Some(session) = news.session {
            entry.session = Some(session.to_owned());
            self.sessions.insert(session.to_owned(), index);
        }
        if let Some(key) = key {
            entry.call = Some(key.1.clone());
            self.calls.insert(key, index);
        }
        // What it does was told first; what calls it later is the same in other words.
        if let (true, Some(title)) = (entry.title.is_empty(), news.title) {
            entry.title = title.to_owned();
        }
        entry.cancel = news.cancel.unwrap_or(entry.cancel);
        if let Some(state) = news.state.filter(|_| news.call.is_none() || !self.told.contains(&index)) {
            entry.state = state.to_owned();
            entry.stop = news.stop.map(str::to_owned);
            entry.error = news.error.map(str::to_owned);
        } else if entry.state.is_empty() {
            entry.state = "running".to_owned();
        }
        (*entry != before).then(|| entry.clone())
    }

    /// How deep a session is.
    pub fn depth(&self, session: &str) -> usize {
        let mut session = session;
        for depth in 0..MAX_DEPTH {
            match self.sessions.get(session) {
                Some(index) => session = &self.known[*index].parent,
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
    fn the_protocols_own_way() {
        let mut family = Family::default();
        let begins = json!({"sessionUpdate": "subagent_update", "sessionId": "c", "title": "Look", "state": {"state": "running"}});
        let news = family.update("p", &begins).unwrap();
        assert_eq!((news.parent.as_str(), news.session.as_deref(), news.title.as_str()), ("p", Some("c"), "Look"));
        assert_eq!(family.update("p", &begins), None, "nothing new");
        let ends = json!({"sessionUpdate": "subagent_update", "sessionId": "c", "state": {"state": "idle"}});
        let news = family.update("p", &ends).unwrap();
        assert_eq!((news.state.as_str(), news.title.as_str()), ("idle", "Look"));
        let below = json!({"sessionUpdate": "subagent_update", "sessionId": "d"});
        assert_eq!(family.update("c", &below).unwrap().state, "running");
        assert_eq!((family.depth("p"), family.depth("c"), family.depth("d")), (0, 1, 2));
    }

    #[test]
    fn by_the_call_that_waits_for_it() {
        let mut family = Family::default();
        let call = |status: &str, more: Value| {
            let mut update = json!({"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": status,
                "title": "task", "rawInput": {"subagent_type": "general", "description": "Read it"}});
            update.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            update
        };
        assert_eq!(family.update("p", &call("pending", json!({}))), None);
        let news = family.update("p", &call("in_progress", json!({}))).unwrap();
        assert_eq!((news.session, news.title.as_str(), news.state.as_str()), (None, "Read it", "running"));
        let done = json!({"rawOutput": {"metadata": {"sessionId": "c", "parentSessionId": "p"}}});
        let news = family.update("p", &call("completed", done)).unwrap();
        assert_eq!((news.session.as_deref(), news.state.as_str()), (Some("c"), "idle"));
        assert_eq!(family.depth("c"), 1);
        let other = json!({"sessionUpdate": "tool_call", "toolCallId": "2", "status": "in_progress", "rawInput": {}});
        assert_eq!(family.update("p", &other), None);
    }

    #[test]
    fn several_ways_tell_of_one_child() {
        let mut family = Family::default();
        let child = json!({"rootSessionId": "p", "parentSessionId": "p", "childSessionId": "c", "title": "Look",
            "type": "status", "status": "running"});
        assert!(family.child_update(&child).is_some());
        let begins = json!({"sessionUpdate": "subagent_update", "sessionId": "c", "title": "Other words"});
        assert_eq!(family.update("p", &begins), None);
        let call = json!({"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed",
            "rawOutput": {"metadata": {"sessionId": "c"}}});
        let news = family.update("p", &call).unwrap();
        assert_eq!((news.call.as_deref(), news.title.as_str(), news.state.as_str()), (Some("1"), "Look", "idle"));
        assert_eq!(family.known.len(), 1);
    }

    #[test]
    fn a_call_that_ends_early_does_not_end_what_it_began() {
        let mut family = Family::default();
        let begins = json!({"sessionUpdate": "subagent_update", "sessionId": "c", "state": {"state": "running"},
            "capabilities": {"cancel": {}}});
        assert!(family.update("p", &begins).unwrap().cancel);
        let call = json!({"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed",
            "rawOutput": {"metadata": {"sessionId": "c"}}});
        let news = family.update("p", &call).unwrap();
        assert_eq!((news.call.as_deref(), news.state.as_str(), news.cancel), (Some("1"), "running", true));
        let failed = json!({"sessionUpdate": "subagent_update", "sessionId": "c", "capabilities": null,
            "state": {"state": "idle", "stopReason": "error", "error": {"code": 1, "message": "no key"}}});
        let news = family.update("p", &failed).unwrap();
        assert_eq!((news.stop.as_deref(), news.error.as_deref(), news.cancel), (Some("error"), Some("no key"), false));
    }

    #[test]
    fn nobody_is_its_own_subagent() {
        let mut family = Family::default();
        assert_eq!(family.update("p", &json!({"sessionUpdate": "subagent_update", "sessionId": "p"})), None);
        assert_eq!(family.depth("p"), 0);
    }

    #[test]
    fn a_circle_ends() {
        let mut family = Family::default();
        for (parent, child) in [("a", "b"), ("b", "a")] {
            family.update(parent, &json!({"sessionUpdate": "subagent_update", "sessionId": child}));
        }
        assert_eq!(family.depth("a"), MAX_DEPTH);
    }
}
