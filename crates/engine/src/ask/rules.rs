//! The rules that decide about tool calls.
//!
//! There are several [levels](Level). Each is evaluated on its own, and the strictest verdict wins:
//! * the agent's and the session's current rules;
//! * the rules in force when a prompt that is still in the inbox was accepted. They are stored with the prompt, so that
//!   neither another process nor a restart applies looser ones;
//! * the [floors](Floor) of a child session: the rules of every caller above it, both at the time of the call and now.
//!   They are stored with the session, together with whether it is careful.
//!
//! A stored level that cannot be read counts as a level without rules, which asks for everything.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};

use api::{Action, Rule, Ruleset, Session, SessionId};
use serde::{Deserialize, Serialize};
use store::{Batch, SharedText, Store, StoreError};
use tools::Need;

use crate::ask::permission;
use crate::project::instance::Instance;
use crate::subagent::control;
use crate::turn::Turn;
use crate::{Inner, lock};

/// How many values a [`FifoCache`] keeps: compiled rules per directory, and parsed constraints of sessions.
const CACHE_MAX: usize = 32;
/// The maximum number of floors of one session.
const FLOORS_MAX: usize = 128;
/// Denials of built-in agents that exist because of how clients and tasks work, not for protection. Floors leave them
/// out.
const TECHNICAL: [&str; 4] = ["question", "plan_enter", "plan_exit", "todowrite"];
/// The same for denials that a subagent's session is created with: the depth limit holds without them.
const TECHNICAL_BELOW: [&str; 2] = ["task", "todowrite"];

/// Rules that are evaluated together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Level {
    /// The agent's rules, then the session's. The last match wins.
    rules: Ruleset,
    /// How many of them are the agent's. The session's rules lift none of the agent's denials.
    agent: usize,
    /// How many of the agent's rules are built in.
    builtin: usize,
    /// Rules that only make things stricter.
    tighten: Ruleset,
}

impl Level {
    /// The rules of an agent, the first `builtin` of which are built in, and of a session.
    pub(crate) fn new(agent: &[Rule], builtin: usize, session: &[Rule], tighten: &[Rule]) -> Self {
        Self {
            rules: agent.iter().chain(session).cloned().collect(),
            agent: agent.len(),
            builtin,
            tighten: tighten.to_vec(),
        }
    }

    fn agent_rules(&self) -> &[Rule] {
        &self.rules[..self.agent.min(self.rules.len())]
    }

    fn session_rules(&self) -> &[Rule] {
        &self.rules[self.agent.min(self.rules.len())..]
    }

    fn judge(&self, approved: &[Rule], need: &Need) -> Action {
        let denied = || permission::decide(self.agent_rules(), &[], &[], need) == Action::Deny;
        match permission::decide(&self.rules, &self.tighten, approved, need) {
            Action::Allow | Action::Ask if !self.session_rules().is_empty() && denied() => Action::Deny,
            action => action,
        }
    }

    fn refuses(&self, tool: &str) -> bool {
        let by_agent = || !self.session_rules().is_empty() && permission::refuses_tool(self.agent_rules(), tool);
        permission::refuses_tool(&self.rules, tool) || by_agent()
    }

    /// Only the rules about one permission.
    fn only_about(&self, permission: &str) -> Self {
        let of = |rules: &[Rule]| -> Ruleset {
            rules.iter().filter(|rule| api::wildcard(&rule.permission, permission)).cloned().collect()
        };
        let agent = of(self.agent_rules());
        Self {
            agent: agent.len(),
            builtin: 0,
            rules: agent.into_iter().chain(of(self.session_rules())).collect(),
            tighten: of(&self.tighten),
        }
    }

    /// Which files may be read without asking.
    pub(crate) fn readable_files(&self) -> tools::ReadPolicy {
        readable_files([self], &[])
    }

    fn denies(&self, permission: &str, pattern: &str) -> bool {
        [&self.rules[..], self.agent_rules()]
            .iter()
            .any(|rules| api::evaluate(*rules, permission, pattern) == Action::Deny)
    }

    /// The level as a floor for child sessions: without denials that have only technical reasons. `subagent`: whether
    /// this session is itself a subagent's.
    fn as_floor(&self, subagent: bool) -> Self {
        let agent = self.agent_rules();
        let (builtin, configured) = agent.split_at(self.builtin.min(agent.len()));
        let denies = |rule: &Rule, what: &[&str]| {
            rule.action == Action::Deny && rule.pattern == "*" && what.contains(&rule.permission.as_str())
        };
        let builtin: Ruleset = builtin.iter().filter(|rule| !denies(rule, &TECHNICAL)).cloned().collect();
        let session = self.session_rules().iter().filter(|rule| !(subagent && denies(rule, &TECHNICAL_BELOW)));
        Self {
            builtin: builtin.len(),
            agent: builtin.len() + configured.len(),
            rules: builtin.iter().chain(configured).chain(session).cloned().collect(),
            tighten: self.tighten.clone(),
        }
    }
}

/// Which files may be read without asking at every one of these levels, by the patterns rules know them by. For tools
/// that look at many files: the relevant rules are selected once.
fn readable_files<'a>(levels: impl IntoIterator<Item = &'a Level>, approved: &[Rule]) -> tools::ReadPolicy {
    let levels: Vec<Level> = levels.into_iter().map(|level| level.only_about(permission::READ)).collect();
    let approved = approved.to_vec();
    tools::ReadPolicy::new(move |pattern| {
        let need = Need::new(permission::READ, pattern);
        !levels.is_empty() && levels.iter().all(|level| level.judge(&approved, &need) == Action::Allow)
    })
}

/// The rules of an agent in sessions with the same session rules. Built once, because every prompt and step needs them.
#[derive(Debug)]
pub(crate) struct CompiledRules {
    agent: String,
    careful: bool,
    session: Ruleset,
    level: Arc<Level>,
    /// The level as a floor for child sessions: of a session that is not a subagent's, and of one that is.
    floors: [OnceLock<Arc<Level>>; 2],
    /// The JSON stored with a prompt that is accepted under these rules.
    accepted: SharedText,
}

impl CompiledRules {
    fn new(agent: &str, careful: bool, session: &[Rule], level: Level) -> Self {
        let level = Arc::new(level);
        let accepted = AcceptedRules { agent: agent.to_owned(), careful, level: level.clone() };
        // Strings, numbers and lists always serialize.
        let accepted = SharedText::new(serde_json::to_string(&accepted).unwrap_or_default());
        Self {
            agent: agent.to_owned(),
            careful,
            session: session.to_vec(),
            level,
            floors: Default::default(),
            accepted,
        }
    }

    /// The JSON stored with a prompt that is accepted under these rules.
    pub(crate) fn accepted(&self) -> &SharedText {
        &self.accepted
    }

    /// The caller's rules as a floor for child sessions. `subagent`: whether the caller is itself a subagent.
    fn floor(&self, subagent: bool) -> Arc<Level> {
        self.floors[usize::from(subagent)].get_or_init(|| Arc::new(self.level.as_floor(subagent))).clone()
    }
}

/// The values made last, up to [`CACHE_MAX`]; using a value does not keep it longer. Lookups compare every entry, which is
/// cheap because there are few.
#[derive(Debug)]
pub(crate) struct FifoCache<T>(Mutex<VecDeque<Arc<T>>>);

impl<T> Default for FifoCache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> FifoCache<T> {
    /// The value that matches.
    fn find(&self, matches: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        lock(&self.0).iter().find(|entry| matches(entry)).cloned()
    }

    /// Adds a value, which replaces the oldest if the cache is full.
    fn add(&self, value: T) -> Arc<T> {
        let value = Arc::new(value);
        let mut entries = lock(&self.0);
        entries.truncate(CACHE_MAX - 1);
        entries.push_front(value.clone());
        value
    }
}

impl FifoCache<CompiledRules> {
    /// The rules of an agent in a session with these rules. `make` builds them on a miss.
    pub(crate) fn get(
        &self,
        agent: &str,
        careful: bool,
        session: &[Rule],
        make: impl FnOnce() -> Level,
    ) -> Arc<CompiledRules> {
        let matches = |one: &CompiledRules| one.agent == agent && one.careful == careful && one.session == session;
        self.find(matches).unwrap_or_else(|| self.add(CompiledRules::new(agent, careful, session, make())))
    }
}

/// The rules of a caller. They bind the session that works for it and everything below.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Floor {
    /// The calling session.
    session: SessionId,
    /// Its agent.
    agent: String,
    careful: bool,
    /// Its rules at the time of the call.
    level: Arc<Level>,
}

/// The durable constraints on a session, besides its own rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Constraints {
    /// Whether edits and commands need approval unless the configuration says otherwise.
    pub(crate) careful: bool,
    floors: Vec<Floor>,
    /// Set if the stored constraints cannot be read.
    #[serde(skip)]
    is_unreadable: bool,
}

impl Constraints {
    /// The constraints of a root session.
    pub(crate) fn new(careful: bool) -> Self {
        Self { careful, ..Self::default() }
    }

    /// Merges further constraints. Returns false if there are too many, or if either side is unreadable.
    #[must_use]
    pub(crate) fn add(&mut self, other: &Self) -> bool {
        self.careful |= other.careful;
        other.floors.iter().for_each(|floor| self.add_floor(floor.clone()));
        self.floors.len() <= FLOORS_MAX && !self.is_unreadable && !other.is_unreadable
    }

    fn add_floor(&mut self, floor: Floor) {
        if !self.floors.contains(&floor) {
            self.floors.push(floor);
        }
    }

    /// Stores the constraints of a session.
    pub(crate) fn put(&self, batch: &mut Batch, session: &SessionId) {
        if *self != Self::default() {
            batch.session_data(session, &SharedText::new(serde_json::json!(self).to_string()));
        }
    }
}

/// The rules in force when a prompt was accepted, stored with the prompt while it waits.
#[derive(Debug, Serialize, Deserialize)]
struct AcceptedRules {
    agent: String,
    careful: bool,
    level: Arc<Level>,
}

impl AcceptedRules {
    /// Reads what an inbox row refers to by its hash. A row of an older version holds the JSON itself. Returns `None` if it
    /// cannot be read.
    fn load(store: &Store, data: &str) -> Result<Option<Self>, StoreError> {
        let json = if data.starts_with('{') { Some(data.to_owned()) } else { store.shared(data)? };
        Ok(json.and_then(|json| serde_json::from_str(&json).ok()))
    }
}

/// The effective rules for the calls of one agent in one session. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Rules(Arc<EffectiveRules>);

#[derive(Debug)]
struct EffectiveRules {
    session: SessionId,
    /// Whether the session is a subagent's.
    subagent: bool,
    agent: String,
    careful: bool,
    /// The session's own levels, then those of its floors.
    levels: Vec<Arc<Level>>,
    /// How many of the levels are the session's own.
    own: usize,
    /// The constraints on the session itself.
    constraints: Arc<Constraints>,
    /// The constraints on a new session that works for this one.
    for_children: OnceLock<Option<Arc<StoredConstraints>>>,
}

impl Rules {
    /// What the rules say about a need. `approved` are the user's `always` replies.
    pub(crate) fn judge(&self, approved: &[Rule], need: &Need) -> Action {
        self.0.levels.iter().map(|level| level.judge(approved, need)).max().unwrap_or(Action::Ask)
    }

    /// Which files may be read without asking.
    pub(crate) fn readable_files(&self, approved: &[Rule]) -> tools::ReadPolicy {
        readable_files(self.0.levels.iter().map(Arc::as_ref), approved)
    }

    /// Whether a tool, or the tool that does its work, is refused whatever its arguments.
    pub(crate) fn refuses_tool(&self, tool: &dyn tools::Tool) -> bool {
        [Some(tool.name()), tool.backing_tool()].into_iter().flatten().any(|name| self.refuses(name))
    }

    /// Whether a tool is refused whatever its arguments.
    pub(crate) fn refuses(&self, tool: &str) -> bool {
        self.0.levels.iter().any(|level| level.refuses(tool))
    }

    /// Whether a permission is denied for this pattern.
    pub(crate) fn denies(&self, permission: &str, pattern: &str) -> bool {
        self.0.levels.iter().any(|level| level.denies(permission, pattern))
    }

    /// The rules about a need at the first level that denies it.
    pub(crate) fn denying_rules(&self, need: &Need) -> Vec<&Rule> {
        let level = self.0.levels.iter().find(|level| level.judge(&[], need) == Action::Deny);
        let about = |rule: &&Rule| api::wildcard(&rule.permission, &need.permission);
        level.into_iter().flat_map(|level| level.rules.iter().chain(&level.tighten)).filter(about).collect()
    }

    /// Whether edits and commands need approval unless the configuration says otherwise.
    pub(crate) fn is_careful(&self) -> bool {
        self.0.careful
    }

    /// The constraints on a session that works for this one, merged with those it already has. Returns `None` if there
    /// are too many.
    pub(crate) fn child_constraints(&self, before: Option<&Constraints>) -> Option<Arc<StoredConstraints>> {
        match before {
            Some(before) => StoredConstraints::new(before.clone(), &self.constraints_below()).map(Arc::new),
            // Cached, because many subagents may be started at once.
            None => {
                let made = || StoredConstraints::new(Constraints::default(), &self.constraints_below()).map(Arc::new);
                self.0.for_children.get_or_init(made).clone()
            }
        }
    }

    fn constraints_below(&self) -> Constraints {
        let EffectiveRules { session, subagent, agent, careful, levels, own, constraints, .. } = &*self.0;
        let mut below = Constraints { careful: *careful, ..Constraints::clone(constraints) };
        for level in &levels[..*own] {
            let (session, agent) = (session.clone(), agent.clone());
            let level = Arc::new(level.as_floor(*subagent));
            below.add_floor(Floor { session, agent, careful: *careful, level });
        }
        below
    }

    /// The combination of two rule sets: anything that either forbids is forbidden.
    pub(crate) fn combined_with(&self, other: &Self) -> Self {
        let EffectiveRules { session, subagent, agent, careful, levels, own, constraints, .. } = &*self.0;
        let mut levels = levels.clone();
        other.0.levels.iter().for_each(|level| add_level(&mut levels, level.clone()));
        Self(Arc::new(EffectiveRules {
            session: session.clone(),
            subagent: *subagent,
            agent: agent.clone(),
            careful: *careful || other.0.careful,
            levels,
            own: *own,
            constraints: constraints.clone(),
            for_children: OnceLock::new(),
        }))
    }
}

/// Adds a level unless it is already there: equal levels give equal verdicts.
fn add_level(levels: &mut Vec<Arc<Level>>, level: Arc<Level>) {
    if !levels.contains(&level) {
        levels.push(level);
    }
}

/// The constraints on a child session, in stored form.
#[derive(Debug)]
pub(crate) struct StoredConstraints {
    pub(crate) constraints: Arc<Constraints>,
    json: SharedText,
}

impl StoredConstraints {
    /// Returns `None` if there are too many constraints, or if either side is unreadable.
    fn new(mut constraints: Constraints, other: &Constraints) -> Option<Self> {
        let json = constraints.add(other).then(|| serde_json::to_string(&constraints).ok())??;
        Some(Self { constraints: Arc::new(constraints), json: SharedText::new(json) })
    }

    /// Stores the constraints of a session.
    pub(crate) fn put(&self, batch: &mut Batch, session: &SessionId) {
        batch.session_data(session, &self.json);
    }
}

/// Parsed constraints, by the data of their session: all sessions that work for one caller have the same.
#[derive(Debug)]
pub(crate) struct ParsedConstraints {
    data: String,
    constraints: Arc<Constraints>,
}

impl FifoCache<ParsedConstraints> {
    /// The constraints whose hash a session's data is. Older databases have the constraints themselves there.
    fn parse(&self, store: &Store, data: String) -> Result<Arc<Constraints>, StoreError> {
        if let Some(found) = self.find(|one| one.data == data) {
            return Ok(found.constraints.clone());
        }
        let shared = if data.starts_with('{') { None } else { Some(store.shared(&data)?.unwrap_or_default()) };
        let unreadable = |_| Constraints { careful: true, floors: Vec::new(), is_unreadable: true };
        let parsed = serde_json::from_str(shared.as_deref().unwrap_or(&data)).unwrap_or_else(unreadable);
        Ok(self.add(ParsedConstraints { data, constraints: Arc::new(parsed) }).constraints.clone())
    }
}

impl Inner {
    /// The constraints on a session besides its own rules. A session older than this record inherits them from the
    /// sessions above it.
    pub(crate) fn constraints(&self, store: &Store, session: &Session) -> Result<Arc<Constraints>, StoreError> {
        match (self.stored_constraints(store, &session.id)?, &session.parent_id) {
            (Some(constraints), _) => Ok(constraints),
            (None, Some(parent)) => Ok(Arc::new(self.constraints_below(store, parent)?)),
            (None, None) => Ok(Arc::default()),
        }
    }

    /// The stored constraints of a session.
    pub(crate) fn stored_constraints(
        &self,
        store: &Store,
        session: &SessionId,
    ) -> Result<Option<Arc<Constraints>>, StoreError> {
        let data = store.session_data(session)?;
        data.map(|data| self.asks.constraints.parse(store, data)).transpose()
    }

    /// The constraints on a session that a client creates below `parent`, without a call.
    pub(crate) fn constraints_below(&self, store: &Store, parent: &SessionId) -> Result<Constraints, StoreError> {
        let mut all = Constraints::default();
        for above in control::lineage(store, parent)? {
            let recorded = self.stored_constraints(store, &above.id)?.unwrap_or_default();
            let careful = self.settings.careful || recorded.careful;
            // The caller that creates the session checks whether there is room.
            let _ = all.add(&recorded);
            all.is_unreadable |= recorded.is_unreadable;
            let instance = self.instance(above.directory.as_ref());
            let agent = above.agent.clone().unwrap_or_else(|| instance.default_agent());
            let compiled = instance.rules_of(&agent, careful, above.permission.as_deref().unwrap_or_default());
            let level = compiled.floor(above.parent_id.is_some());
            all.add_floor(Floor { session: above.id, agent, careful, level });
        }
        Ok(all)
    }

    /// The rules for the calls of an agent in a session. `store` must be one snapshot.
    fn effective_rules(
        &self,
        store: &Store,
        instance: &Instance,
        session: &Session,
        agent: &str,
    ) -> Result<Rules, StoreError> {
        let constraints = self.constraints(store, session)?;
        let inbox = store.inbox(&session.id)?;
        let own = session.permission.as_deref().unwrap_or_default();
        let careful = self.settings.careful || constraints.careful;
        // Nearly always the waiting prompts were accepted under the current rules.
        let current = instance.rules_of(agent, careful, own);
        let stored = inbox.iter().filter_map(|row| row.data.as_deref());
        let (same, others): (Vec<&str>, Vec<&str>) = stored.partition(|data| *data == current.accepted.hash());
        let others: Vec<Option<AcceptedRules>> =
            others.iter().map(|data| AcceptedRules::load(store, data)).collect::<Result<_, StoreError>>()?;
        let asks_first = |accepted: &Option<AcceptedRules>| accepted.as_ref().is_none_or(|accepted| accepted.careful);
        let careful = careful || others.iter().any(asks_first);
        let mut levels = vec![instance.rules_of(agent, careful, own).level.clone()];
        if !same.is_empty() {
            add_level(&mut levels, current.level.clone());
        }
        for accepted in others {
            match accepted {
                // An agent's rules bind only its own calls, and another agent may have been chosen since.
                Some(accepted) if accepted.agent != agent => {}
                Some(accepted) => add_level(&mut levels, accepted.level),
                None => add_level(&mut levels, Arc::default()),
            }
        }
        let own = levels.len();
        if constraints.is_unreadable {
            add_level(&mut levels, Arc::default());
        }
        for floor in &constraints.floors {
            add_level(&mut levels, floor.level.clone());
            if let Some(now) = self.current_floor(store, instance, floor)? {
                add_level(&mut levels, now);
            }
        }
        let (session, subagent, agent) = (session.id.clone(), session.parent_id.is_some(), agent.to_owned());
        let for_children = OnceLock::new();
        Ok(Rules(Arc::new(EffectiveRules {
            session,
            subagent,
            agent,
            careful,
            levels,
            own,
            constraints,
            for_children,
        })))
    }

    /// A floor under the caller's current configuration and session, if its agent still exists.
    fn current_floor(&self, store: &Store, own: &Instance, floor: &Floor) -> Result<Option<Arc<Level>>, StoreError> {
        let caller = store.session(&floor.session)?;
        let known = caller.as_ref().map(|caller| self.instance(caller.directory.as_ref()));
        let instance = known.as_deref().unwrap_or(own);
        if !instance.agents.contains_key(&floor.agent) {
            return Ok(None);
        }
        let (rules, subagent) = match &caller {
            Some(caller) => (caller.permission.as_deref().unwrap_or_default(), caller.parent_id.is_some()),
            None => (floor.level.session_rules(), false),
        };
        Ok(Some(instance.rules_of(&floor.agent, floor.careful, rules).floor(subagent)))
    }
}

impl Turn {
    /// The current rules for the calls of an agent in this turn's session.
    pub(crate) async fn rules(&self, agent: &str) -> Result<Rules, StoreError> {
        let mut retry = self.write_retry();
        loop {
            let rules = self.store().snapshot(|store| {
                let session = self.session(store)?;
                self.rules_in(store, &session, agent)
            });
            if !retry.should_retry(&rules).await {
                return rules;
            }
        }
    }

    /// Like [`rules`](Self::rules), from a snapshot of the store.
    pub(crate) fn rules_in(&self, store: &Store, session: &Session, agent: &str) -> Result<Rules, StoreError> {
        self.inner.effective_rules(store, &self.instance, session, agent)
    }
}

#[cfg(test)]
#[path = "rules/tests.rs"]
mod tests;
