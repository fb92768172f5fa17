//! The rules that calls are judged by.
//!
//! There are several [levels](Level), each judged by itself, and the strictest verdict counts:
//! * the agent's and the session's rules as they are now;
//! * those that were in force when a prompt that still waits was accepted. They are kept with the prompt, so that no other
//!   process and no restart decides by looser ones;
//! * the [floors](Floor) of a session below another one: the rules of every caller above it, as they were when it called and as
//!   they are now. They are kept with the session, and so is whether it is careful.
//!
//! What is stored and cannot be read counts as a level without a rule, which asks for everything.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};

use api::{Action, Rule, Ruleset, Session, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use store::{Batch, Store, StoreError};
use tools::Need;

use crate::ask::permission;
use crate::project::instance::Instance;
use crate::subagent::control;
use crate::turn::Turn;
use crate::{Inner, lock};

/// Where the durable rules of sessions are, by session.
pub(crate) const RULES: &str = "rules";
/// How many lists of rules are kept ready for each directory.
const COMPILED_MAX: usize = 32;
/// How many records of what binds sessions are kept ready.
const STANDINGS_MAX: usize = 32;
/// The most floors of one session.
const FLOORS_MAX: usize = 128;
/// What built-in agents are denied because of how clients and tasks work, not to protect anything: no floor has these denials.
const TECHNICAL: [&str; 4] = ["question", "plan_enter", "plan_exit", "todowrite"];
/// The same for what the session of a subagent is denied when it is made: the bound on its depth holds without that.
const TECHNICAL_BELOW: [&str; 2] = ["task", "todowrite"];

/// Rules that are judged together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Level {
    /// The agent's rules, then the session's; the last match counts.
    rules: Ruleset,
    /// How many of them are the agent's. The session's lift none of their denials.
    agent: usize,
    /// How many of the agent's are built in.
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

    fn of_agent(&self) -> &[Rule] {
        &self.rules[..self.agent.min(self.rules.len())]
    }

    fn of_session(&self) -> &[Rule] {
        &self.rules[self.agent.min(self.rules.len())..]
    }

    fn judge(&self, approved: &[Rule], need: &Need) -> Action {
        let denied = || permission::decide(self.of_agent(), &[], &[], need) == Action::Deny;
        match permission::decide(&self.rules, &self.tighten, approved, need) {
            Action::Allow | Action::Ask if !self.of_session().is_empty() && denied() => Action::Deny,
            action => action,
        }
    }

    fn refuses(&self, tool: &str) -> bool {
        let by_agent = || !self.of_session().is_empty() && permission::refused(self.of_agent(), tool);
        permission::refused(&self.rules, tool) || by_agent()
    }

    /// The rules about one permission alone.
    fn about(&self, permission: &str) -> Self {
        let of = |rules: &[Rule]| -> Ruleset {
            rules.iter().filter(|rule| api::wildcard(&rule.permission, permission)).cloned().collect()
        };
        let agent = of(self.of_agent());
        Self {
            agent: agent.len(),
            builtin: 0,
            rules: agent.into_iter().chain(of(self.of_session())).collect(),
            tighten: of(&self.tighten),
        }
    }

    fn denies(&self, permission: &str, pattern: &str) -> bool {
        [&self.rules[..], self.of_agent()]
            .iter()
            .any(|rules| api::evaluate(*rules, permission, pattern) == Action::Deny)
    }

    /// The same for those below: without denials that only have technical reasons. `subagent`: the session is one's.
    fn as_floor(&self, subagent: bool) -> Self {
        let agent = self.of_agent();
        let (builtin, configured) = agent.split_at(self.builtin.min(agent.len()));
        let denies = |rule: &Rule, what: &[&str]| {
            rule.action == Action::Deny && rule.pattern == "*" && what.contains(&rule.permission.as_str())
        };
        let builtin: Ruleset = builtin.iter().filter(|rule| !denies(rule, &TECHNICAL)).cloned().collect();
        let session = self.of_session().iter().filter(|rule| !(subagent && denies(rule, &TECHNICAL_BELOW)));
        Self {
            builtin: builtin.len(),
            agent: builtin.len() + configured.len(),
            rules: builtin.iter().chain(configured).chain(session).cloned().collect(),
            tighten: self.tighten.clone(),
        }
    }
}

/// The rules of an agent in sessions with the same rules of their own. Prompts and steps need them again and again, so they are
/// made once.
#[derive(Debug)]
pub(crate) struct Compiled {
    agent: String,
    careful: bool,
    session: Ruleset,
    level: Arc<Level>,
    /// The same for those below: in a session that is a subagent's, and in one that is not.
    floors: [OnceLock<Arc<Level>>; 2],
    /// What is kept with a prompt that is accepted under them.
    accepted: String,
}

impl Compiled {
    fn new(agent: &str, careful: bool, session: &[Rule], level: Level) -> Self {
        let level = Arc::new(level);
        let accepted = Accepted { agent: agent.to_owned(), careful, level: level.clone() };
        // Text, numbers and lists: it cannot fail. If it did, what is stored would count as asking for everything.
        let accepted = serde_json::to_string(&accepted).unwrap_or_default();
        Self {
            agent: agent.to_owned(),
            careful,
            session: session.to_vec(),
            level,
            floors: Default::default(),
            accepted,
        }
    }

    /// What is kept with a prompt that is accepted under them.
    pub(crate) fn accepted(&self) -> &str {
        &self.accepted
    }

    /// The rules of a caller, for those below. `subagent`: the session is one's.
    fn floor(&self, subagent: bool) -> Arc<Level> {
        self.floors[usize::from(subagent)].get_or_init(|| Arc::new(self.level.as_floor(subagent))).clone()
    }
}

/// Those that were used last.
#[derive(Debug, Default)]
pub(crate) struct CompiledCache(Mutex<VecDeque<Arc<Compiled>>>);

impl CompiledCache {
    /// The rules of an agent in a session with these rules; `make` gives them if they are not known.
    pub(crate) fn get(
        &self,
        agent: &str,
        careful: bool,
        session: &[Rule],
        make: impl FnOnce() -> Level,
    ) -> Arc<Compiled> {
        let mut known = lock(&self.0);
        let same = |one: &Arc<Compiled>| one.agent == agent && one.careful == careful && one.session == session;
        if let Some(found) = known.iter().find(|one| same(one)) {
            return found.clone();
        }
        let made = Arc::new(Compiled::new(agent, careful, session, make()));
        known.truncate(COMPILED_MAX - 1);
        known.push_front(made.clone());
        made
    }
}

/// The rules of a caller, which bind the session that works for it and all below that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Floor {
    /// The session that called.
    session: SessionId,
    /// Its agent.
    agent: String,
    careful: bool,
    /// Its rules when it called.
    level: Arc<Level>,
}

/// What binds a session beside its own rules, durably.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Standing {
    /// Whether edits and commands are asked for, unless the configuration says otherwise.
    pub(crate) careful: bool,
    floors: Vec<Floor>,
    /// Set if what was stored cannot be read.
    #[serde(skip)]
    unknown: bool,
}

impl Standing {
    /// That of a session without anything above it.
    pub(crate) fn new(careful: bool) -> Self {
        Self { careful, ..Self::default() }
    }

    /// Adds what binds it as well. Returns false if there is no room for that, or if it cannot be told what there is.
    #[must_use]
    pub(crate) fn add(&mut self, other: &Self) -> bool {
        self.careful |= other.careful;
        other.floors.iter().for_each(|floor| self.add_floor(floor.clone()));
        self.floors.len() <= FLOORS_MAX && !self.unknown && !other.unknown
    }

    fn add_floor(&mut self, floor: Floor) {
        if !self.floors.contains(&floor) {
            self.floors.push(floor);
        }
    }

    /// Stores it for a session.
    pub(crate) fn put(&self, batch: &mut Batch, session: &SessionId) {
        if *self != Self::default() {
            batch.record(RULES, session.as_str(), Some(&serde_json::json!(self)), None);
        }
    }
}

/// What is kept with a prompt that waits: the rules in force when it was accepted.
#[derive(Debug, Serialize, Deserialize)]
struct Accepted {
    agent: String,
    careful: bool,
    level: Arc<Level>,
}

/// The rules in force for the calls of one agent in one session. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Rules(Arc<InForce>);

#[derive(Debug)]
struct InForce {
    session: SessionId,
    /// Whether the session is a subagent's.
    subagent: bool,
    agent: String,
    careful: bool,
    /// Own levels, then those of the floors.
    levels: Vec<Arc<Level>>,
    /// How many of the levels are its own.
    own: usize,
    /// What binds the session itself.
    standing: Arc<Standing>,
    /// What binds a new session that works for it.
    below: OnceLock<Option<Arc<Binding>>>,
}

impl Rules {
    /// What the rules say to a need; `approved` is what a human allowed for always.
    pub(crate) fn judge(&self, approved: &[Rule], need: &Need) -> Action {
        self.0.levels.iter().map(|level| level.judge(approved, need)).max().unwrap_or(Action::Ask)
    }

    /// Which files may be read without asking, by the patterns that rules know them by. The rules that matter are found once.
    pub(crate) fn readable(&self, approved: &[Rule]) -> tools::Readable {
        let levels: Vec<Level> = self.0.levels.iter().map(|level| level.about("read")).collect();
        let approved = approved.to_vec();
        tools::Readable::new(move |pattern| {
            let need = Need::new("read", pattern);
            !levels.is_empty() && levels.iter().all(|level| level.judge(&approved, &need) == Action::Allow)
        })
    }

    /// Whether a tool is refused outright, or the one that does its work.
    pub(crate) fn refuse_tool(&self, tool: &dyn tools::Tool) -> bool {
        [Some(tool.name()), tool.behind()].into_iter().flatten().any(|name| self.refuse(name))
    }

    /// Whether they refuse a tool whatever it is called with.
    pub(crate) fn refuse(&self, tool: &str) -> bool {
        self.0.levels.iter().any(|level| level.refuses(tool))
    }

    /// Whether they deny a permission for this.
    pub(crate) fn deny(&self, permission: &str, pattern: &str) -> bool {
        self.0.levels.iter().any(|level| level.denies(permission, pattern))
    }

    /// The rules about a need at the first level that denies it.
    pub(crate) fn denial(&self, need: &Need) -> Vec<&Rule> {
        let level = self.0.levels.iter().find(|level| level.judge(&[], need) == Action::Deny);
        let about = |rule: &&Rule| api::wildcard(&rule.permission, &need.permission);
        level.into_iter().flat_map(|level| level.rules.iter().chain(&level.tighten)).filter(about).collect()
    }

    /// Whether edits and commands are asked for, unless the configuration says otherwise.
    pub(crate) fn careful(&self) -> bool {
        self.0.careful
    }

    /// What binds a session that works for this one, beside what binds it already. Nothing if there is no room for that.
    pub(crate) fn below(&self, before: Option<&Standing>) -> Option<Arc<Binding>> {
        match before {
            Some(before) => Binding::new(before.clone(), &self.standing_below()).map(Arc::new),
            // Many may be called at once.
            None => {
                let made = || Binding::new(Standing::default(), &self.standing_below()).map(Arc::new);
                self.0.below.get_or_init(made).clone()
            }
        }
    }

    fn standing_below(&self) -> Standing {
        let InForce { session, subagent, agent, careful, levels, own, standing, .. } = &*self.0;
        let mut below = Standing { careful: *careful, ..Standing::clone(standing) };
        for level in &levels[..*own] {
            let (session, agent) = (session.clone(), agent.clone());
            let level = Arc::new(level.as_floor(*subagent));
            below.add_floor(Floor { session, agent, careful: *careful, level });
        }
        below
    }

    /// These and others: whatever either forbids is forbidden.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let InForce { session, subagent, agent, careful, levels, own, standing, .. } = &*self.0;
        let mut levels = levels.clone();
        other.0.levels.iter().for_each(|level| add(&mut levels, level.clone()));
        Self(Arc::new(InForce {
            session: session.clone(),
            subagent: *subagent,
            agent: agent.clone(),
            careful: *careful || other.0.careful,
            levels,
            own: *own,
            standing: standing.clone(),
            below: OnceLock::new(),
        }))
    }
}

/// Adds a level unless it is there: equal ones have equal verdicts.
fn add(levels: &mut Vec<Arc<Level>>, level: Arc<Level>) {
    if !levels.contains(&level) {
        levels.push(level);
    }
}

/// What binds a session that works for another one, in the form that is stored.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) standing: Arc<Standing>,
    json: Box<RawValue>,
}

impl Binding {
    /// Nothing if there is no room for it, or if it cannot be told what there is.
    fn new(mut standing: Standing, other: &Standing) -> Option<Self> {
        let json = standing.add(other).then(|| serde_json::value::to_raw_value(&standing).ok())??;
        Some(Self { standing: Arc::new(standing), json })
    }

    /// Stores it for a session.
    pub(crate) fn put(&self, batch: &mut Batch, session: &SessionId) {
        batch.record_json(RULES, session.as_str(), &self.json);
    }
}

/// What was read last of what binds sessions, by its JSON: all that work for one caller have the same.
#[derive(Debug, Default)]
pub(crate) struct StandingCache(Mutex<VecDeque<(String, Arc<Standing>)>>);

impl StandingCache {
    fn get(&self, json: String) -> Arc<Standing> {
        let mut known = lock(&self.0);
        if let Some((_, found)) = known.iter().find(|(text, _)| *text == json) {
            return found.clone();
        }
        let unknown = |_| Standing { careful: true, floors: Vec::new(), unknown: true };
        let read = Arc::new(serde_json::from_str(&json).unwrap_or_else(unknown));
        known.truncate(STANDINGS_MAX - 1);
        known.push_front((json, read.clone()));
        read
    }
}

impl Inner {
    /// What binds a session beside its own rules. One of before that was stored gets it from those above it.
    pub(crate) fn standing(&self, store: &Store, session: &Session) -> Result<Arc<Standing>, StoreError> {
        match (self.recorded(store, &session.id)?, &session.parent_id) {
            (Some(standing), _) => Ok(standing),
            (None, Some(parent)) => Ok(Arc::new(self.standing_below(store, parent)?)),
            (None, None) => Ok(Arc::default()),
        }
    }

    /// What is stored of it.
    pub(crate) fn recorded(&self, store: &Store, session: &SessionId) -> Result<Option<Arc<Standing>>, StoreError> {
        Ok(store.record_json(RULES, session.as_str())?.map(|json| self.standings.get(json)))
    }

    /// What binds a session that somebody makes below another one, which has not called it.
    pub(crate) fn standing_below(&self, store: &Store, parent: &SessionId) -> Result<Standing, StoreError> {
        let mut all = Standing::default();
        for above in control::lineage(store, parent)? {
            let recorded = self.recorded(store, &above.id)?.unwrap_or_default();
            let careful = self.careful || recorded.careful;
            // Whether there is room is for those to say who make a session.
            let _ = all.add(&recorded);
            all.unknown |= recorded.unknown;
            let instance = self.instance(above.directory.as_ref());
            let agent = above.agent.clone().unwrap_or_else(|| instance.default_agent());
            let compiled = instance.rules_of(&agent, careful, above.permission.as_deref().unwrap_or_default());
            let level = compiled.floor(above.parent_id.is_some());
            all.add_floor(Floor { session: above.id, agent, careful, level });
        }
        Ok(all)
    }

    /// The rules for the calls of an agent in a session. `store`: all of it is read in one moment.
    fn in_force(
        &self,
        store: &Store,
        instance: &Instance,
        session: &Session,
        agent: &str,
    ) -> Result<Rules, StoreError> {
        let standing = self.standing(store, session)?;
        let inbox = store.inbox(&session.id)?;
        let own = session.permission.as_deref().unwrap_or_default();
        let careful = self.careful || standing.careful;
        // Nearly always the prompts that wait were accepted under the rules that are in force now.
        let usual = instance.rules_of(agent, careful, own);
        let stored = inbox.iter().filter_map(|row| row.data.as_deref());
        let (same, others): (Vec<&str>, Vec<&str>) = stored.partition(|data| *data == usual.accepted);
        let others: Vec<Option<Accepted>> = others.iter().map(|data| serde_json::from_str(data).ok()).collect();
        let asks_first = |accepted: &Option<Accepted>| accepted.as_ref().is_none_or(|accepted| accepted.careful);
        let careful = careful || others.iter().any(asks_first);
        let mut levels = vec![instance.rules_of(agent, careful, own).level.clone()];
        if !same.is_empty() {
            add(&mut levels, usual.level.clone());
        }
        for accepted in others {
            match accepted {
                // The rules of an agent bind its own calls. Another one may have been chosen since.
                Some(accepted) if accepted.agent != agent => {}
                Some(accepted) => add(&mut levels, accepted.level),
                None => add(&mut levels, Arc::default()),
            }
        }
        let own = levels.len();
        if standing.unknown {
            add(&mut levels, Arc::default());
        }
        for floor in &standing.floors {
            add(&mut levels, floor.level.clone());
            if let Some(now) = self.floor_now(store, instance, floor)? {
                add(&mut levels, now);
            }
        }
        let (session, subagent, agent) = (session.id.clone(), session.parent_id.is_some(), agent.to_owned());
        let below = OnceLock::new();
        Ok(Rules(Arc::new(InForce { session, subagent, agent, careful, levels, own, standing, below })))
    }

    /// A floor as the caller's configuration and session have it now, if its agent is still there.
    fn floor_now(&self, store: &Store, own: &Instance, floor: &Floor) -> Result<Option<Arc<Level>>, StoreError> {
        let caller = store.session(&floor.session)?;
        let known = caller.as_ref().map(|caller| self.instance(caller.directory.as_ref()));
        let instance = known.as_deref().unwrap_or(own);
        if !instance.agents.contains_key(&floor.agent) {
            return Ok(None);
        }
        let (rules, subagent) = match &caller {
            Some(caller) => (caller.permission.as_deref().unwrap_or_default(), caller.parent_id.is_some()),
            None => (floor.level.of_session(), false),
        };
        Ok(Some(instance.rules_of(&floor.agent, floor.careful, rules).floor(subagent)))
    }
}

impl Turn {
    /// The rules for the calls of an agent in this turn's session, as that is stored now.
    pub(crate) async fn rules(&self, agent: &str) -> Result<Rules, StoreError> {
        let mut patience = self.patience();
        loop {
            let rules = self.store().together(|store| {
                let session = self.session(store)?;
                self.rules_in(store, &session, agent)
            });
            if !patience.lasts(&rules).await {
                return rules;
            }
        }
    }

    /// The same, as part of a look at what is stored.
    pub(crate) fn rules_in(&self, store: &Store, session: &Session, agent: &str) -> Result<Rules, StoreError> {
        self.inner.in_force(store, &self.instance, session, agent)
    }
}

#[cfg(test)]
#[path = "rules/tests.rs"]
mod tests;
