//! A change to a session's row, as data: any back end can apply it inside its transaction, as often as it retries.

use api::{JsonMap, Rule, Ruleset, Session, SessionModel, Timestamp, Tokens, Usd};

/// What changes in a session; the default changes nothing. Sums are added, and lists are appended to, because several
/// tasks and processes change a session at the same time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionChange {
    /// A new title.
    pub title: Option<String>,
    /// A new title, unless somebody else has changed it.
    pub retitle: Option<Retitle>,
    /// The agent of the next prompt that names none.
    pub agent: Option<String>,
    /// Its model.
    pub model: Option<SessionModel>,
    /// Metadata that replaces all there is.
    pub metadata: Option<JsonMap>,
    /// Metadata that is added, or replaces the values of the same keys.
    pub added_metadata: Option<JsonMap>,
    /// Rules that are appended. Later rules win, so nobody needs to know the existing ones.
    pub added_rules: Option<Ruleset>,
    /// Rules that are put in force or lifted, after the appended ones.
    pub rule_switches: Vec<RuleSwitch>,
    /// When it was archived, or `Some(None)` to unarchive it.
    pub archived: Option<Option<Timestamp>>,
    /// Cost to add.
    pub cost: Option<Usd>,
    /// Tokens to add.
    pub tokens: Option<Tokens>,
    /// Where it works from now on.
    pub place: Option<SessionPlace>,
    /// Whether this is activity, which lists of sessions are ordered by.
    pub is_activity: bool,
}

/// A title that replaces a known one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retitle {
    /// The title that the session must still have.
    pub from: String,
    /// The new one.
    pub to: String,
}

/// A rule that is in force once, at the end, or not at all.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleSwitch {
    /// The rule.
    pub rule: Rule,
    /// Whether it is in force.
    pub is_on: bool,
}

impl RuleSwitch {
    /// Puts the rule in force, or lifts it.
    pub fn apply(&self, rules: &mut Option<Ruleset>) {
        let rules = rules.get_or_insert_default();
        rules.retain(|rule| *rule != self.rule);
        if self.is_on {
            rules.push(self.rule.clone());
        }
    }
}

/// Where a session works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPlace {
    /// The absolute directory.
    pub directory: String,
    /// The directory relative to the root of its project.
    pub path: String,
    /// The workspace, if it is part of one.
    pub workspace: Option<String>,
}

impl SessionChange {
    /// Usage to add to what the session shows.
    pub fn usage(cost: Usd, tokens: Tokens) -> Self {
        Self { cost: Some(cost), tokens: Some(tokens), ..Self::default() }
    }

    /// Applies the change. `now` is the time of the activity.
    pub fn apply(&self, session: &mut Session, now: Timestamp) {
        self.apply_description(session);
        if let Some(rules) = &self.added_rules {
            session.permission.get_or_insert_default().extend(rules.iter().cloned());
        }
        for switch in &self.rule_switches {
            switch.apply(&mut session.permission);
        }
        self.apply_usage(session);
        if let Some(archived) = self.archived {
            session.time.archived = archived;
        }
        if let Some(SessionPlace { directory, path, workspace }) = &self.place {
            session.directory.clone_from(directory);
            session.path = Some(path.clone());
            session.workspace_id.clone_from(workspace);
        }
        if self.is_activity {
            session.time.updated = now;
        }
    }

    fn apply_description(&self, session: &mut Session) {
        if let Some(title) = &self.title {
            session.title.clone_from(title);
        }
        if let Some(Retitle { from, to }) = &self.retitle
            && session.title == *from
        {
            session.title.clone_from(to);
        }
        if self.agent.is_some() {
            session.agent.clone_from(&self.agent);
        }
        if self.model.is_some() {
            session.model.clone_from(&self.model);
        }
        if self.metadata.is_some() {
            session.metadata.clone_from(&self.metadata);
        }
        if let Some(added) = &self.added_metadata {
            let added = added.iter().map(|(key, value)| (key.clone(), value.clone()));
            session.metadata.get_or_insert_default().extend(added);
        }
    }

    fn apply_usage(&self, session: &mut Session) {
        if let Some(cost) = self.cost {
            *session.cost.get_or_insert_default() += cost;
        }
        if let Some(tokens) = &self.tokens {
            let sum = session.tokens.get_or_insert_default();
            sum.input += tokens.input;
            sum.output += tokens.output;
            sum.reasoning += tokens.reasoning;
            sum.cache.read += tokens.cache.read;
            sum.cache.write += tokens.cache.write;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{Action, TokensCache};
    use serde_json::json;

    fn session() -> Session {
        serde_json::from_value(json!({
            "id": api::SessionId::new(), "slug": "calm-fox", "projectID": "project", "directory": "/repo",
            "title": "placeholder", "version": "1", "time": {"created": 1, "updated": 2}, "unknown": {"kept": true},
        }))
        .unwrap()
    }

    fn changed(before: &Session, change: &SessionChange) -> Session {
        let mut session = before.clone();
        change.apply(&mut session, 9);
        session
    }

    #[test]
    fn nothing_changes_by_default() {
        let before = session();
        assert_eq!(changed(&before, &SessionChange::default()), before);
    }

    #[test]
    fn a_title_replaces_only_the_one_it_was_made_for() {
        let retitle = Retitle { from: "placeholder".into(), to: "made".into() };
        let change = SessionChange { retitle: Some(retitle), ..SessionChange::default() };
        let once = changed(&session(), &change);
        assert_eq!((once.title.as_str(), once.time.updated), ("made", 2));
        let renamed = changed(&once, &SessionChange { title: Some("mine".into()), ..SessionChange::default() });
        assert_eq!(changed(&renamed, &change).title, "mine");
    }

    #[test]
    fn usage_is_added() {
        let tokens =
            Tokens { input: 1, output: 2, reasoning: 3, cache: TokensCache { read: 4, write: 5 }, ..Tokens::default() };
        let change = SessionChange { is_activity: true, ..SessionChange::usage(Usd(0.5), tokens) };
        let twice = changed(&changed(&session(), &change), &change);
        let sum = twice.tokens.unwrap();
        assert_eq!((sum.input, sum.output, sum.reasoning, sum.cache.read, sum.cache.write), (2, 4, 6, 8, 10));
        assert_eq!((twice.cost, twice.time.updated), (Some(Usd(1.0)), 9));
        // Cost alone leaves the tokens unknown.
        let cost = SessionChange { cost: Some(Usd(0.5)), ..SessionChange::default() };
        assert_eq!(changed(&session(), &cost).tokens, None);
    }

    #[test]
    fn rules_are_appended_and_switched() {
        let off = Rule::new("bash", "*", Action::Deny);
        let own = Rule::new("edit", "a", Action::Allow);
        let switch = |is_on| SessionChange {
            rule_switches: vec![RuleSwitch { rule: off.clone(), is_on }],
            ..Default::default()
        };
        let append = SessionChange { added_rules: Some(vec![own.clone()]), ..SessionChange::default() };
        let on = changed(&changed(&changed(&session(), &switch(true)), &append), &switch(true));
        assert_eq!(on.permission, Some(vec![own.clone(), off.clone()]), "once, and last");
        assert_eq!(changed(&on, &switch(false)).permission, Some(vec![own]));
        assert_eq!(changed(&session(), &switch(false)).permission, Some(Vec::new()));
        let none = SessionChange { added_rules: Some(Vec::new()), ..SessionChange::default() };
        assert_eq!(changed(&session(), &none).permission, Some(Vec::new()));
    }

    #[test]
    fn metadata_is_replaced_or_added() {
        let map = |value: api::Json| value.as_object().cloned();
        let change = SessionChange { metadata: map(json!({"a": 1, "b": 2})), ..SessionChange::default() };
        let replaced = changed(&session(), &change);
        let change = SessionChange { added_metadata: map(json!({"b": 3, "c": 4})), ..SessionChange::default() };
        assert_eq!(changed(&replaced, &change).metadata, map(json!({"a": 1, "b": 3, "c": 4})));
        assert_eq!(changed(&session(), &change).metadata, map(json!({"b": 3, "c": 4})));
    }

    #[test]
    fn a_session_is_archived_moved_and_given_to_an_agent() {
        let model = SessionModel { id: "m".into(), provider_id: "p".into(), variant: None };
        let place = SessionPlace { directory: "/repo/a".into(), path: "a".into(), workspace: Some("wrk_1".into()) };
        let change = SessionChange {
            archived: Some(Some(7)),
            agent: Some("plan".into()),
            model: Some(model.clone()),
            place: Some(place),
            ..SessionChange::default()
        };
        let after = changed(&session(), &change);
        assert_eq!(
            (after.time.archived, after.agent.as_deref(), after.model.as_ref()),
            (Some(7), Some("plan"), Some(&model))
        );
        assert_eq!((after.directory.as_str(), after.path.as_deref()), ("/repo/a", Some("a")));
        assert_eq!((after.workspace_id.as_deref(), after.time.updated), (Some("wrk_1"), 2));
        let change = SessionChange {
            archived: Some(None),
            place: Some(SessionPlace { directory: "/repo".into(), path: String::new(), workspace: None }),
            ..SessionChange::default()
        };
        let back = changed(&after, &change);
        assert_eq!((back.time.archived, back.workspace_id, back.path.as_deref()), (None, None, Some("")));
        assert_eq!(back.agent.as_deref(), Some("plan"));
        assert_eq!(back.extra, session().extra, "unknown fields are kept");
    }
}
