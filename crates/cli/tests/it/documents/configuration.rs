//! The configuration that documents show is accepted as it stands.

use super::{documents, split};
use crate::e2e::harness::{Harness, finish, spawn};

/// The first keys of examples that are configuration; other JSON in the documents is an editor's or an answer's.
const KEYS: [&str; 9] = ["a2a", "agent", "env", "mcp", "model", "permission", "provider", "session", "websearch"];

/// The configuration files that a code block shows. One block may show several, with blank lines between them.
fn files(text: &str) -> Vec<String> {
    let is_ours = |chunk: &&str| {
        let code: String = chunk.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let key = code.trim_start().strip_prefix('{').and_then(|rest| rest.split('"').nth(1));
        key.is_some_and(|key| KEYS.contains(&key))
    };
    text.split("\n\n").filter(is_ours).map(str::to_owned).collect()
}

/// Fails unless `config check` finds nothing wrong. Variables that the text takes values from are set.
#[track_caller]
fn is_accepted(path: &str, text: &str) {
    let harness = Harness::new();
    harness.project.write_home(path, text);
    let mut command = harness.command(&["config", "check"]);
    for rest in text.split("{env:").skip(1) {
        command.env(rest.split('}').next().unwrap(), "value");
    }
    let ran = finish(spawn(command)).expect(0);
    assert!(ran.stdout.contains("0 errors, 0 warnings"), "{text}\n{}", ran.stdout);
    assert!(!ran.stdout.contains("without effect"), "{text}\n{}", ran.stdout);
}

#[test]
fn the_configuration_that_documents_show_is_accepted() {
    let mut checked = 0;
    for file in documents() {
        for fence in split(&std::fs::read_to_string(&file).unwrap()).0 {
            match fence.language.as_str() {
                "json" | "jsonc" => {
                    for text in files(&fence.text) {
                        is_accepted(".config/trefoil/trefoil.jsonc", &text);
                        checked += 1;
                    }
                }
                "markdown" if fence.text.starts_with("---\n") => {
                    is_accepted(".config/trefoil/agent/example.md", &fence.text);
                    checked += 1;
                }
                _ => {}
            }
        }
    }
    assert!(checked >= 10, "only {checked} examples were found");
}
