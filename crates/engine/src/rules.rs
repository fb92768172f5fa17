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

use std::sync::Arc;

use api::{Action, Rule, Ruleset, Session, SessionId};
use serde::{Deserialize, Serialize};
use store::{Batch, StoreError};
use tools::Need;

use crate::instance::Instance;
use crate::turn::Turn;
use crate::{Inner, permission};

/// Where the durable rules of sessions are, by session.
pub(crate) const RULES: &str = "rules";
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
        permission::refused(&self.rules, tool) || permission::refused(self.of_agent(), tool)
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

/// The rules of a caller, which bind the session that works for it and all below that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Floor {
    /// The session that called.
    session: SessionId,
    /// Its agent.
    agent: String,
    careful: bool,
    /// Its rules when it called.
    level: Level,
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
        let new: Vec<Floor> = other.floors.iter().filter(|floor| !self.floors.contains(floor)).cloned().collect();
        self.floors.extend(new);
        self.floors.len() <= FLOORS_MAX && !self.unknown && !other.unknown
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
pub(crate) struct Accepted {
    pub(crate) agent: String,
    pub(crate) careful: bool,
    pub(crate) level: Level,
}

impl Accepted {
    /// The form that is stored.
    pub(crate) fn data(&self) -> String {
        // Text, numbers and lists: it cannot fail. If it did, what is stored would count as asking for everything.
        serde_json::to_string(self).unwrap_or_default()
    }
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
    levels: Vec<Level>,
    /// How many of the levels are its own.
    own: usize,
    /// What binds the session itself.
    standing: Standing,
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

    /// What binds a session that works for this one.
    pub(crate) fn below(&self) -> Standing {
        let InForce { session, subagent, agent, careful, levels, own, standing } = &*self.0;
        let mut below = Standing { careful: *careful, ..standing.clone() };
        for level in &levels[..*own] {
            let (session, agent) = (session.clone(), agent.clone());
            let floor = Floor { session, agent, careful: *careful, level: level.as_floor(*subagent) };
            if !below.floors.contains(&floor) {
                below.floors.push(floor);
            }
        }
        below
    }

    /// These and others: whatever either forbids is forbidden.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let InForce { session, subagent, agent, careful, levels, own, standing } = &*self.0;
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
        }))
    }
}

/// Adds a level unless it is there: equal ones have equal verdicts.
fn add(levels: &mut Vec<Level>, level: Level) {
    if !levels.contains(&level) {
        levels.push(level);
    }
}

impl Inner {
    /// What binds a session beside its own rules. One of before that was stored gets it from those above it.
    pub(crate) fn standing(&self, session: &Session) -> Result<Standing, StoreError> {
        match (self.recorded(&session.id)?, &session.parent_id) {
            (Some(standing), _) => Ok(standing),
            (None, Some(parent)) => self.standing_below(parent),
            (None, None) => Ok(Standing::default()),
        }
    }

    /// What is stored of it.
    pub(crate) fn recorded(&self, session: &SessionId) -> Result<Option<Standing>, StoreError> {
        let record = self.store.record(RULES, session.as_str())?;
        let unknown = || Standing { careful: true, floors: Vec::new(), unknown: true };
        Ok(record.map(|record| serde_json::from_value(record.value).unwrap_or_else(|_| unknown())))
    }

    /// What binds a session that somebody makes below another one, which has not called it.
    pub(crate) fn standing_below(&self, parent: &SessionId) -> Result<Standing, StoreError> {
        let mut all = Standing::default();
        for above in self.lineage(parent)? {
            let recorded = self.recorded(&above.id)?.unwrap_or_default();
            let careful = self.careful || recorded.careful;
            // Whether there is room is for those to say who make a session.
            let _ = all.add(&recorded);
            all.unknown |= recorded.unknown;
            let instance = self.instance(above.directory.as_ref());
            let agent = above.agent.clone().unwrap_or_else(|| instance.default_agent());
            let level = instance.level(&agent, careful, above.permission.as_deref().unwrap_or_default());
            let level = level.as_floor(above.parent_id.is_some());
            let floor = Floor { session: above.id, agent, careful, level };
            if !all.floors.contains(&floor) {
                all.floors.push(floor);
            }
        }
        Ok(all)
    }

    /// The rules for the calls of an agent in a session.
    pub(crate) fn in_force(&self, instance: &Instance, session: &Session, agent: &str) -> Result<Rules, StoreError> {
        let standing = self.standing(session)?;
        let inbox = self.store.inbox(&session.id)?;
        let stored = inbox.iter().filter_map(|row| row.data.as_deref());
        let accepted: Vec<Option<Accepted>> = stored.map(|data| serde_json::from_str(data).ok()).collect();
        let asks_first = |accepted: &Option<Accepted>| accepted.as_ref().is_none_or(|accepted| accepted.careful);
        let careful = self.careful || standing.careful || accepted.iter().any(asks_first);
        let own = session.permission.as_deref().unwrap_or_default();
        let mut levels = vec![instance.level(agent, careful, own)];
        for accepted in accepted {
            match accepted {
                // The rules of an agent bind its own calls. Another one may have been chosen since.
                Some(accepted) if accepted.agent != agent => {}
                Some(accepted) => add(&mut levels, accepted.level),
                None => add(&mut levels, Level::default()),
            }
        }
        let own = levels.len();
        if standing.unknown {
            add(&mut levels, Level::default());
        }
        for floor in &standing.floors {
            add(&mut levels, floor.level.clone());
            if let Some(now) = self.floor_now(instance, floor)? {
                add(&mut levels, now);
            }
        }
        let (session, subagent, agent) = (session.id.clone(), session.parent_id.is_some(), agent.to_owned());
        Ok(Rules(Arc::new(InForce { session, subagent, agent, careful, levels, own, standing })))
    }

    /// A floor as the caller's configuration and session have it now, if its agent is still there.
    fn floor_now(&self, own: &Instance, floor: &Floor) -> Result<Option<Level>, StoreError> {
        let caller = self.store.session(&floor.session)?;
        let known = caller.as_ref().map(|caller| self.instance(caller.directory.as_ref()));
        let instance = known.as_deref().unwrap_or(own);
        if !instance.agents.contains_key(&floor.agent) {
            return Ok(None);
        }
        let (rules, subagent) = match &caller {
            Some(caller) => (caller.permission.as_deref().unwrap_or_default(), caller.parent_id.is_some()),
            None => (floor.level.of_session(), false),
        };
        Ok(Some(instance.level(&floor.agent, floor.careful, rules).as_floor(subagent)))
    }
}

impl Turn {
    /// The rules for the calls of an agent in this turn's session, as that is stored now.
    pub(crate) async fn rules(&self, agent: &str) -> Result<Rules, StoreError> {
        let mut patience = self.patience();
        loop {
            let rules = self.store().session(&self.session_id).and_then(|session| {
                let session = session.ok_or_else(|| StoreError::Stale { session: self.session_id.clone() })?;
                self.inner.in_force(&self.instance, &session, agent)
            });
            if !patience.lasts(&rules).await {
                return rules;
            }
        }
    }
}

#[cfg(test)]
#[path = "rules/tests.rs"]
mod tests;
