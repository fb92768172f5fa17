//! Agent files: those that ship with Trefoil, which have no effect until installed, and new ones.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use api::{AgentMode, Json, ModelRef};
use serde_json::json;

use crate::files::MAX_MARKDOWN_BYTES;
use crate::load::find;
use crate::schema::check::check;
use crate::syntax::frontmatter;
use crate::syntax::frontmatter::{FrontMatterError, FrontMatterState};
use crate::trust::content_hash;
use crate::{Inputs, TrustError, project};

#[cfg(test)]
mod tests;

/// The maximum length of an agent's name, in bytes.
const MAX_NAME: usize = 64;

/// Permissions that tools are switched on and off by, in the order in which they are written.
const TOOLS: [&str; 12] =
    ["read", "edit", "glob", "grep", "list", "bash", "webfetch", "websearch", "task", "todowrite", "skill", "question"];

/// An agent that ships with Trefoil.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionalAgent {
    /// Its name.
    pub name: &'static str,
    /// Its markdown file.
    pub text: &'static str,
    /// A tool that it uses and that may not be available.
    pub needs: Option<&'static str>,
}

/// The agents that ship with Trefoil.
pub const OPTIONAL_AGENTS: [OptionalAgent; 7] = [
    optional("codebase-analyzer", include_str!("../../agents/codebase-analyzer.md"), None),
    optional("codebase-locator", include_str!("../../agents/codebase-locator.md"), None),
    optional("codebase-pattern-finder", include_str!("../../agents/codebase-pattern-finder.md"), None),
    optional("component-tree", include_str!("../../agents/component-tree.md"), None),
    optional("thoughts-analyzer", include_str!("../../agents/thoughts-analyzer.md"), None),
    optional("thoughts-locator", include_str!("../../agents/thoughts-locator.md"), None),
    optional("web-search-researcher", include_str!("../../agents/web-search-researcher.md"), Some("websearch")),
];

const fn optional(name: &'static str, text: &'static str, needs: Option<&'static str>) -> OptionalAgent {
    OptionalAgent { name, text, needs }
}

impl OptionalAgent {
    /// When to use it.
    pub fn description(&self) -> String {
        let front = frontmatter::split(self.text).map(|front| front.map).unwrap_or_default();
        front.get("description").and_then(Json::as_str).unwrap_or_default().to_owned()
    }
}

/// Where to put an agent's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentPlace {
    /// For this user, in all projects.
    Global,
    /// For everybody who works on this project.
    Project,
    /// In this folder.
    Folder(PathBuf),
}

/// Why an agent's file was not written.
#[derive(Debug, thiserror::Error)]
pub enum AgentFileError {
    /// The name is invalid.
    #[error("an agent cannot be named {0:?}: use up to {MAX_NAME} lower case letters, digits, dashes and underscores")]
    Name(String),
    /// The content is not a valid agent.
    #[error("{0}")]
    Content(String),
    /// It already exists.
    #[error("{} already exists; change it, or choose another name", .0.display())]
    Exists(PathBuf),
    /// The folder leads out of the project.
    #[error("{} leads out of the project", .0.display())]
    Outside(PathBuf),
    /// It cannot be written.
    #[error("{} cannot be written: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It was written, but is not trusted.
    #[error("it was written, but is not trusted: {0}")]
    Trust(#[from] TrustError),
}

/// A new agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewAgent {
    /// When to use it.
    pub description: String,
    /// Who uses it.
    pub mode: Option<AgentMode>,
    /// Its model, `provider/model`.
    pub model: Option<String>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// The maximum number of model steps in one turn.
    pub steps: Option<u32>,
    /// The only tools it may use.
    pub tools: Option<Vec<String>>,
    /// Whether it works in its own git worktree.
    pub isolated: bool,
    /// Its system prompt.
    pub prompt: String,
}

impl NewAgent {
    /// Its file, or what is wrong with it.
    pub fn markdown(&self) -> Result<String, AgentFileError> {
        let wrong = |why: String| Err(AgentFileError::Content(why));
        if self.description.trim().is_empty() {
            return wrong("an agent needs a description: it says when to use it".to_owned());
        }
        if self.prompt.trim().is_empty() {
            return wrong("an agent needs a prompt: it says how to work".to_owned());
        }
        if let Some(model) = self.model.as_ref().filter(|model| ModelRef::parse(model).is_none()) {
            return wrong(format!("{model:?} is not a model; write it as provider/model"));
        }
        if let Some(temperature) = self.temperature.filter(|value| !(0.0..=2.0).contains(value)) {
            return wrong(format!("a temperature of {temperature} is invalid; it must be between 0 and 2"));
        }
        let mode = self.mode.map(|mode| match mode {
            AgentMode::Primary => "primary",
            AgentMode::Subagent => "subagent",
            AgentMode::All => "all",
        });
        let fields = [
            ("description", Some(json!(self.description.trim()))),
            ("mode", mode.map(Json::from)),
            ("model", self.model.clone().map(Json::from)),
            ("temperature", self.temperature.map(Json::from)),
            ("steps", self.steps.map(Json::from)),
            ("isolation", self.isolated.then(|| "worktree".into())),
        ];
        let mut text = "---\n".to_owned();
        for (key, value) in fields.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            // JSON strings and numbers are valid YAML; a bare word needs no quotes.
            let bare = value.as_str().filter(|word| word.bytes().all(|byte| byte.is_ascii_lowercase()));
            text += &format!("{key}: {}\n", bare.map_or_else(|| value.to_string(), str::to_owned));
        }
        text += &self.denials()?;
        Ok(format!("{text}---\n\n{}\n", self.prompt.trim()))
    }

    /// Denies everything that is not among the tools; those keep their rules. Today's tools are also denied by name,
    /// for programs that do not know `only`.
    fn denials(&self) -> Result<String, AgentFileError> {
        let Some(tools) = &self.tools else { return Ok(String::new()) };
        let permission = |tool: &String| match tool.as_str() {
            "write" | "edit" | "patch" | "multiedit" | "apply_patch" => Ok("edit"),
            "todoread" => Ok("todowrite"),
            other => TOOLS.iter().find(|known| **known == other).copied().ok_or_else(|| {
                AgentFileError::Content(format!("there is no tool {other:?}; known are {}", TOOLS.join(", ")))
            }),
        };
        let wanted = tools.iter().map(permission).collect::<Result<Vec<_>, _>>()?;
        let only = TOOLS.iter().filter(|tool| wanted.contains(tool)).copied().collect::<Vec<_>>().join(", ");
        let denied: String =
            TOOLS.iter().filter(|tool| !wanted.contains(tool)).map(|tool| format!("  {tool}: deny\n")).collect();
        let denied = if denied.is_empty() { denied } else { format!("permission:\n{denied}") };
        Ok(format!("only: [{only}]\n{denied}"))
    }
}

/// Writes an agent's file, never overwriting one. In a project it is trusted: whoever may run this may write there.
pub fn write_agent(inputs: &Inputs, place: &AgentPlace, name: &str, text: &str) -> Result<PathBuf, AgentFileError> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(fits) {
        return Err(AgentFileError::Name(name.to_owned()));
    }
    validate(name, text)?;
    let root = project::project_info(&inputs.directory, &inputs.dirs.state).worktree;
    let folder = match place {
        AgentPlace::Global => find::global_folder(inputs).join("agent"),
        AgentPlace::Project => root.join(".trefoil/agent"),
        AgentPlace::Folder(folder) => folder.clone(),
    };
    let path = folder.join(format!("{name}.md"));
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => AgentFileError::Exists(path.clone()),
        _ => AgentFileError::Write { path: path.clone(), error },
    };
    fs::create_dir_all(&folder).map_err(failed)?;
    let (real, real_root) = (fs::canonicalize(&folder).map_err(failed)?, fs::canonicalize(&root).map_err(failed)?);
    if *place == AgentPlace::Project && !real.starts_with(real_root) {
        return Err(AgentFileError::Outside(folder));
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    if path.starts_with(&root) {
        inputs.trust.remember(&path, &content_hash(text.as_bytes()))?;
    }
    Ok(path)
}

/// Checks that a text is an agent's file in which nothing would be ignored.
fn validate(name: &str, text: &str) -> Result<(), AgentFileError> {
    if text.len() as u64 > MAX_MARKDOWN_BYTES {
        return Err(AgentFileError::Content(format!("an agent's file has at most {MAX_MARKDOWN_BYTES} bytes")));
    }
    let refused =
        |broken: FrontMatterError| AgentFileError::Content(format!("line {}: {}", broken.line, broken.message));
    let front = frontmatter::split(text).map_err(refused)?;
    if let FrontMatterState::Repaired(broken) | FrontMatterState::Ignored(broken) = front.state {
        return Err(refused(broken));
    }
    let mut agent = front.map;
    agent.insert("prompt".to_owned(), front.body.trim().into());
    let mut config = json!({ "agent": { name: agent } });
    match check(&mut config).into_iter().next() {
        Some(finding) => Err(AgentFileError::Content(finding.message)),
        None => Ok(()),
    }
}

/// The installed file of an agent, if there is one.
pub fn installed_agent(inputs: &Inputs, name: &str) -> Option<PathBuf> {
    let root = project::project_info(&inputs.directory, &inputs.dirs.state).worktree;
    let folders = [root.join(".trefoil"), root.join(".opencode"), find::global_folder(inputs)];
    let mut files = folders.iter().flat_map(|folder| ["agent", "agents"].map(|kind| folder.join(kind)));
    files.find_map(|folder| Some(folder.join(format!("{name}.md"))).filter(|path| Path::exists(path)))
}
