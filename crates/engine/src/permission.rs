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
    // What we could not parse may hide a command that a narrower rule is about: it is never simply allowed.
    if need.opaque && (narrow(rules, &need.permission) || narrow(tighten, &need.permission)) {
        by_rules.max(Action::Ask)
    } else {
        by_rules
    }
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

/// Whether any rule for this permission says something about less than everything.
fn narrow(rules: &[Rule], permission: &str) -> bool {
    rules.iter().any(|rule| wildcard(&rule.permission, permission) && rule.pattern != "*")
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
mod tests {
    use super::*;

    fn need(permission: &str, patterns: &[&str], opaque: bool) -> Need {
        Need {
            permission: permission.to_owned(),
            patterns: patterns.iter().map(|p| (*p).to_owned()).collect(),
            always: Vec::new(),
            metadata: api::JsonMap::new(),
            opaque,
        }
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
