//! The tools available to a session.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::bash::Bash;
use crate::files::edit::Edit;
use crate::files::lock::FileLocks;
use crate::files::patch::ApplyPatch;
use crate::files::read::Read;
use crate::files::write::Write;
use crate::search::glob::Glob;
use crate::search::grep::Grep;
use crate::search::list::List;
use crate::session::question::AskQuestions;
use crate::session::skill::LoadSkill;
use crate::session::todo::TodoWrite;
use crate::tool::invalid::Invalid;
use crate::tool::{Tool, erase};
use crate::web::webfetch::WebFetch;

/// Which optional built-in tools to include.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RegistryOptions {
    /// `list`, which current OpenCode does not have.
    pub list: bool,
    /// `apply_patch` instead of `edit` and `write`, for models that were trained on it.
    pub apply_patch: bool,
    /// `question`, if someone can answer.
    pub question: bool,
}

/// Tools by name. Cheap to clone.
#[derive(Clone, Default)]
pub struct Registry {
    tools: BTreeMap<String, Arc<dyn Tool>>,
}

impl Registry {
    /// The built-in tools. Tools of one registry wait for each other when they change the same file.
    pub fn builtin(options: &RegistryOptions) -> Self {
        let locks = FileLocks::default();
        let mut registry = Self::default();
        let always = [
            erase(Bash),
            erase(Glob),
            erase(Grep),
            erase(Invalid),
            erase(LoadSkill),
            erase(Read),
            erase(TodoWrite),
            erase(WebFetch),
        ];
        always.into_iter().for_each(|tool| registry.insert(tool));
        if options.apply_patch {
            registry.insert(erase(ApplyPatch { locks }));
        } else {
            registry.insert(erase(Edit { locks: locks.clone() }));
            registry.insert(erase(Write { locks }));
        }
        if options.list {
            registry.insert(erase(List));
        }
        if options.question {
            registry.insert(erase(AskQuestions));
        }
        registry
    }

    /// Returns the tool of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name)
    }

    /// All tools, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.values()
    }

    /// Adds a tool, replacing one of the same name.
    pub fn insert(&mut self, tool: Arc<dyn Tool>) {
        self.tools.insert(tool.name().to_owned(), tool);
    }
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests {
    use super::*;

    fn names(options: RegistryOptions) -> Vec<String> {
        Registry::builtin(&options).iter().map(|tool| tool.name().to_owned()).collect()
    }

    #[test]
    fn options_select_the_tools() {
        let plain = ["bash", "edit", "glob", "grep", "invalid", "read", "skill", "todowrite", "webfetch", "write"];
        assert_eq!(names(RegistryOptions::default()), plain);
        let other = names(RegistryOptions { list: true, apply_patch: true, question: true });
        assert!(
            other.contains(&"apply_patch".into())
                && other.contains(&"list".into())
                && other.contains(&"question".into())
        );
        assert!(!other.contains(&"edit".into()) && !other.contains(&"write".into()));
    }

    #[test]
    fn a_description_keeps_its_lines() {
        let registry = Registry::builtin(&RegistryOptions { apply_patch: true, ..RegistryOptions::default() });
        let description = registry.get("apply_patch").unwrap().description();
        assert!(description.contains("\n*** Add File: notes/new.md\n+every line"), "{description}");
    }

    #[test]
    fn every_tool_describes_itself_and_its_arguments() {
        for tool in Registry::builtin(&RegistryOptions { list: true, question: true, apply_patch: false }).iter() {
            assert!(!tool.description().is_empty(), "{}", tool.name());
            let schema = tool.schema();
            assert_eq!(schema["type"], "object", "{}", tool.name());
            for (key, property) in schema["properties"].as_object().unwrap() {
                assert!(property.get("description").is_some(), "{} {key}", tool.name());
            }
        }
    }
}
