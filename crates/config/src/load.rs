//! Loads the configuration in effect: read, check, guard, fill placeholders, merge, type.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use api::{Json, JsonMap, Skill};
use indexmap::IndexMap;

use crate::documents::instruction::{
    self, Candidate, Instruction, InstructionEntry, MAX_INSTRUCTION_BYTES, MAX_INSTRUCTIONS,
};
use crate::documents::markdown::{self, Document, DocumentKind};
use crate::files::stamps::FileStamps;
use crate::files::{self, MAX_CONFIG_BYTES};
use crate::problem::AffectedAgents;
use crate::provider::Providers;
use crate::provider::credentials;
use crate::redact::Redactor;
use crate::rules::{AGENT_SECTIONS, StrictRules};
use crate::schema::INERT;
use crate::schema::check::{MAX_FINDINGS, check, trefoil_only_keys};
use crate::schema::typed;
use crate::syntax::{frontmatter, jsonc};
use crate::trust::content_hash;
use crate::trust::guard;
use crate::{Inputs, LoadedConfig, Problem, Source, UntrustedFile, project, provider, rules};
use find::{Location, MANAGED_NAMES, SearchOptions, SourceKind};
use finish::{agents, commands, finish, has};
use merge::merge;
use next_format::to_current_format;
use substitute::{Lookup, substitute};

pub(crate) mod find;
pub(crate) mod finish;
pub(crate) mod merge;
pub(crate) mod next_format;
pub(crate) mod substitute;

#[cfg(test)]
mod tests;

/// Loads everything for one directory. Never fails: problems are in [`LoadedConfig::problems`].
pub fn load(inputs: &Inputs) -> LoadedConfig {
    let project = project::project_info(&inputs.directory, &inputs.dirs.state);
    let options = SearchOptions::from_env(&inputs.env);
    let folders = find::project_folders(&inputs.directory, &project.worktree);
    let mut loader = Loader::new(inputs, project.worktree.clone());
    for path in [inputs.trust.path().map(Path::to_owned), Some(credentials::path(&inputs.dirs.data))] {
        path.inspect(|path| loader.stamps.record(path));
    }
    for found in find::search_locations(inputs, &options, &folders) {
        loader.load_location(found.location, found.kind, found.own);
    }
    loader.variables();
    loader.configured_skills();
    let instructions = loader.instructions(&options, &folders);
    let Loader {
        mut raw,
        mut effective,
        sources,
        mut problems,
        untrusted,
        agent_sources,
        skills,
        mut strict,
        stamps,
        ..
    } = loader;
    finish(&mut raw);
    finish(&mut effective);
    rules::compile(&mut effective, &inputs.home);
    let inert = INERT.iter().filter(|path| has(&raw, path)).map(|path| (*path).to_owned()).collect();
    let mut config = typed::read(effective, &mut problems);
    for (name, denials) in strict.denials {
        if let Some(agent) = config.agent.get_mut(&name) {
            // Last, where nothing overrides them.
            agent.permission.get_or_insert_default().extend(denials);
        }
    }
    let affects = problems.iter().map(|problem| &problem.affects);
    if affects.clone().any(|affects| *affects == AffectedAgents::All) {
        strict.all.extend(rules::fallback_rules());
    }
    let names =
        affects.filter_map(|affects| if let AffectedAgents::Named(names) = affects { Some(names) } else { None });
    config.tighten_agent = names.flatten().map(|name| (name.clone(), rules::fallback_rules())).collect();
    config.tighten = strict.all;
    let keys = credentials::keys(&inputs.env, &inputs.dirs.data, &mut problems);
    let redactor = Redactor::read(&inputs.env, &inputs.dirs.data);
    redactor.config(&mut raw);
    let Providers { usable: providers, unusable } = provider::providers(&config, &inputs.env, &keys, &mut problems);
    LoadedConfig {
        connectable: provider::connectable(&config, &providers),
        agents: agents(&config, &agent_sources),
        commands: commands(&config),
        skills: skills.into_values().collect(),
        raw: Json::Object(raw),
        config,
        sources,
        problems,
        untrusted,
        inert,
        instructions,
        project,
        providers,
        unusable,
        file_stamps: stamps,
        redactor,
    }
}

/// The user's own configuration files merged, for display: without the project, agents in markdown and the environment.
pub fn global(inputs: &Inputs) -> Json {
    let mut loader = Loader::new(inputs, inputs.directory.clone());
    for found in find::search_locations(inputs, &SearchOptions::from_env(&inputs.env), &[]) {
        if found.kind == SourceKind::Global && matches!(found.location, Location::File(_)) {
            loader.load_location(found.location, found.kind, found.own);
        }
    }
    finish(&mut loader.raw);
    Redactor::read(&inputs.env, &inputs.dirs.data).config(&mut loader.raw);
    Json::Object(loader.raw)
}

/// Runs a text through every parser here.
pub(crate) fn fuzz(text: &str) {
    if let Ok(mut value) = jsonc::parse(text) {
        jsonc::duplicates(text, MAX_FINDINGS);
        value.as_object_mut().map(to_current_format);
        for finding in check(&mut value) {
            jsonc::locate(text, &finding.path);
        }
        if let Json::Object(mut map) = value {
            let home = Path::new("/home/u");
            let mut guarded = map.clone();
            guard::guard(&mut guarded);
            rules::canonicalize(&mut guarded);
            rules::take_strict(&mut guarded, home);
            rules::canonicalize(&mut map);
            merge(&mut map, guarded);
            finish(&mut map);
            rules::compile(&mut map, home);
            let mut problems = Vec::new();
            let config = typed::read(map, &mut problems);
            provider::providers(&config, &Default::default(), &Default::default(), &mut problems);
        }
    }
    // Also with fences around it, so that the fuzzer need not discover them.
    for text in [text.to_owned(), format!("---\n{text}\n---\nbody")] {
        if let Ok(front) = frontmatter::split(&text) {
            let mut value = Json::Object([("agent".to_owned(), Json::Object(front.map))].into_iter().collect());
            for finding in check(&mut value) {
                frontmatter::locate(&front.positions, &finding.path);
            }
        }
        frontmatter::possible_names(&text);
    }
}

/// A configuration text and where it comes from.
struct Layer<'a> {
    path: Option<&'a Path>,
    label: String,
    kind: SourceKind,
    own: bool,
    /// The base of relative paths.
    base: &'a Path,
    text: &'a str,
}

struct Loader<'a> {
    inputs: &'a Inputs,
    root: PathBuf,
    raw: JsonMap,
    effective: JsonMap,
    sources: Vec<Source>,
    problems: Vec<Problem>,
    untrusted: Vec<UntrustedFile>,
    agent_sources: IndexMap<String, String>,
    skills: IndexMap<String, Skill>,
    skill_folders: Vec<(PathBuf, bool)>,
    instruction_entries: Vec<InstructionEntry>,
    /// The rules of untrusted files.
    strict: StrictRules,
    /// Files already read: a global folder can be inside the project.
    seen: HashSet<PathBuf>,
    stamps: FileStamps,
}

impl<'a> Loader<'a> {
    fn new(inputs: &'a Inputs, root: PathBuf) -> Self {
        Self {
            inputs,
            root,
            raw: JsonMap::new(),
            effective: JsonMap::new(),
            sources: Vec::new(),
            problems: Vec::new(),
            untrusted: Vec::new(),
            agent_sources: IndexMap::new(),
            skills: IndexMap::new(),
            skill_folders: Vec::new(),
            instruction_entries: Vec::new(),
            strict: StrictRules::default(),
            seen: HashSet::new(),
            stamps: FileStamps::default(),
        }
    }

    fn load_location(&mut self, location: Location, kind: SourceKind, own: bool) {
        let path = match &location {
            Location::File(path) | Location::Named(path, _) | Location::Markdown(path) | Location::Skills(path) => path,
        };
        if !self.seen.insert(path.clone()) {
            return;
        }
        match location {
            Location::File(path) => self.file(&path, kind, own),
            Location::Named(path, variable) => {
                if !path.exists() {
                    let message = format!("{variable} names this file, but it does not exist");
                    self.problems.push(Problem::error(message).in_file(&path).affecting_all());
                }
                self.file(&path, kind, own);
            }
            Location::Markdown(folder) => {
                for document in markdown::discover_markdown(&folder, &mut self.stamps, &mut self.problems) {
                    self.document(document, kind, own);
                }
            }
            Location::Skills(folder) => {
                for document in
                    markdown::documents_below(&folder, DocumentKind::Skill, &mut self.stamps, &mut self.problems)
                {
                    self.document(document, kind, own);
                }
            }
        }
    }

    fn file(&mut self, path: &Path, kind: SourceKind, own: bool) {
        self.stamps.record(path);
        match files::read(path, MAX_CONFIG_BYTES) {
            Ok(Some(text)) => {
                let base = path.parent().unwrap_or(path);
                let label = path.display().to_string();
                self.layer(Layer { path: Some(path), label, kind, own, base, text: &text });
            }
            Ok(None) => {}
            Err(problem) => self.problems.push(problem.affecting_all()),
        }
    }

    /// Reads configuration from environment variables, which is the user's own. Managed files come after whole
    /// configurations and before single values.
    fn variables(&mut self) {
        let inputs = self.inputs;
        let value = |name: &str| inputs.env.get(name).filter(|value| !value.is_empty());
        for name in ["OPENCODE_CONFIG_CONTENT", "TREFOIL_CONFIG_CONTENT"] {
            if let Some(text) = value(name) {
                self.variable(name, text);
            }
        }
        for name in MANAGED_NAMES {
            self.file(&inputs.dirs.managed.join(name), SourceKind::Managed, true);
        }
        let mut texts: Vec<(&str, String)> = Vec::new();
        for name in ["OPENCODE_PERMISSION", "TREFOIL_PERMISSION"] {
            // A bare word is accepted like a quoted one.
            texts.extend(value(name).map(|text| match text.trim() {
                word @ ("allow" | "ask" | "deny") => (name, format!("{{\"permission\":\"{word}\"}}")),
                text => (name, format!("{{\"permission\":{text}\n}}")),
            }));
        }
        for (name, key) in
            [("TREFOIL_MODEL", "model"), ("TREFOIL_SMALL_MODEL", "small_model"), ("TREFOIL_AGENT", "default_agent")]
        {
            texts.extend(value(name).map(|text| (name, serde_json::json!({ key: text }).to_string())));
        }
        for (name, text) in texts {
            self.variable(name, &text);
        }
    }

    fn variable(&mut self, name: &str, text: &str) {
        let (kind, base) = (SourceKind::Environment, self.inputs.directory.as_path());
        self.layer(Layer { path: None, label: name.to_owned(), kind, own: true, base, text });
    }

    fn layer(&mut self, layer: Layer<'_>) {
        let text = layer.text.strip_prefix('\u{feff}').unwrap_or(layer.text);
        let place = |problem: Problem, path: &[String]| match layer.path {
            Some(file) => problem.in_file(file).at(jsonc::locate(text, path)),
            None => Problem { message: format!("{}: {}", layer.label, problem.message), ..problem },
        };
        let mut value = match jsonc::parse(text) {
            Ok(Json::Null) => return,
            Ok(value) if value.is_object() => value,
            Ok(_) => {
                let message = "this is not an object; it is left out as a whole";
                self.problems.push(place(Problem::error(message).affecting_all(), &[]));
                return;
            }
            Err(broken) => {
                let message = format!("this is not JSON: {}; it is left out as a whole", broken.message);
                self.problems.push(place(Problem::error(message).affecting_all(), &[]).at(Some(broken.position)));
                return;
            }
        };
        for repeated in jsonc::duplicates(text, MAX_FINDINGS) {
            let key = repeated.path.join(".");
            let message = format!("{key} is defined again here; the last definition counts");
            self.problems.push(place(Problem::warning(message).about(key), &[]).at(repeated.position));
        }
        let moved = value.as_object_mut().map(to_current_format).unwrap_or_default();
        for finding in check(&mut value) {
            let written = moved.iter().find_map(|(now, written)| {
                finding.path.strip_prefix(now.as_slice()).map(|rest| [written.as_slice(), rest].concat())
            });
            self.problems.push(place(finding.problem(), written.as_ref().unwrap_or(&finding.path)));
        }
        let Json::Object(mut map) = value else { return };
        if layer.path.is_some_and(find::is_opencode_file) {
            self.problems.extend(trefoil_only_keys(&map).iter().map(|finding| place(finding.problem(), &finding.path)));
        }
        let trusted = match layer.path {
            Some(path) if !layer.own => self.admit(path, layer.text, || guard::guard(&mut map)),
            _ => true,
        };
        rules::canonicalize(&mut map);
        merge(&mut self.raw, map.clone());
        let mut value = Json::Object(map);
        let lookup = Lookup { env: &self.inputs.env, base: layer.base, home: &self.inputs.home };
        for unfilled in substitute(&mut value, &lookup, &mut self.stamps) {
            let problem = Problem { severity: unfilled.severity, ..Problem::error(unfilled.message) };
            self.problems.push(place(problem.about(unfilled.path.join(".")), &unfilled.path));
        }
        self.sources.push(Source {
            path: layer.path.map(Path::to_owned),
            label: layer.label.clone(),
            kind: layer.kind,
        });
        if let Json::Object(map) = value {
            self.note_paths(&map, &layer, trusted);
            self.apply(map, &layer.label, trusted);
        }
    }

    /// Whether a file in the repository takes full effect; otherwise records what `strip` removes from it.
    fn admit(&mut self, path: &Path, text: &str, strip: impl FnOnce() -> Vec<String>) -> bool {
        let hash = content_hash(text.as_bytes());
        if self.inputs.trust.covers(path, &hash) {
            return true;
        }
        let what = strip();
        if !what.is_empty() {
            self.untrusted.push(UntrustedFile { path: path.to_owned(), hash, what });
        }
        false
    }

    /// Remembers the base of a layer's paths, which merging would lose.
    fn note_paths(&mut self, map: &JsonMap, layer: &Layer<'_>, trusted: bool) {
        let texts = |value: Option<&Json>| -> Vec<String> {
            let list = value.and_then(Json::as_array).into_iter().flatten();
            list.filter_map(|item| item.as_str().map(str::to_owned)).collect()
        };
        self.instruction_entries.extend(texts(map.get("instructions")).into_iter().map(|pattern| InstructionEntry {
            pattern,
            base: layer.base.to_owned(),
            file: layer.path.map(Path::to_owned),
            own: trusted,
        }));
        if let Some(paths) = map.get("skills").and_then(|skills| skills.get("paths")) {
            let Inputs { directory, home, .. } = self.inputs;
            let resolve = |path: &String| (files::resolve(path, directory, home), trusted);
            self.skill_folders = texts(Some(paths)).iter().map(resolve).collect();
        }
    }

    /// Merges a configuration that is checked, guarded, canonical and filled.
    fn apply(&mut self, mut map: JsonMap, label: &str, trusted: bool) {
        let agents = AGENT_SECTIONS.iter().filter_map(|section| map.get(*section)?.as_object());
        for name in agents.flat_map(|agents| agents.keys()) {
            self.agent_sources.insert(name.clone(), label.to_owned());
        }
        if !trusted {
            let strict = rules::take_strict(&mut map, &self.inputs.home);
            self.strict.all.extend(strict.all);
            for (name, denials) in strict.denials {
                self.strict.denials.entry(name).or_default().extend(denials);
            }
        }
        merge(&mut self.effective, map);
    }

    fn document(&mut self, document: Document, kind: SourceKind, own: bool) {
        let path = document.path.as_path();
        if !own && !self.inside(path, &document.text) {
            return;
        }
        let Some(mut value) = document.config() else {
            match document.skill() {
                // A later source takes precedence, and moves to the end.
                Ok(skill) => {
                    self.skills.shift_remove(&skill.name);
                    self.skills.insert(skill.name.clone(), skill);
                }
                Err(problem) => self.problems.push(problem),
            }
            return;
        };
        for finding in check(&mut value) {
            // The path starts with the section and the name, which the file itself does not contain.
            let place = finding.path.get(2..).and_then(|path| document.position(path));
            self.problems.push(finding.problem().in_file(path).at(place));
        }
        let Json::Object(mut map) = value else { return };
        if find::is_opencode_file(path) {
            self.problems.extend(trefoil_only_keys(&map).iter().map(|finding| finding.problem().in_file(path)));
        }
        let trusted = own || self.admit(path, &document.text, || guard::guard_markdown(&mut map));
        let label = path.display().to_string();
        self.sources.push(Source { path: Some(path.to_owned()), label: label.clone(), kind });
        rules::canonicalize(&mut map);
        merge(&mut self.raw, map.clone());
        self.apply(map, &label, trusted);
    }

    /// Whether a file named by the repository is really inside it; a link out of it needs trust.
    fn inside(&mut self, path: &Path, text: &str) -> bool {
        let Some(real) = files::outside(path, &self.root) else { return true };
        self.admit(path, text, || vec![format!("reveals {}, which is outside of the repository", real.display())])
    }

    fn configured_skills(&mut self) {
        for (folder, own) in std::mem::take(&mut self.skill_folders) {
            if !folder.is_dir() {
                let message = "skills.paths names this folder, but it does not exist";
                self.problems.push(Problem::warning(message).in_file(&folder).about("skills.paths"));
            }
            for document in
                markdown::documents_below(&folder, DocumentKind::Skill, &mut self.stamps, &mut self.problems)
            {
                self.document(document, SourceKind::Folder, own);
            }
        }
    }

    fn instructions(&mut self, options: &SearchOptions, folders: &[PathBuf]) -> Vec<Instruction> {
        let claude = options.claude_prompt.then(|| self.inputs.home.join(".claude/CLAUDE.md"));
        let mut candidates = instruction::global(&self.inputs.dirs.config, claude.as_deref());
        if options.project {
            candidates.extend(instruction::project(folders));
        }
        for entry in std::mem::take(&mut self.instruction_entries) {
            candidates.extend(instruction::resolve_entry(&entry, folders, &self.inputs.home, &mut self.problems));
        }
        let mut seen = HashSet::new();
        candidates.retain(|candidate| seen.insert(candidate.path.clone()));
        if candidates.len() > MAX_INSTRUCTIONS {
            let message = format!("there are more than {MAX_INSTRUCTIONS} instruction files; the rest is left out");
            self.problems.push(Problem::error(message).about("instructions"));
            candidates.truncate(MAX_INSTRUCTIONS);
        }
        candidates.into_iter().filter_map(|candidate| self.instruction(candidate)).collect()
    }

    fn instruction(&mut self, candidate: Candidate) -> Option<Instruction> {
        let Candidate { path, own } = candidate;
        match files::read(&path, MAX_INSTRUCTION_BYTES) {
            Ok(Some(text)) if !text.trim().is_empty() => {
                (own || self.inside(&path, &text)).then_some(Instruction { path, text })
            }
            Ok(_) => None,
            Err(problem) => {
                self.problems.push(problem);
                None
            }
        }
    }
}
