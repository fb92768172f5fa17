//! Where configuration is searched for, in merge order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Inputs;

/// Whose a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// The user's global directories, and those in their home.
    Global,
    /// A file that an environment variable names.
    Named,
    /// A file of the project.
    Project,
    /// A `.opencode` or `.trefoil` folder of the project, or one that an environment variable names.
    Folder,
    /// The content of an environment variable.
    Environment,
    /// Files of the machine's administrator.
    Managed,
}

/// File names in a global directory; later ones take precedence.
const GLOBAL_NAMES: &[&str] = &["config.json", "opencode.json", "opencode.jsonc", "trefoil.json", "trefoil.jsonc"];
/// File names in a project; later ones take precedence.
const PROJECT_NAMES: &[&str] = &["opencode.json", "opencode.jsonc", "trefoil.json", "trefoil.jsonc"];
/// File names in the administrator's directory; later ones take precedence.
pub(crate) const MANAGED_NAMES: [&str; 2] = ["opencode.json", "opencode.jsonc"];
/// Folders in a project and in the home directory; later ones take precedence.
const FOLDERS: [&str; 2] = [".opencode", ".trefoil"];
/// Folders of other programs that contain skills.
const EXTERNAL_SKILLS: &[&str] = &[".claude", ".agents"];

/// A location to search.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// A JSON file.
    File(PathBuf),
    /// A JSON file that must exist, and the environment variable that names it.
    Named(PathBuf, &'static str),
    /// Agents, commands and skills below this folder.
    Markdown(PathBuf),
    /// Skills of another program below this folder.
    Skills(PathBuf),
}

/// A location and its properties.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SearchLocation {
    pub(crate) location: Location,
    pub(crate) kind: SourceKind,
    /// Whether the user wrote it, rather than the authors of the repository.
    pub(crate) own: bool,
}

/// What the environment says about the search.
pub(crate) struct SearchOptions {
    /// Whether to read the project's files.
    pub(crate) project: bool,
    /// Whether to read `~/.claude/CLAUDE.md`.
    pub(crate) claude_prompt: bool,
    claude_skills: bool,
    agents_skills: bool,
}

impl SearchOptions {
    pub(crate) fn from_env(env: &BTreeMap<String, String>) -> Self {
        let on = |name: &str| {
            ["OPENCODE_", "TREFOIL_"].iter().any(|prefix| {
                let value = env.get(&format!("{prefix}{name}"));
                value.is_some_and(|value| matches!(value.to_ascii_lowercase().as_str(), "1" | "true"))
            })
        };
        let claude = !on("DISABLE_CLAUDE_CODE");
        let foreign = !on("DISABLE_EXTERNAL_SKILLS");
        Self {
            project: !on("DISABLE_PROJECT_CONFIG"),
            claude_prompt: claude && !on("DISABLE_CLAUDE_CODE_PROMPT"),
            claude_skills: claude && foreign && !on("DISABLE_CLAUDE_CODE_SKILLS"),
            agents_skills: foreign,
        }
    }

    fn external_skills(&self) -> impl Iterator<Item = &'static str> {
        let (claude, agents) = (self.claude_skills, self.agents_skills);
        EXTERNAL_SKILLS.iter().copied().filter(move |name| if *name == ".claude" { claude } else { agents })
    }
}

/// The project's folders, from its root down to the directory.
pub(crate) fn project_folders(directory: &Path, root: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        directory.ancestors().take_while(|at| at.starts_with(root)).map(Path::to_owned).collect();
    folders.reverse();
    folders
}

/// All locations to search, in merge order, which is OpenCode's: files first, then folders. The user's own folders in
/// their home come after those of the project, and those at the root of a project after those below it. Environment
/// variables with content come after all of these.
pub(crate) fn search_locations(inputs: &Inputs, options: &SearchOptions, project: &[PathBuf]) -> Vec<SearchLocation> {
    let mut locations = Vec::new();
    let mut add = |location, kind, own| locations.push(SearchLocation { location, kind, own });
    for name in options.external_skills() {
        add(Location::Skills(inputs.home.join(name).join("skills")), SourceKind::Global, true);
    }
    for folder in &inputs.dirs.config {
        for name in GLOBAL_NAMES {
            add(Location::File(folder.join(name)), SourceKind::Global, true);
        }
    }
    for name in ["OPENCODE_CONFIG", "TREFOIL_CONFIG"] {
        if let Some(path) = path_in(inputs, name) {
            add(Location::Named(path, name), SourceKind::Named, true);
        }
    }
    let project = if options.project { project } else { &[] };
    for folder in project {
        for name in PROJECT_NAMES {
            add(Location::File(folder.join(name)), SourceKind::Project, false);
        }
    }
    for folder in project.iter().rev() {
        for name in options.external_skills() {
            add(Location::Skills(folder.join(name).join("skills")), SourceKind::Folder, false);
        }
    }
    for folder in &inputs.dirs.config {
        add(Location::Markdown(folder.clone()), SourceKind::Global, true);
    }
    let below = |folder: &Path| {
        let home = folder == inputs.home;
        let kind = if home { SourceKind::Global } else { SourceKind::Folder };
        FOLDERS.map(|name| (folder.join(name), kind, home))
    };
    let in_project = project.iter().rev().flat_map(|folder| below(folder));
    let named = ["OPENCODE_CONFIG_DIR", "TREFOIL_CONFIG_DIR"];
    let named = named.iter().filter_map(|name| Some((path_in(inputs, name)?, SourceKind::Folder, true)));
    for (folder, kind, own) in in_project.chain(below(&inputs.home)).chain(named) {
        for name in PROJECT_NAMES {
            add(Location::File(folder.join(name)), kind, own);
        }
        add(Location::Markdown(folder), kind, own);
    }
    locations
}

/// The user's own file that takes precedence; a new one of Trefoil's if there is none.
pub(crate) fn global_file(inputs: &Inputs) -> PathBuf {
    last_file(inputs, &[], SourceKind::Global).unwrap_or_else(|| global_folder(inputs).join("trefoil.json"))
}

/// The user's own directory that only Trefoil reads.
pub(crate) fn global_folder(inputs: &Inputs) -> PathBuf {
    inputs.dirs.config.last().cloned().unwrap_or_else(|| inputs.home.join(".trefoil"))
}

/// The file of the directory itself that takes precedence; a new one that OpenCode reads too if there is none.
pub(crate) fn project_file(inputs: &Inputs) -> PathBuf {
    let here = std::slice::from_ref(&inputs.directory);
    let found = last_file(inputs, here, SourceKind::Folder).or_else(|| last_file(inputs, here, SourceKind::Project));
    found.unwrap_or_else(|| inputs.directory.join("opencode.json"))
}

/// Whether OpenCode reads this file as well, judging by its name or folder.
pub(crate) fn is_opencode_file(path: &Path) -> bool {
    let mut names = path.components().rev().filter_map(|part| part.as_os_str().to_str());
    names.find_map(|name| match name {
        "opencode" | ".opencode" | "opencode.json" | "opencode.jsonc" => Some(true),
        "trefoil" | ".trefoil" | "trefoil.json" | "trefoil.jsonc" => Some(false),
        _ => None,
    }) == Some(true)
}

/// The last existing file of that kind. Files that an environment variable names do not belong to the project.
fn last_file(inputs: &Inputs, project: &[PathBuf], kind: SourceKind) -> Option<PathBuf> {
    let locations = search_locations(inputs, &SearchOptions::from_env(&inputs.env), project).into_iter().rev();
    let mut files = locations.filter(|found| found.kind == kind && found.own == (kind == SourceKind::Global));
    files.find_map(|found| match found.location {
        Location::File(path) if path.symlink_metadata().is_ok() => Some(path),
        _ => None,
    })
}

fn path_in(inputs: &Inputs, name: &str) -> Option<PathBuf> {
    let value = inputs.env.get(name).filter(|value| !value.is_empty())?;
    Some(crate::files::resolve(value, &inputs.directory, &inputs.home))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_from_the_root_down() {
        let folders = project_folders(Path::new("/r/a/b"), Path::new("/r"));
        assert_eq!(folders, [PathBuf::from("/r"), "/r/a".into(), "/r/a/b".into()]);
        assert_eq!(project_folders(Path::new("/r"), Path::new("/r")), [PathBuf::from("/r")]);
    }

    #[test]
    fn opencode_files_are_recognised() {
        let foreign = ["/r/opencode.json", "/r/.trefoil/opencode.jsonc", "/h/.config/opencode/agent/team/a.md"];
        let ours =
            ["/opencode/trefoil.json", "/opencode/.trefoil/agent/a.md", "/h/.config/trefoil/config.json", "/x.json"];
        assert!(foreign.iter().all(|path| is_opencode_file(Path::new(path))));
        assert!(!ours.iter().any(|path| is_opencode_file(Path::new(path))));
    }

    #[test]
    fn search_options_from_the_environment() {
        let env = |name: &str| BTreeMap::from([(name.to_owned(), "1".to_owned())]);
        assert!(!SearchOptions::from_env(&env("OPENCODE_DISABLE_PROJECT_CONFIG")).project);
        assert!(SearchOptions::from_env(&BTreeMap::new()).project);
        let off = SearchOptions::from_env(&env("TREFOIL_DISABLE_CLAUDE_CODE"));
        assert!(!off.claude_prompt);
        assert_eq!(off.external_skills().collect::<Vec<_>>(), [".agents"]);
        assert_eq!(SearchOptions::from_env(&env("OPENCODE_DISABLE_EXTERNAL_SKILLS")).external_skills().count(), 0);
    }
}
