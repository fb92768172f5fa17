//! Everything loaded for one directory: configuration, project, agents, commands and tools.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use api::{Agent, Command, CommandSource, HostError, Project, ProjectTime, Rule, SessionId};
use config::{FileStamps, LoadedConfig};
use indexmap::IndexMap;
use store::Location;
use tools::{KnownFiles, Registry, RegistryOptions};

use crate::Inner;
use crate::ask::permission;
use crate::ask::rules::{CompiledRules, FifoCache, Level};
use crate::project::models::Catalog;
use crate::project::{agents, mcp};
use crate::remote::RemoteAgent;
use crate::session::tidy;
use crate::spending::limits::{AgentLimits, Limits};
use crate::subagent::task;
use crate::turn::command;

/// A directory that sessions work in.
pub(crate) struct Instance {
    pub(crate) directory: PathBuf,
    /// Where its configuration comes from: the directory itself, or the one its worktree was made from.
    pub(crate) origin: PathBuf,
    pub(crate) loaded: Arc<LoadedConfig>,
    /// The configuration in effect at the origin: `loaded` itself, or what it was derived from.
    pub(crate) source: Arc<LoadedConfig>,
    /// The state of the files when they were read, or when an edit to them was rejected.
    pub(crate) file_stamps: Mutex<FileStamps>,
    /// Whether the files were edited since and cannot be read.
    pub(crate) has_rejected_edit: AtomicBool,
    pub(crate) project: Project,
    pub(crate) place: Location,
    pub(crate) agents: IndexMap<String, Agent>,
    /// How many rules of each agent are built in.
    builtin_rules: HashMap<String, usize>,
    /// Whether `agents` are the careful variants.
    careful: bool,
    /// The agents of a careful engine, for work that such an engine began.
    careful_agents: OnceLock<IndexMap<String, Agent>>,
    compiled: FifoCache<CompiledRules>,
    pub(crate) commands: Vec<Command>,
    pub(crate) catalog: Catalog,
    pub(crate) tools: Registry,
    /// The tools for models that write patches instead of edits.
    pub(crate) patch_tools: Registry,
    pub(crate) options: Arc<tools::Options>,
    /// The directory's MCP servers, shared by all its sessions.
    pub(crate) servers: Arc<::mcp::Servers>,
    pub(crate) limits: Limits,
    /// Runs programs with the environment variables that the configuration hides removed.
    pub(crate) exec: exec::Exec,
}

impl Instance {
    /// Loads the configuration of a directory. MCP servers whose configuration is unchanged keep running.
    pub(crate) fn load(inner: &Inner, directory: &Path, before: Option<&Self>) -> Self {
        let isolated = inner.isolated_at(directory);
        let origin = isolated.as_ref().map_or_else(|| directory.to_owned(), |isolated| PathBuf::from(&isolated.origin));
        let inputs = inner.inputs_at(&origin);
        let (source, loaded) = match &isolated {
            None => {
                let loaded = Arc::new(config::load(&inputs));
                (loaded.clone(), loaded)
            }
            // Use what is in effect at the origin, not its files: an edit may have broken them.
            Some(isolated) => {
                let source = inner.instance(&origin).source.clone();
                let mut own = (*source).clone();
                own.project.worktree = isolated.directory.clone().into();
                (source, Arc::new(own))
            }
        };
        let output_dir = tidy::outputs(&inputs.dirs);
        let now = api::now();
        let project = Project {
            id: loaded.project.id.clone(),
            worktree: loaded.project.main.to_string_lossy().into_owned(),
            vcs: loaded.project.vcs.clone(),
            name: None,
            icon: None,
            commands: None,
            time: ProjectTime { created: now, updated: now, initialized: None },
            sandboxes: Vec::new(),
        };
        let place = Location::new(origin.to_string_lossy().as_ref(), project.id.as_str());
        let (agents, builtin_rules) = agents::agents(&loaded, &output_dir.to_string_lossy(), inner.settings.careful);
        let registry = |apply_patch| {
            let list = loaded.config.tools.get("list") == Some(&true);
            let mut registry =
                Registry::builtin(&RegistryOptions { list, apply_patch, question: inner.settings.question_tool });
            registry.insert(task::tool(&agents));
            for tool in &inner.settings.tools {
                if registry.get(tool.name()).is_none() {
                    registry.insert(tool.clone());
                }
            }
            if let Some(config) = loaded.config.other.get(tools::WEBSEARCH)
                && search_tool(&loaded).is_none()
            {
                match tools::SearchEndpoint::read(config) {
                    Ok(endpoint) => registry.insert(tools::websearch(endpoint)),
                    Err(error) => tracing::warn!(%error, "websearch is not available"),
                }
            }
            registry
        };
        let same = before.filter(|before| mcp::has_same_servers(&before.loaded, &loaded));
        let servers = same.map(|before| before.servers.clone());
        let servers = servers.unwrap_or_else(|| Arc::new(mcp::servers(inner, &loaded, directory, &place)));
        Self {
            servers,
            commands: commands(&loaded),
            catalog: Catalog::new(loaded.clone(), inner.settings.scripts.keys(), &inner.settings.inputs.env),
            tools: registry(false),
            patch_tools: registry(true),
            options: Arc::new(options(inner, &loaded, &agents, output_dir)),
            limits: Limits::new(&loaded.config),
            exec: inner.exec.hiding(&loaded.config.env.hide),
            directory: directory.to_owned(),
            origin,
            agents,
            builtin_rules,
            careful: inner.settings.careful,
            careful_agents: OnceLock::new(),
            compiled: FifoCache::default(),
            file_stamps: Mutex::new(loaded.file_stamps.clone()),
            has_rejected_edit: AtomicBool::new(false),
            loaded,
            source,
            project,
            place,
        }
    }

    /// An agent by name.
    pub(crate) fn agent(&self, name: &str) -> Result<&Agent, HostError> {
        self.agents.get(name).ok_or_else(|| HostError::NotFound {
            what: "agent",
            id: name.to_owned(),
            known: self.agents.values().filter(|a| a.hidden != Some(true)).map(|a| a.name.clone()).collect(),
        })
    }

    /// The current rules of an agent and a session. A missing agent has none.
    pub(crate) fn rules_of(&self, agent: &str, careful: bool, session: &[Rule]) -> Arc<CompiledRules> {
        self.compiled.get(agent, careful, session, || {
            let make = || agents::agents(&self.loaded, &self.options.output_dir.to_string_lossy(), true).0;
            let agents = if careful && !self.careful { self.careful_agents.get_or_init(make) } else { &self.agents };
            let rules = agents.get(agent).map(|agent| agent.permission.as_slice()).unwrap_or_default();
            let builtin = self.builtin_rules.get(agent).copied().unwrap_or(0);
            Level::new(rules, builtin, session, &self.loaded.config.tightened(agent))
        })
    }

    /// The agents as clients see them, with possible secrets in their options masked.
    pub(crate) fn agents_for_clients(&self) -> Vec<Agent> {
        let shown = |agent: &Agent| {
            let mut agent = agent.clone();
            self.loaded.redactor.options(&mut agent.options);
            agent.prompt = agent.prompt.map(|prompt| self.loaded.redactor.text(&prompt));
            agent
        };
        self.agents.values().map(shown).collect()
    }

    /// The status of each MCP server as clients see it, redacted because an error may quote an address or an argument.
    pub(crate) fn server_statuses_for_clients(&self) -> IndexMap<String, api::McpStatus> {
        let mut all = self.servers.status();
        for status in all.values_mut() {
            if let api::McpStatus::Failed { error } | api::McpStatus::NeedsClientRegistration { error } = status {
                *error = self.loaded.redactor.text(error);
            }
        }
        all
    }

    /// The limits of an agent that clients do not see.
    pub(crate) fn agent_limits(&self, name: &str) -> AgentLimits {
        AgentLimits::new(&self.loaded.config, name)
    }

    /// The remote agent behind an agent's name, if it does not run here.
    pub(crate) fn remote(&self, agent: &str) -> Option<RemoteAgent<'_>> {
        let (kind, settings) =
            self.loaded.config.agent.get(agent).filter(|_| self.agents.contains_key(agent))?.runner()?;
        Some(RemoteAgent { kind, settings: &settings.0 })
    }

    /// The agent for a prompt that names none.
    pub(crate) fn default_agent(&self) -> String {
        agents::default_name(&self.loaded, &self.agents)
    }

    /// The tool settings for one session: its model already has the instructions in the system prompt, and long outputs
    /// go to a folder of the session.
    pub(crate) fn options_for_session(&self, session: &SessionId, known_files: KnownFiles) -> tools::Options {
        let known = self.loaded.instructions.iter().map(|i| i.path.clone());
        let output_dir = self.options.output_dir.join(tidy::session_folder(session));
        let loaded_instructions = tools::LoadedInstructions::new(known);
        tools::Options { loaded_instructions, known_files, output_dir, ..(*self.options).clone() }
    }

    /// The root of the working tree that contains the directory. `project` has the main working tree.
    pub(crate) fn worktree(&self) -> &Path {
        &self.loaded.project.worktree
    }

    /// The MCP tool that the configuration names for web searches.
    pub(crate) fn search_tool(&self) -> Option<&str> {
        search_tool(&self.loaded)
    }

    /// The tools for a model.
    pub(crate) fn tools_for(&self, model: &str) -> &Registry {
        if takes_patches(model) { &self.patch_tools } else { &self.tools }
    }
}

fn search_tool(loaded: &LoadedConfig) -> Option<&str> {
    loaded.config.other.get(tools::WEBSEARCH)?.get("tool")?.as_str()
}

/// Whether a model was trained to write patches.
fn takes_patches(model: &str) -> bool {
    model.contains("gpt-") && !model.contains("oss") && !model.contains("gpt-4")
}

fn options(
    inner: &Inner,
    loaded: &LoadedConfig,
    agents: &IndexMap<String, Agent>,
    output_dir: PathBuf,
) -> tools::Options {
    let defaults = tools::Options { output_dir, ..tools::Options::default() };
    let limit = |value: Option<u64>, default| value.and_then(|n| usize::try_from(n).ok()).unwrap_or(default);
    let shell = loaded.config.shell.clone().or_else(|| inner.settings.inputs.env.get("SHELL").cloned());
    // Rules assume bash semantics, so where they distinguish commands, bash runs them.
    let has_bash_patterns = agents.values().any(|agent| permission::has_pattern_rules(&agent.permission, "bash"))
        || permission::has_pattern_rules(&loaded.config.tighten, "bash");
    let path = inner.settings.inputs.env.get("PATH").map(String::as_str).unwrap_or_default();
    tools::Options {
        max_lines: limit(loaded.config.tool_output.max_lines, defaults.max_lines),
        max_bytes: limit(loaded.config.tool_output.max_bytes, defaults.max_bytes),
        shell: choose_shell(shell.as_deref(), has_bash_patterns, path).unwrap_or_else(|| defaults.shell.clone()),
        skills: loaded.skills.clone(),
        user_agent: format!("trefoil/{}", inner.settings.version),
        allow_private_fetch: inner.settings.inputs.env.get("TREFOIL_ALLOW_PRIVATE_FETCH").is_some_and(|v| v == "1"),
        ..defaults
    }
}

/// The shell that runs commands: the chosen one, or bash where rules distinguish commands. Without bash it is the
/// chosen one anyway, and then every command counts as opaque.
fn choose_shell(chosen: Option<&str>, has_bash_patterns: bool, path: &str) -> Option<PathBuf> {
    let chosen = chosen.filter(|shell| speaks_posix(shell)).map(PathBuf::from);
    let is_bash = chosen.as_ref().is_some_and(|shell| shell.ends_with("bash"));
    if has_bash_patterns && !is_bash { bash(path).or(chosen) } else { chosen.or_else(|| bash(path)) }
}

/// Bash from its usual places, or from a directory of `PATH`.
fn bash(path: &str) -> Option<PathBuf> {
    let usual = ["/bin", "/usr/bin", "/usr/local/bin"].into_iter();
    let others = path.split(':').filter(|directory| directory.starts_with('/'));
    usual.chain(others).map(|directory| Path::new(directory).join("bash")).find(|bash| bash.is_file())
}

/// Rules assume POSIX shell syntax, so shells with another syntax (fish, nushell) cannot run tools.
fn speaks_posix(shell: &str) -> bool {
    let name = shell.rsplit('/').next().unwrap_or_default();
    matches!(name, "bash" | "zsh" | "sh" | "dash" | "ksh") && shell.starts_with('/') && Path::new(shell).exists()
}

fn commands(loaded: &LoadedConfig) -> Vec<Command> {
    let builtin = |name: &str, description: &str, text: &str, subtask: Option<bool>| Command {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        agent: None,
        model: None,
        source: Some(CommandSource::Command),
        template: text.to_owned(),
        subtask,
        hints: config::hints(text),
    };
    let mut all: IndexMap<String, Command> = IndexMap::new();
    let mut add = |command: Command| {
        all.insert(command.name.clone(), command);
    };
    add(builtin(command::INIT, "write or improve AGENTS.md", include_str!("../prompts/init.md"), None));
    let review = include_str!("../prompts/review.md");
    add(builtin("review", "review changes: uncommitted, or a commit, branch or pull request", review, Some(true)));
    for skill in &loaded.skills {
        let folder = Path::new(&skill.location).parent().unwrap_or(Path::new("/"));
        add(Command {
            name: skill.name.clone(),
            description: skill.description.clone(),
            agent: None,
            model: None,
            source: Some(CommandSource::Skill),
            template: tools::skill_text(&skill.content, folder),
            subtask: None,
            hints: Vec::new(),
        });
    }
    for command in &loaded.commands {
        add(command.clone());
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bash_runs_commands_if_rules_have_patterns() {
        let bash = bash("").unwrap();
        assert_eq!(choose_shell(Some("/bin/sh"), false, ""), Some("/bin/sh".into()));
        assert_eq!(choose_shell(Some("/bin/sh"), true, ""), Some(bash.clone()));
        assert_eq!(choose_shell(Some("/nowhere/zsh"), false, ""), Some(bash.clone()));
        assert_eq!(choose_shell(bash.to_str(), true, ""), Some(bash.clone()));
        assert_eq!(choose_shell(None, true, ""), Some(bash));
    }
}
