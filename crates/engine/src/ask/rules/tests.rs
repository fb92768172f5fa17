use super::*;
use proptest::prelude::*;

fn need(permission: &str, pattern: &str) -> Need {
    Need::new(permission, pattern)
}

fn rule(permission: &str, pattern: &str, action: Action) -> Rule {
    Rule::new(permission, pattern, action)
}

fn effective_rules(levels: Vec<Level>) -> Rules {
    let own = levels.len();
    let constraints = Arc::default();
    Rules(Arc::new(EffectiveRules {
        session: SessionId::new(),
        subagent: false,
        agent: "build".to_owned(),
        careful: false,
        levels: levels.into_iter().map(Arc::new).collect(),
        own,
        constraints,
        for_children: OnceLock::new(),
    }))
}

#[test]
fn a_session_lifts_asks_but_no_denial() {
    use Action::{Allow, Ask, Deny};
    let agent = [
        rule("*", "*", Allow),
        rule("bash", "*", Ask),
        rule("bash", "rm *", Deny),
        rule("edit", "*", Deny),
        rule("edit", "docs/*", Allow),
    ];
    for (session, permission, pattern, want) in [
        (rule("bash", "*", Allow), "bash", "ls", Allow),
        (rule("bash", "*", Allow), "bash", "rm x", Deny),
        (rule("bash", "*", Ask), "bash", "rm x", Deny),
        (rule("*", "*", Allow), "bash", "rm x", Deny),
        (rule("*", "*", Allow), "edit", "src/a", Deny),
        (rule("*", "*", Allow), "edit", "docs/a", Allow),
        (rule("edit", "*", Deny), "edit", "docs/a", Deny),
        (rule("read", "*", Deny), "read", "a", Deny),
        (rule("webfetch", "*", Ask), "webfetch", "http://a", Ask),
    ] {
        let level = Level::new(&agent, 0, std::slice::from_ref(&session), &[]);
        assert_eq!(level.judge(&[], &need(permission, pattern)), want, "{session:?} for {permission} {pattern}");
        let approved = [rule("*", "*", Allow)];
        let settled = if want == Ask { Allow } else { want };
        assert_eq!(level.judge(&approved, &need(permission, pattern)), settled, "approved: {session:?}");
    }
    let denied = Level::new(&[rule("bash", "*", Deny)], 0, &[rule("bash", "git *", Allow)], &[]);
    assert!(denied.refuses("bash"), "a tool that is denied altogether is not offered");
    assert!(Level::new(&agent, 0, &[rule("bash", "*", Allow)], &[]).denies("bash", "rm x"));
}

#[test]
fn a_floor_keeps_protective_rules_and_drops_technical_ones() {
    use Action::{Allow, Deny};
    let builtin = [
        rule("*", "*", Allow),
        rule("question", "*", Deny),
        rule("todowrite", "*", Deny),
        rule("task", "general", Deny),
        rule("edit", "*", Deny),
    ];
    let configured = [rule("bash", "*", Deny), rule("question", "*", Deny)];
    let agent: Vec<Rule> = builtin.iter().chain(&configured).cloned().collect();
    let floor = Level::new(&agent, builtin.len(), &[rule("read", "*", Deny)], &[rule("x", "*", Deny)]).as_floor(false);
    for (permission, pattern, want) in [
        ("todowrite", "*", Allow),
        ("task", "general", Deny),
        ("edit", "a", Deny),
        ("bash", "ls", Deny),
        // Configured, so it is intended.
        ("question", "*", Deny),
        ("read", "a", Deny),
        ("x", "a", Deny),
        ("grep", "a", Allow),
    ] {
        assert_eq!(floor.judge(&[], &need(permission, pattern)), want, "{permission} {pattern}");
    }
    assert_eq!(floor.session_rules(), [rule("read", "*", Deny)]);
    let plain = Level::new(&builtin, builtin.len(), &[], &[]).as_floor(false);
    assert_eq!(plain.judge(&[], &need("question", "*")), Allow);
    // A subagent's session is created with denials.
    let made = [rule("task", "*", Deny), rule("bash", "*", Deny), rule("todowrite", "*", Deny)];
    for (subagent, task) in [(true, Allow), (false, Deny)] {
        let floor = Level::new(&builtin, builtin.len(), &made, &[]).as_floor(subagent);
        assert_eq!(floor.judge(&[], &need("task", "explore")), task);
        assert_eq!(floor.judge(&[], &need("bash", "ls")), Deny);
    }
}

#[test]
fn an_unreadable_level_asks_for_everything() {
    let unread = effective_rules(vec![Level::new(&[rule("*", "*", Action::Allow)], 0, &[], &[]), Level::default()]);
    assert_eq!(unread.judge(&[], &need("bash", "ls")), Action::Ask);
    assert_eq!(effective_rules(Vec::new()).judge(&[], &need("bash", "ls")), Action::Ask);
    assert!(serde_json::from_str::<AcceptedRules>("{}").is_err());
    let mut constraints = Constraints { is_unreadable: true, ..Constraints::default() };
    assert!(!constraints.add(&Constraints::default()), "a session with unknown rules has no children");
}

#[test]
fn compiled_rules_are_distinct_and_bounded() {
    let cache = FifoCache::<CompiledRules>::default();
    let get = |agent: &str, careful: bool, session: &[Rule]| {
        cache.get(agent, careful, session, || Level::new(&[rule(agent, "*", Action::Allow)], 0, session, &[]))
    };
    let denied = [rule("bash", "*", Action::Deny)];
    let all = [get("a", false, &[]), get("b", false, &[]), get("a", true, &[]), get("a", false, &denied)];
    for (place, one) in all.iter().enumerate() {
        let parsed: AcceptedRules = serde_json::from_str(one.accepted().text()).unwrap();
        assert_eq!((&parsed.agent, parsed.careful, &parsed.level), (&one.agent, one.careful, &one.level));
        assert!(all.iter().skip(place + 1).all(|other| other.accepted() != one.accepted()));
    }
    assert!(Arc::ptr_eq(&all[3], &get("a", false, &denied)), "made once");
    (0..2 * CACHE_MAX).for_each(|number| drop(get(&number.to_string(), false, &[])));
    assert_eq!(lock(&cache.0).len(), CACHE_MAX);
}

#[test]
fn the_number_of_floors_is_limited() {
    let floor = |number: usize| Floor {
        session: SessionId::new(),
        agent: number.to_string(),
        careful: false,
        level: Arc::default(),
    };
    let mut constraints = Constraints::default();
    let most = Constraints { floors: (0..FLOORS_MAX).map(floor).collect(), ..Constraints::default() };
    assert!(constraints.add(&most) && constraints.add(&most), "a duplicate takes no room");
    assert!(!constraints.add(&Constraints { floors: vec![floor(0)], ..Constraints::default() }));
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![Just(Action::Allow), Just(Action::Ask), Just(Action::Deny)]
}

fn ruleset() -> impl Strategy<Value = Ruleset> {
    let permission = prop_oneof![Just("*"), Just("bash"), Just("edit"), Just("question")];
    let pattern = prop_oneof![Just("*"), Just("a*"), Just("ab")];
    prop::collection::vec((permission, pattern, action()).prop_map(|(p, t, a)| Rule::new(p, t, a)), 0..8)
}

fn level() -> impl Strategy<Value = Level> {
    (ruleset(), ruleset(), ruleset(), 0..4usize)
        .prop_map(|(agent, session, tighten, builtin)| Level::new(&agent, builtin.min(agent.len()), &session, &tighten))
}

proptest! {
    /// A session cannot lift its agent's denials, and another level never loosens anything.
    #[test]
    fn no_level_loosens_anything(agent in ruleset(), session in ruleset(), others in prop::collection::vec(level(), 0..4),
                       permission in prop_oneof![Just("bash"), Just("edit")],
                       pattern in prop_oneof![Just("ab"), Just("b")], approved in ruleset()) {
        let need = need(permission, pattern);
        let approved: Ruleset = approved.into_iter().filter(|rule| rule.action == Action::Allow).collect();
        let alone = Level::new(&agent, 0, &[], &[]);
        let own = Level::new(&agent, 0, &session, &[]);
        if alone.judge(&[], &need) == Action::Deny {
            prop_assert_eq!(own.judge(&approved, &need), Action::Deny);
            prop_assert!(own.denies(permission, pattern));
        }
        let mut verdict = own.judge(&approved, &need);
        let mut levels = vec![own];
        for other in others {
            // For protective rules, a caller and its subagents get the same verdict.
            prop_assert_eq!(other.as_floor(true).judge(&approved, &need), other.judge(&approved, &need));
            prop_assert_eq!(serde_json::from_str::<Level>(&serde_json::to_string(&other).unwrap()).unwrap(), other.clone());
            levels.push(other);
            let stricter = effective_rules(levels.clone()).judge(&approved, &need);
            prop_assert!(stricter >= verdict);
            verdict = stricter;
        }
        let rules = effective_rules(levels);
        prop_assert_eq!(rules.denying_rules(&need).is_empty() && verdict == Action::Deny, false);
        if rules.refuses(permission) {
            // An approval settles no denial, and a tool is hidden only if it would be denied.
            prop_assert!(verdict == Action::Deny || rules.judge(&[], &need) >= Action::Ask);
        }
    }
}

#[test]
fn reading_without_asking() {
    let rules = [Rule::new("*", "*", Action::Allow), Rule::new("read", "*.env", Action::Ask)];
    let tighten = [Rule::new("read", "keys/*", Action::Deny)];
    let approved = [Rule::new("read", "a.env", Action::Allow), Rule::new("edit", "*", Action::Allow)];
    let readable = readable_files([&Level::new(&rules, 0, &[], &tighten)], &approved);
    let cases = [("x", true), ("b.env", false), ("a.env", true), ("keys/a", false), ("keys/a.env", false)];
    for (pattern, want) in cases {
        assert_eq!(readable.without_asking(pattern), want, "{pattern}");
    }
    assert!(!Level::default().readable_files().without_asking("x"), "silence asks");
    assert!(!readable_files([], &[]).without_asking("x"), "having no rules asks too");
}
