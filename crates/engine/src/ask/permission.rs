//! Permission decisions: pure functions over rules and the needs of a call.

use api::{Action, Rule, evaluate, wildcard};
use tools::Need;

/// The permission to read files and the resources of MCP servers.
pub(crate) const READ: &str = "read";
/// The prefix of resource patterns, and the pattern that covers all of them.
const RESOURCES: (&str, &str) = ("mcp:", "mcp:*");

/// What the rules say about a need. `rules` are the agent's and then the session's. `tighten` comes from sources that
/// may only make things stricter. `approved` are the user's `always` replies: they settle what would be asked and never
/// lift a denial.
pub(crate) fn decide(rules: &[Rule], tighten: &[Rule], approved: &[Rule], need: &Need) -> Action {
    let is_approved = |pattern: &str| match need.opaque {
        // The user never saw what hides in an opaque command, unless they approved everything or this exact text.
        true => was_approved_verbatim(approved, &need.permission, pattern),
        false => covers(approved, &need.permission, pattern),
    };
    // No rule narrower than `*` can allow an opaque need.
    let minimum = match need.opaque && evaluate(rules, &need.permission, "*") != Action::Allow {
        true => Action::Ask,
        false => Action::Allow,
    };
    let judge = |pattern: &str| {
        let tightened = tightened_action(tighten, &need.permission, pattern).max(minimum);
        match evaluate(rules, &need.permission, pattern).max(tightened) {
            Action::Ask if is_approved(pattern) => Action::Allow,
            action => action,
        }
    };
    let by_rules = need.patterns.iter().map(|pattern| judge(pattern)).max().unwrap_or_else(|| judge("*"));
    // An unparsed command may hide one that a narrow rule restricts, and so may an argument of a program that starts
    // others. Such a need is never simply allowed.
    let hidden = |rules: &[Rule]| {
        (need.opaque && has_narrow_rule(rules, &need.permission)) || names_restricted_command(rules, need)
    };
    if hidden(in_effect(rules, &need.permission)) || hidden(tighten) { by_rules.max(Action::Ask) } else { by_rules }
}

/// The rules that can still decide about a permission: those from the last rule about all of it onwards.
fn in_effect<'a>(rules: &'a [Rule], permission: &str) -> &'a [Rule] {
    let about_all = |rule: &Rule| rule.pattern == "*" && wildcard(&rule.permission, permission);
    rules.iter().rposition(about_all).map_or(rules, |place| &rules[place..])
}

/// The strictest action among rules that only tighten. Their order does not matter, and no match means no restriction.
fn tightened_action(tighten: &[Rule], permission: &str, pattern: &str) -> Action {
    let matching = tighten.iter().filter(|r| wildcard(&r.permission, permission) && wildcard(&r.pattern, pattern));
    matching.map(|rule| rule.action).max().unwrap_or(Action::Allow)
}

/// Whether an earlier `always` reply allows this.
pub(crate) fn covers(approved: &[Rule], permission: &str, pattern: &str) -> bool {
    evaluate(approved, permission, pattern) == Action::Allow
}

/// Whether an earlier `always` reply covered everything, or exactly this text.
fn was_approved_verbatim(approved: &[Rule], permission: &str, pattern: &str) -> bool {
    let shown = |rule: &Rule| rule.permission == permission && (rule.pattern == "*" || rule.pattern == pattern);
    approved.iter().any(shown)
}

/// Rules for this permission that restrict less than everything.
fn narrow_rules<'a>(rules: &'a [Rule], permission: &str) -> impl Iterator<Item = &'a Rule> {
    rules.iter().filter(move |rule| {
        rule.action != Action::Allow && rule.pattern != "*" && wildcard(&rule.permission, permission)
    })
}

/// Whether any rule for this permission has a pattern narrower than `*`.
pub(crate) fn has_pattern_rules(rules: &[Rule], permission: &str) -> bool {
    rules.iter().any(|rule| rule.pattern != "*" && wildcard(&rule.permission, permission))
}

fn has_narrow_rule(rules: &[Rule], permission: &str) -> bool {
    narrow_rules(rules, permission).next().is_some()
}

/// Whether an argument contains, as a separate word, the name of a command that a rule restricts.
fn names_restricted_command(rules: &[Rule], need: &Need) -> bool {
    if need.arguments.is_empty() {
        return false;
    }
    narrow_rules(rules, &need.permission).any(|rule| {
        let command = rule.pattern.split(' ').next().unwrap_or_default();
        let command = command.rsplit('/').next().unwrap_or_default();
        let known = !command.chars().all(|c| matches!(c, '*' | '?'));
        known && need.arguments.iter().any(|text| mentions_command(text, command))
    })
}

/// Whether a text contains a command's name between separators, or attached to a short option.
fn mentions_command(text: &str, command: &str) -> bool {
    text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))).any(|word| {
        let option = word.starts_with('-') && !word.starts_with("--");
        !word.is_empty() && (wildcard(command, word) || (option && word.ends_with(command)))
    })
}

/// Whether the rules refuse a tool whatever its arguments. Such a tool is not offered to the model and cannot be
/// called.
pub(crate) fn refuses_tool(rules: &[Rule], tool: &str) -> bool {
    let (permission, resources) = (permission_of_tool(tool), is_resource_tool(tool));
    // Reading files and reading resources share one permission; the pattern's prefix tells them apart.
    let about_other =
        |rule: &Rule| permission == READ && rule.pattern != "*" && rule.pattern.starts_with(RESOURCES.0) != resources;
    let last = rules.iter().rfind(|rule| wildcard(&rule.permission, permission) && !about_other(rule));
    last.is_some_and(|rule| {
        rule.action == Action::Deny && (rule.pattern == "*" || resources && rule.pattern == RESOURCES.1)
    })
}

/// Restricts an agent to some tools. Those keep their rules; everything else is denied, including MCP tools, MCP
/// resources and skills.
pub(crate) fn restrict_to_tools(rules: &mut Vec<Rule>, tools: &[String]) {
    // These permissions say where tools may go and how often they may repeat a call. They are not tools.
    const KEPT: [&str; 2] = ["external_directory", "doom_loop"];
    let files = tools.iter().filter(|tool| !is_resource_tool(tool)).map(|tool| permission_of_tool(tool));
    let named: Vec<&str> = KEPT.into_iter().chain(files).collect();
    let mut kept = vec![Rule::new("*", "*", Action::Deny)];
    for name in &named {
        let own = rules.iter().filter(|rule| wildcard(&rule.permission, name));
        kept.extend(own.map(|rule| Rule::new(*name, &rule.pattern, rule.action)));
    }
    if !tools.iter().any(|tool| is_resource_tool(tool)) {
        kept.push(Rule::new(READ, RESOURCES.1, Action::Deny));
    } else if !named.contains(&READ) {
        let about = |rule: &&Rule| rule.pattern == "*" || rule.pattern.starts_with(RESOURCES.0);
        let read = rules.iter().filter(|rule| wildcard(&rule.permission, READ)).filter(about);
        kept.extend(read.map(|rule| {
            let pattern = if rule.pattern == "*" { RESOURCES.1 } else { &rule.pattern };
            Rule::new(READ, pattern, rule.action)
        }));
    }
    rules.extend(kept);
}

/// Whether a tool works with the resources of MCP servers.
fn is_resource_tool(tool: &str) -> bool {
    ["list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"].contains(&tool)
}

/// The permission that covers a tool.
pub(crate) fn permission_of_tool(tool: &str) -> &str {
    match tool {
        "edit" | "write" | "apply_patch" => "edit",
        tool if is_resource_tool(tool) => READ,
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
    fn an_argument_that_names_a_restricted_command_asks() {
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
    fn an_opaque_need_is_allowed_only_if_everything_is() {
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
    fn an_opaque_need_asks_if_a_rule_is_narrow() {
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
    fn a_replaced_rule_restricts_nothing() {
        let rules = [
            Rule::new("bash", "rm *", Action::Deny),
            Rule::new("*", "*", Action::Allow),
            Rule::new("read", "*.env", Action::Ask),
        ];
        assert_eq!(decide(&rules, &[], &[], &need("bash", &["$X"], true)), Action::Allow);
        assert_eq!(decide(&rules, &[], &[], &need("read", &["$X"], true)), Action::Ask);
        let tighten = [Rule::new("bash", "rm *", Action::Deny), Rule::new("bash", "*", Action::Allow)];
        assert_eq!(decide(&rules, &tighten, &[], &need("bash", &["$X"], true)), Action::Ask);
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
    fn an_approval_settles_an_opaque_need_only_if_it_was_shown() {
        let rules = [Rule::new("*", "*", Action::Ask)];
        let opaque = |patterns: &[&str]| need("bash", patterns, true);
        for (approved, patterns, want) in [
            ("git *", &["git log $X"][..], Action::Ask),
            ("git *", &["git status", "git $X"], Action::Ask),
            ("git $X", &["git $X"], Action::Allow),
            ("git $X", &["git $X", "git $Y"], Action::Ask),
            ("git ?X", &["git $X"], Action::Ask),
            ("*", &["git $X"], Action::Allow),
        ] {
            let approved = [Rule::new("bash", approved, Action::Allow)];
            assert_eq!(decide(&rules, &[], &approved, &opaque(patterns)), want, "{approved:?} {patterns:?}");
        }
        let other = [Rule::new("edit", "*", Action::Allow)];
        assert_eq!(decide(&rules, &[], &other, &opaque(&["x"])), Action::Ask);
    }

    #[test]
    fn only_the_named_tools_remain_and_keep_their_rules() {
        let before = [
            Rule::new("*", "*", Action::Allow),
            Rule::new("external_directory", "*", Action::Ask),
            Rule::new("read", "*.env", Action::Ask),
            Rule::new("bash", "*", Action::Ask),
            Rule::new("bash", "rm *", Action::Deny),
            Rule::new("read", "mcp:docs:*", Action::Deny),
        ];
        let everything = [
            "read",
            "edit",
            "write",
            "apply_patch",
            "bash",
            "grep",
            "glob",
            "list",
            "task",
            "skill",
            "todowrite",
            "webfetch",
            "question",
            "server_tool",
            "read_mcp_resource",
            "list_mcp_resources",
            "list_mcp_resource_templates",
            "not yet known",
        ];
        for (tools, offered) in [
            (&["read", "grep"][..], &["read", "grep"][..]),
            (&["write"], &["edit", "write", "apply_patch"]),
            (&["bash"], &["bash"]),
            (&["server_tool"], &["server_tool"]),
            (&["read_mcp_resource"], &["read_mcp_resource", "list_mcp_resources", "list_mcp_resource_templates"]),
            (&[], &[]),
        ] {
            let mut rules = before.to_vec();
            restrict_to_tools(&mut rules, &tools.iter().map(|tool| (*tool).to_owned()).collect::<Vec<_>>());
            let left: Vec<&str> = everything.into_iter().filter(|tool| !refuses_tool(&rules, tool)).collect();
            assert_eq!(left, offered, "{tools:?}");
            for (permission, pattern) in [
                ("read", "x"),
                ("read", "a.env"),
                ("read", "mcp:docs:x"),
                ("read", "mcp:other:x"),
                ("bash", "ls"),
                ("bash", "rm x"),
                ("skill", "x"),
                ("server_tool", "*"),
                ("external_directory", "/etc/*"),
            ] {
                let of_resource = pattern.starts_with("mcp:");
                let named = tools
                    .iter()
                    .any(|tool| permission_of_tool(tool) == permission && is_resource_tool(tool) == of_resource);
                let kept = named || permission == "external_directory";
                let want = if kept { evaluate(&before, permission, pattern) } else { Action::Deny };
                assert_eq!(evaluate(&rules, permission, pattern), want, "{tools:?}: {permission} {pattern}");
            }
        }
    }

    #[test]
    fn a_tool_is_refused_only_by_a_plain_denial() {
        let rules = [Rule::new("*", "*", Action::Allow), Rule::new("edit", "*", Action::Deny)];
        assert!(refuses_tool(&rules, "edit"));
        assert!(!refuses_tool(&rules, "bash"));
        let partly = [Rule::new("edit", "*", Action::Deny), Rule::new("edit", "docs/*", Action::Allow)];
        assert!(!refuses_tool(&partly, "edit"));
    }
}
