//! Permission rules: an ordered list of patterns; the last matching rule decides.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a rule decides. Ordered by restriction, so the strictest of several is their maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "PermissionAction")]
pub enum Action {
    /// Allow it.
    Allow,
    /// Ask the human.
    Ask,
    /// Deny it.
    Deny,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PermissionRule")]
pub struct Rule {
    /// The permission, with wildcards.
    pub permission: String,
    /// The pattern it is wanted for, with wildcards.
    pub pattern: String,
    /// What the rule decides.
    pub action: Action,
}

impl Rule {
    /// A rule.
    pub fn new(permission: impl Into<String>, pattern: impl Into<String>, action: Action) -> Self {
        Self { permission: permission.into(), pattern: pattern.into(), action }
    }
}

/// An ordered list of rules.
pub type Ruleset = Vec<Rule>;

/// Returns the action of the last matching rule, or `Ask` if none matches.
pub fn evaluate<'a>(rules: impl IntoIterator<Item = &'a Rule>, permission: &str, pattern: &str) -> Action {
    rules
        .into_iter()
        .filter(|rule| wildcard(&rule.permission, permission) && wildcard(&rule.pattern, pattern))
        .last()
        .map_or(Action::Ask, |rule| rule.action)
}

/// Whether `text` matches `pattern`, where `*` stands for any run of characters and `?` for one.
///
/// A pattern that ends in ` *` also matches the text without arguments (`git *` matches `git`), as in OpenCode.
/// Linear in time: it backtracks to the last star only.
pub fn wildcard(pattern: &str, text: &str) -> bool {
    if let Some(head) = pattern.strip_suffix(" *")
        && plain_wildcard(head, text)
    {
        return true;
    }
    plain_wildcard(pattern, text)
}

fn plain_wildcard(pattern: &str, text: &str) -> bool {
    let (mut p, mut t) = (pattern, text);
    let mut retry: Option<(&str, &str)> = None;
    loop {
        let mut rest = p.chars();
        match rest.next() {
            Some('*') => {
                p = rest.as_str();
                retry = Some((p, t));
                continue;
            }
            Some(want) => {
                let mut left = t.chars();
                if let Some(got) = left.next()
                    && (want == '?' || want == got)
                {
                    p = rest.as_str();
                    t = left.as_str();
                    continue;
                }
            }
            None if t.is_empty() => return true,
            None => {}
        }
        let Some((after_star, from)) = retry else { return false };
        let mut left = from.chars();
        if left.next().is_none() {
            return false;
        }
        t = left.as_str();
        p = after_star;
        retry = Some((p, t));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wildcards() {
        for (pattern, text, want) in [
            ("*", "", true),
            ("*", "anything\nat all", true),
            ("git *", "git status", true),
            ("git *", "git", true),
            ("git *", "gitx", false),
            ("*.env", "a/b.env", true),
            ("*.env", "a/b.envx", false),
            ("*.env.*", "x.env.local", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXcYb", false),
            ("rm -rf /*", "rm -rf /home", true),
            ("é*", "été", true),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(wildcard(pattern, text), want, "{pattern:?} on {text:?}");
        }
    }

    #[test]
    fn the_last_match_wins_and_no_match_asks() {
        let rules = [
            Rule::new("*", "*", Action::Allow),
            Rule::new("bash", "*", Action::Deny),
            Rule::new("bash", "git *", Action::Allow),
        ];
        assert_eq!(evaluate(&rules, "bash", "git log"), Action::Allow);
        assert_eq!(evaluate(&rules, "bash", "ls"), Action::Deny);
        assert_eq!(evaluate(&rules, "read", "x"), Action::Allow);
        assert_eq!(evaluate(&[], "read", "x"), Action::Ask);
    }

    #[test]
    fn many_stars_stay_linear() {
        assert!(!wildcard(&"*a".repeat(200), &"a".repeat(100_000)[..199]));
        assert!(wildcard(&"*a".repeat(200), &"a".repeat(100_000)));
    }

    proptest! {
        #[test]
        fn literal_patterns_match_themselves_only(text in "[a-z/. ]{0,20}", other in "[a-z/. ]{0,20}") {
            prop_assert!(wildcard(&text, &text));
            if text != other && !text.ends_with(" *") {
                prop_assert!(!wildcard(&text, &other));
            }
        }

        #[test]
        fn a_star_takes_any_middle(head in "[a-z]{0,8}", middle in any::<String>(), tail in "[a-z]{0,8}") {
            let pattern = format!("{head}*{tail}");
            let text = format!("{head}{middle}{tail}");
            prop_assert!(wildcard(&pattern, &text));
        }
    }
}
