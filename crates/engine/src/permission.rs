//! The decision about a tool call: pure functions over rules and what the call needs.

use api::{Action, Rule, evaluate, wildcard};
use tools::Need;

/// What the rules say to a need. `rules` are the agent's and the session's in their order; `tighten` are those of sources
/// that may only make things stricter; `approved` is what a human allowed for always: it settles what would be asked, and
/// never lifts a denial.
pub(crate) fn decide(rules: &[Rule], tighten: &[Rule], approved: &[Rule], need: &Need) -> Action {
    let judge = |pattern: &str| match evaluate(rules, &need.permission, pattern).max(at_least(
        tighten,
        &need.permission,
        pattern,
    )) {
        Action::Ask if covers(approved, &need.permission, pattern) => Action::Allow,
        action => action,
    };
    let by_rules = need.patterns.iter().map(|pattern| judge(pattern)).max().unwrap_or_else(|| judge("*"));
    // What we could not parse may hide a command that a narrower rule is about, and so may an argument of a program that
    // starts others: it is never simply allowed.
    let hidden = |rules: &[Rule]| (need.opaque && narrow(rules, &need.permission)) || named(rules, need);
    let partly = need.opaque && evaluate(rules, &need.permission, "*") != Action::Allow;
    if partly || hidden(rules) || hidden(tighten) { by_rules.max(Action::Ask) } else { by_rules }
}

/// The most that rules demand which only tighten: their order does not matter, and silence demands nothing.
fn at_least(tighten: &[Rule], permission: &str, pattern: &str) -> Action {
    let matching = tighten.iter().filter(|r| wildcard(&r.permission, permission) && wildcard(&r.pattern, pattern));
    matching.map(|rule| rule.action).max().unwrap_or(Action::Allow)
}

/// Whether an earlier answer `always` allows this.
pub(crate) fn covers(approved: &[Rule], permission: &str, pattern: &str) -> bool {
    evaluate(approved, permission, pattern) == Action::Allow
}

/// Rules for this permission that hold something back which is less than everything.
fn narrower<'a>(rules: &'a [Rule], permission: &str) -> impl Iterator<Item = &'a Rule> {
    rules.iter().filter(move |rule| {
        rule.action != Action::Allow && rule.pattern != "*" && wildcard(&rule.permission, permission)
    })
}

/// Whether any rule for this permission says something about less than everything.
pub(crate) fn tells_apart(rules: &[Rule], permission: &str) -> bool {
    rules.iter().any(|rule| rule.pattern != "*" && wildcard(&rule.permission, permission))
}

fn narrow(rules: &[Rule], permission: &str) -> bool {
    narrower(rules, permission).next().is_some()
}

/// Whether an argument has, as a word of its own, the name of a command that a rule holds back.
fn named(rules: &[Rule], need: &Need) -> bool {
    if need.arguments.is_empty() {
        return false;
    }
    narrower(rules, &need.permission).any(|rule| {
        let command = rule.pattern.split(' ').next().unwrap_or_default();
        let command = command.rsplit('/').next().unwrap_or_default();
        let known = !command.chars().all(|c| matches!(c, '*' | '?'));
        known && need.arguments.iter().any(|text| mentions(text, command))
    })
}

/// Whether a text has a command's name between separators, or behind the letters of an option.
fn mentions(text: &str, command: &str) -> bool {
    text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))).any(|word| {
        let option = word.starts_with('-') && !word.starts_with("--");
        !word.is_empty() && (wildcard(command, word) || (option && word.ends_with(command)))
    })
}

/// Whether the rules refuse a permission whatever it is wanted for: such a tool is not offered to the model.
pub(crate) fn refused(rules: &[Rule], permission: &str) -> bool {
    rules
        .iter()
        .rfind(|rule| wildcard(&rule.permission, permission))
        .is_some_and(|rule| rule.pattern == "*" && rule.action == Action::Deny)
}

/// The permission under which a tool is judged.
pub(crate) fn of_tool(tool: &str) -> &str {
    match tool {
        "edit" | "write" | "apply_patch" => "edit",
        "list_mcp_resources" | "list_mcp_resource_templates" | "read_mcp_resource" => "read",
        other => other,
    }
}

#[cfg(test)]
mod corpus;

#[cfg(test)]
mod tests {
    use super::*;

    fn need(permission: &str, patterns: &[&str], opaque: bool) -> Need {
        Need {
            permission: permission.to_owned(),
            patterns: patterns.iter().map(|p| (*p).to_owned()).collect(),
            always: Vec::new(),
            metadata: api::JsonMap::new(),
            opaque,
            arguments: Vec::new(),
        }
    }

    #[test]
    fn an_argument_that_names_a_held_back_command_is_asked() {
        let rules = [Rule::new("*", "*", Action::Allow), Rule::new("bash", "rm *", Action::Deny)];
        let with = |text: &str| Need { arguments: vec![text.to_owned()], ..need("bash", &["docker run x"], false) };
        for text in ["rm", "/bin/rm", "sh -c 'rm x'", "--to-command=rm", "-Irm", "a;rm", "{rm,x}"] {
            assert_eq!(decide(&rules, &[], &[], &with(text)), Action::Ask, "{text}");
            assert_eq!(decide(&rules[..1], &rules[1..], &[], &with(text)), Action::Ask, "{text}");
            assert_eq!(decide(&rules[..1], &[], &[], &with(text)), Action::Allow, "{text}");
        }
        for text in ["--rm", "farm", "rm_all", "rm.txt", "x-rm"] {
            assert_eq!(decide(&rules, &[], &[], &with(text)), Action::Allow, "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_allowed_only_with_everything() {
        let all =
            [Rule::new("*", "*", Action::Ask), Rule::new("x", "*", Action::Allow), Rule::new("x", "a", Action::Allow)];
        assert_eq!(decide(&all, &[], &[], &need("x", &["*"], true)), Action::Allow);
        let some = [Rule::new("x", "*", Action::Ask), Rule::new("x", "a *", Action::Allow)];
        assert_eq!(decide(&some, &[], &[], &need("x", &["a $b"], true)), Action::Ask);
        let but = [Rule::new("x", "*", Action::Allow), Rule::new("x", "/secret/*", Action::Deny)];
        assert_eq!(decide(&but, &[], &[], &need("x", &["*"], true)), Action::Ask);
        assert_eq!(decide(&all[1..2], &but[1..], &[], &need("x", &["*"], true)), Action::Ask);
    }

    #[test]
    fn the_most_restrictive_pattern_decides() {
        let rules = [
            Rule::new("bash", "*", Action::Allow),
            Rule::new("bash", "rm *", Action::Deny),
            Rule::new("bash", "git push *", Action::Ask),
        ];
        assert_eq!(decide(&rules, &[], &[], &need("bash", &["ls", "git push origin"], false)), Action::Ask);
        assert_eq!(decide(&rules, &[], &[], &need("bash", &["ls", "rm -rf x", "git push"], false)), Action::Deny);
        assert_eq!(decide(&rules, &[], &[], &need("bash", &["ls"], false)), Action::Allow);
    }

    #[test]
    fn what_is_not_understood_is_asked_where_a_rule_is_narrow() {
        let open = [Rule::new("*", "*", Action::Allow)];
        let narrow = [Rule::new("*", "*", Action::Allow), Rule::new("bash", "rm *", Action::Deny)];
        assert_eq!(decide(&open, &[], &[], &need("bash", &["$X"], true)), Action::Allow);
        assert_eq!(decide(&narrow, &[], &[], &need("bash", &["$X"], true)), Action::Ask);
        let approved = [Rule::new("bash", "*", Action::Allow)];
        assert_eq!(decide(&narrow, &[], &approved, &need("bash", &["$X"], true)), Action::Ask);
    }

    #[test]
    fn an_approval_settles_an_ask_but_never_a_denial() {
        let rules = [Rule::new("bash", "*", Action::Ask), Rule::new("bash", "rm *", Action::Deny)];
        let approved = [Rule::new("bash", "*", Action::Allow)];
        assert_eq!(decide(&rules, &[], &approved, &need("bash", &["ls"], false)), Action::Allow);
        assert_eq!(decide(&rules, &[], &approved, &need("bash", &["rm x"], false)), Action::Deny);
    }

    #[test]
    fn rules_that_only_tighten_never_loosen() {
        let rules = [Rule::new("*", "*", Action::Allow), Rule::new("edit", "*", Action::Deny)];
        let tighten = [
            Rule::new("bash", "*", Action::Ask),
            Rule::new("edit", "*", Action::Ask),
            Rule::new("bash", "rm *", Action::Deny),
        ];
        let decide = |permission, pattern| decide(&rules, &tighten, &[], &need(permission, &[pattern], false));
        assert_eq!(decide("bash", "ls"), Action::Ask);
        assert_eq!(decide("bash", "rm x"), Action::Deny);
        assert_eq!(decide("edit", "a"), Action::Deny);
        assert_eq!(decide("read", "a"), Action::Allow);
    }

    #[test]
    fn a_tool_is_refused_only_by_a_plain_denial() {
        let rules = [Rule::new("*", "*", Action::Allow), Rule::new("edit", "*", Action::Deny)];
        assert!(refused(&rules, "edit"));
        assert!(!refused(&rules, "bash"));
        let partly = [Rule::new("edit", "*", Action::Deny), Rule::new("edit", "docs/*", Action::Allow)];
        assert!(!refused(&partly, "edit"));
    }
}
