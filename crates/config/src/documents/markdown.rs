//! Agents, commands and skills written as markdown files.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use api::{Json, JsonMap, Skill};

use crate::files::stamps::FileStamps;
use crate::files::walk;
use crate::files::{self, MAX_MARKDOWN_BYTES};
use crate::problem::{AffectedAgents, Problem};
use crate::syntax::frontmatter::{self, FrontMatterError, FrontMatterState, KeyPositions};

/// The maximum number of files per folder.
pub const MAX_DOCUMENTS: usize = 1_000;

/// What a markdown file describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentKind {
    /// An agent: the body is its prompt.
    Agent,
    /// A primary agent (the older name).
    Mode,
    /// A command: the body is its template.
    Command,
    /// A skill: the body is its text.
    Skill,
}

impl DocumentKind {
    /// Marks the problem with an unreadable document: only an agent may have had denials.
    fn unreadable(self, problem: Problem, affects: AffectedAgents) -> Problem {
        match self {
            Self::Agent | Self::Mode => problem.affecting(affects),
            Self::Command | Self::Skill => problem,
        }
    }
}

/// A parsed markdown file.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The file.
    pub path: PathBuf,
    /// What it describes.
    pub kind: DocumentKind,
    /// Its `name`, or one derived from its path: `agent/team/reviewer.md` is `team/reviewer`.
    pub name: String,
    /// The front matter.
    pub front: JsonMap,
    /// The whole text.
    pub text: String,
    body: usize,
    positions: KeyPositions,
}

impl Document {
    /// The text after the front matter.
    pub fn body(&self) -> &str {
        &self.text[self.body..]
    }

    /// The position of a key in the front matter, by its path.
    pub(crate) fn position(&self, path: &[String]) -> Option<(usize, usize)> {
        frontmatter::locate(&self.positions, path)
    }

    /// The equivalent configuration; `None` for a skill. Without a body the prompt is empty, as in OpenCode.
    pub(crate) fn config(&self) -> Option<Json> {
        let mut entry = self.front.clone();
        entry.shift_remove("name");
        let (section, body) = match self.kind {
            DocumentKind::Agent | DocumentKind::Mode => ("agent", "prompt"),
            DocumentKind::Command => ("command", "template"),
            DocumentKind::Skill => return None,
        };
        entry.insert(body.to_owned(), self.body().trim().into());
        if self.kind == DocumentKind::Mode {
            entry.insert("mode".to_owned(), "primary".into());
        }
        let named: JsonMap = [(self.name.clone(), Json::Object(entry))].into_iter().collect();
        Some(Json::Object([(section.to_owned(), Json::Object(named))].into_iter().collect()))
    }

    /// The skill, or what is missing.
    pub(crate) fn skill(&self) -> Result<Skill, Problem> {
        let description = self.front.get("description").and_then(Json::as_str).filter(|text| !text.is_empty());
        if description.is_none() && !self.front.contains_key("name") {
            let message = "this skill has neither a name nor a description; add both to its front matter";
            return Err(Problem::error(message).in_file(&self.path));
        }
        Ok(Skill {
            name: self.name.clone(),
            description: description.map(str::to_owned),
            location: self.path.to_string_lossy().into_owned(),
            content: self.body().to_owned(),
        })
    }
}

/// Reads the markdown files of a configuration folder (`.opencode`, `~/.config/trefoil` …): `{agent,agents}/**/*.md`,
/// `{command,commands}/**/*.md`, `{mode,modes}/*.md`, `{skill,skills}/**/SKILL.md`.
pub fn discover_markdown(folder: &Path, stamps: &mut FileStamps, problems: &mut Vec<Problem>) -> Vec<Document> {
    let mut documents = Vec::new();
    stamps.record(folder);
    for name in subfolders(folder) {
        let kind = match name.as_str() {
            "agent" | "agents" => DocumentKind::Agent,
            "mode" | "modes" => DocumentKind::Mode,
            "command" | "commands" => DocumentKind::Command,
            "skill" | "skills" => DocumentKind::Skill,
            "tool" | "tools" | "plugin" | "plugins" => {
                let message = "tools and plugins written in JavaScript are not run";
                problems.push(Problem::warning(message).in_file(&folder.join(name)));
                continue;
            }
            _ => continue,
        };
        documents.extend(documents_below(&folder.join(name), kind, stamps, problems));
    }
    problems.extend(shared_names(&documents));
    documents
}

/// Agents and commands in one folder that share a name. OpenCode takes whichever it happens to find last.
fn shared_names(documents: &[Document]) -> Vec<Problem> {
    let mut first: HashMap<(bool, &str), &Path> = HashMap::new();
    let mut problems = Vec::new();
    for document in documents.iter().filter(|document| document.kind != DocumentKind::Skill) {
        let key = (document.kind == DocumentKind::Command, document.name.as_str());
        if let Some(other) = first.insert(key, &document.path) {
            let message = format!("{} also has the name \"{}\"; both are merged", other.display(), document.name);
            problems.push(Problem::warning(message).in_file(&document.path));
        }
    }
    problems
}

/// Reads the files of that kind below a folder.
pub(crate) fn documents_below(
    folder: &Path,
    kind: DocumentKind,
    stamps: &mut FileStamps,
    problems: &mut Vec<Problem>,
) -> Vec<Document> {
    let accept = |path: &Path| match kind {
        DocumentKind::Skill => path.file_name() == Some(OsStr::new("SKILL.md")),
        DocumentKind::Mode => path.parent() == Some(folder) && is_markdown(path),
        DocumentKind::Agent | DocumentKind::Command => is_markdown(path),
    };
    let mut paths = walk::files(folder, |folder| stamps.record(folder), accept);
    if paths.len() > MAX_DOCUMENTS {
        let message = format!("has more than {MAX_DOCUMENTS} markdown files; the rest is left out");
        problems.push(kind.unreadable(Problem::error(message).in_file(folder), AffectedAgents::All));
        paths.truncate(MAX_DOCUMENTS);
    }
    paths.iter().for_each(|path| stamps.record(path));
    paths.into_iter().filter_map(|path| read(path, folder, kind, problems)).collect()
}

fn is_markdown(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("md"))
}

fn subfolders(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().take(walk::MAX_ENTRIES).filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn read(path: PathBuf, folder: &Path, kind: DocumentKind, problems: &mut Vec<Problem>) -> Option<Document> {
    let default_name = match kind {
        DocumentKind::Skill => {
            path.parent().unwrap_or(&path).file_name().unwrap_or_default().to_string_lossy().into_owned()
        }
        _ => path.strip_prefix(folder).unwrap_or(&path).with_extension("").to_string_lossy().into_owned(),
    };
    let text = match files::read(&path, MAX_MARKDOWN_BYTES) {
        Ok(text) => text?,
        Err(problem) => {
            problems.push(kind.unreadable(problem, AffectedAgents::All));
            return None;
        }
    };
    // Unreadable front matter may have denied something, and may have named another agent than the path does.
    let unreadable = |broken: &FrontMatterError, so: &str| {
        let affects = match frontmatter::possible_names(&text) {
            Some(names) => AffectedAgents::Named(std::iter::once(default_name.clone()).chain(names).collect()),
            None => AffectedAgents::All,
        };
        let problem = Problem::error(format!("{}; {so}", broken.message)).in_file(&path).at(Some((broken.line, 1)));
        kind.unreadable(problem, affects)
    };
    let front = match frontmatter::split(&text) {
        Ok(front) => front,
        Err(broken) => {
            problems.push(unreadable(&broken, "the file is left out"));
            return None;
        }
    };
    match &front.state {
        FrontMatterState::Valid => {}
        FrontMatterState::Repaired(broken) => {
            let message = format!("{}; values with a colon are taken for text, quote them", broken.message);
            problems.push(Problem::warning(message).in_file(&path).at(Some((broken.line, 1))));
        }
        FrontMatterState::Ignored(broken) => problems.push(unreadable(broken, "the front matter is ignored")),
    }
    let name = match front.map.get("name") {
        Some(Json::String(name)) if !name.is_empty() => name.clone(),
        Some(value @ (Json::Number(_) | Json::Bool(_))) => value.to_string(),
        _ => default_name,
    };
    let (body, positions, front) = (text.len() - front.body.len(), front.positions, front.map);
    Some(Document { path, kind, name, front, text, body, positions })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn files_become_what_they_describe() {
        let dir = tree(&[
            ("agent/reviewer.md", "---\ndescription: R\nmode: subagent\n---\n\nPROMPT\n"),
            ("agents/team/lead.md", "just a prompt"),
            ("modes/ask.md", "---\nmodel: a/b\n---\nASK"),
            ("modes/deep/no.md", "x"),
            ("commands/go.md", "---\nsubtask: true\n---\nkw $1\n"),
            ("skills/one/SKILL.md", "---\nname: first\ndescription: D\n---\n\nTEXT\n"),
            ("skill/two/SKILL.md", "---\nlicense: MIT\n---\n"),
            ("skills/two/SKILL.md", "---\nname: second\n---\n"),
            ("skill/two/other.md", "x"),
            ("agent/broken.md", "---\na: [\n---\n"),
            ("agent/note.txt", "x"),
            ("tool/t.ts", "x"),
        ]);
        let mut problems = Vec::new();
        let documents = discover_markdown(dir.path(), &mut FileStamps::default(), &mut problems);
        assert_eq!(problems.len(), 2);
        assert!(problems[0].to_string().contains("broken.md:2:1: this is not YAML"), "{}", problems[0]);
        assert!(problems[1].to_string().contains("/tool: tools and plugins"), "{}", problems[1]);
        let configs: Vec<_> = documents.iter().filter_map(Document::config).collect();
        let want = [
            json!({"agent": {"broken": {"prompt": "---\na: [\n---"}}}),
            json!({"agent": {"reviewer": {"description": "R", "mode": "subagent", "prompt": "PROMPT"}}}),
            json!({"agent": {"team/lead": {"prompt": "just a prompt"}}}),
            json!({"command": {"go": {"subtask": true, "template": "kw $1"}}}),
            json!({"agent": {"ask": {"model": "a/b", "mode": "primary", "prompt": "ASK"}}}),
        ];
        assert_eq!(configs, want);
        let skills: Vec<_> = documents.iter().filter(|d| d.kind == DocumentKind::Skill).map(Document::skill).collect();
        assert!(skills[0].as_ref().unwrap_err().message.contains("description"));
        let skill = skills[1].as_ref().unwrap();
        assert_eq!((skill.name.as_str(), skill.content.as_str()), ("first", "\nTEXT\n"));
        assert_eq!(skills[2].as_ref().unwrap().description, None);
        assert!(skill.location.ends_with("skills/one/SKILL.md"));
    }

    #[test]
    fn a_name_shared_by_two_files_is_reported() {
        let dir = tree(&[
            ("agent/a.md", "A"),
            ("agents/b.md", "---\nname: a\n---\nB"),
            ("mode/a.md", "C"),
            ("command/a.md", "D"),
            ("skill/a/SKILL.md", "---\nname: a\ndescription: d\n---\n"),
        ]);
        let mut problems = Vec::new();
        discover_markdown(dir.path(), &mut FileStamps::default(), &mut problems);
        let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].contains("agents/b.md: ") && said[0].contains("agent/a.md also has the name \"a\""),
            "{said:?}"
        );
        assert!(said[1].contains("mode/a.md: "), "{said:?}");
    }

    #[test]
    fn too_many_files_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..=MAX_DOCUMENTS {
            fs::write(dir.path().join(format!("{n}.md")), "x").unwrap();
        }
        let mut problems = Vec::new();
        let documents = documents_below(dir.path(), DocumentKind::Agent, &mut FileStamps::default(), &mut problems);
        assert_eq!(documents.len(), MAX_DOCUMENTS);
        assert_eq!(problems.len(), 1);
    }
}
