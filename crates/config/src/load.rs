//! The way from files to the configuration in effect: read, check, guard, fill placeholders, merge, type.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use api::{Json, JsonMap, Skill};
use indexmap::IndexMap;

use crate::schema::check::{MAX_FINDINGS, check, foreign};
use crate::files::{self, MAX_CONFIG_BYTES};
use find::{MANAGED_NAMES, Place, SourceKind, Switches};
use finish::{agents, commands, finish, has};
use crate::documents::instruction::{self, Candidate, Instruction, MAX_INSTRUCTION_BYTES, MAX_INSTRUCTIONS, Wanted};
use next_format::lower;
use crate::documents::markdown::{self, Document, Kind};
use crate::files::stamps::Marks;
use merge::merge;
use crate::problem::Closes;
use crate::provider::Providers;
use crate::redact::Redactor;
use crate::rules::{AGENT_SECTIONS, Strict};
use crate::schema::INERT;
use substitute::{Lookup, substitute};
use crate::trust::content_hash;
use crate::provider::credentials;
use crate::schema::typed;
use crate::syntax::{frontmatter, jsonc};
use crate::trust::guard;
use crate::{Inputs, Loaded, Problem, Source, Untrusted, project, provider, rules};

pub(crate) mod find;
pub(crate) mod finish;
pub(crate) mod merge;
pub(crate) mod next_format;
pub(crate) mod substitute;

#[cfg(test)]
mod tests;

/// Loads everything for one directory. Never fails: what is wrong is in [`Loaded::problems`].
pub fn load(inputs: &Inputs) -> Loaded {
    let project = project::project_info(&inputs.directory, &inputs.dirs.state);
    let switches = Switches::from_env(&inputs.env);
    let folders = find::project_folders(&inputs.directory, &project.worktree);
    let mut loader = Loader::new(inputs, project.worktree.clone());
    for path in [inputs.trust.path().map(Path::to_owned), Some(credentials::path(&inputs.dirs.data))] {
        path.inspect(|path| loader.marks.note(path));
    }
    for spot in find::spots(inputs, &switches, &folders) {
        loader.spot(spot.place, spot.kind, spot.own);
    }
    loader.variables();
    loader.configured_skills();
    let instructions = loader.instructions(&switches, &folders);
    let Loader {
        mut raw,
        mut effective,
        sources,
        mut problems,
        untrusted,
        agent_sources,
        skills,
        mut strict,
        marks,
        ..
    } = loader;
    finish(&mut raw);
    finish(&mut effective);
    rules::compile(&mut effective, &inputs.home);
    let inert = INERT.iter().filter(|path| has(&raw, path)).map(|path| (*path).to_owned()).collect();
    let mut config = typed::read(effective, &mut problems);
    for (name, denials) in strict.denials {
        if let Some(agent) = config.agent.get_mut(&name) {
            // Last, where nothing lifts them.
            agent.permission.get_or_insert_default().extend(denials);
        }
    }
    let closes = problems.iter().map(|problem| &problem.closes);
    if closes.clone().any(|closes| *closes == Closes::Everything) {
        strict.all.extend(rules::unread());
    }
    let names = closes.filter_map(|closes| if let Closes::Agents(names) = closes { Some(names) } else { None });
    config.tighten_agent = names.flatten().map(|name| (name.clone(), rules::unread())).collect();
    config.tighten = strict.all;
    let keys = credentials::keys(&inputs.dirs.data, &mut problems);
    let redactor = Redactor::read(&inputs.env, &inputs.dirs.data);
    redactor.config(&mut raw);
    let Providers { usable: providers, unusable } = provider::providers(&config, &inputs.env, &keys, &mut problems);
    Loaded {
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
        marks,
        redactor,
    }
}

/// What the user's own files say together, to be shown: without the project, agents in markdown and the environment.
pub fn global(inputs: &Inputs) -> Json {
    let mut loader = Loader::new(inputs, inputs.directory.clone());
    for spot in find::spots(inputs, &Switches::from_env(&inputs.env), &[]) {
        if spot.kind == SourceKind::Global && matches!(spot.place, Place::File(_)) {
            loader.spot(spot.place, spot.kind, spot.own);
        }
    }
    finish(&mut loader.raw);
    Redactor::read(&inputs.env, &inputs.dirs.data).config(&mut loader.raw);
    Json::Object(loader.raw)
}

/// Runs bytes through every reader here.
pub(crate) fn fuzz(text: &str) {
    if let Ok(mut value) = jsonc::parse(text) {
        jsonc::duplicates(text, MAX_FINDINGS);
        value.as_object_mut().map(lower);
        for finding in check(&mut value) {
            jsonc::locate(text, &finding.path);
        }
        if let Json::Object(mut map) = value {
            let home = Path::new("/home/u");
            let mut guarded = map.clone();
            guard::guard(&mut guarded);
            rules::canonical(&mut guarded);
            rules::take_strict(&mut guarded, home);
            rules::canonical(&mut map);
            merge(&mut map, guarded);
            finish(&mut map);
            rules::compile(&mut map, home);
            let mut problems = Vec::new();
            let config = typed::read(map, &mut problems);
            provider::providers(&config, &Default::default(), &Default::default(), &mut problems);
        }
    }
    // The same text with the fence around it, so that the bytes need not find it.
    for text in [text.to_owned(), format!("---\n{text}\n---\nbody")] {
        if let Ok(front) = frontmatter::split(&text) {
            let mut value = Json::Object([("agent".to_owned(), Json::Object(front.map))].into_iter().collect());
            for finding in check(&mut value) {
                frontmatter::locate(&front.places, &finding.path);
            }
        }
        frontmatter::possible_names(&text);
    }
}

/// A text of configuration and where it comes from.
struct Layer<'a> {
    path: Option<&'a Path>,
    label: String,
    kind: SourceKind,
    own: bool,
    /// What relative paths are relative to.
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
    untrusted: Vec<Untrusted>,
    agent_sources: IndexMap<String, String>,
    skills: IndexMap<String, Skill>,
    skill_folders: Vec<(PathBuf, bool)>,
    wanted: Vec<Wanted>,
    /// The rules of untrusted files.
    strict: Strict,
    /// Files that were read: a global folder can lie inside of the project.
    seen: HashSet<PathBuf>,
    marks: Marks,
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
            wanted: Vec::new(),
            strict: Strict::default(),
            seen: HashSet::new(),
            marks: Marks::default(),
        }
    }

    fn spot(&mut self, place: Place, kind: SourceKind, own: bool) {
        let path = match &place {
            Place::File(path) | Place::Named(path, _) | Place::Markdown(path) | Place::Skills(path) => path,
        };
        if !self.seen.insert(path.clone()) {
            return;
        }
        match place {
            Place::File(path) => self.file(&path, kind, own),
            Place::Named(path, variable) => {
                if !path.exists() {
                    let message = format!("{variable} names this file, but it does not exist");
                    self.problems.push(Problem::error(message).in_file(&path).closing());
                }
                self.file(&path, kind, own);
            }
            Place::Markdown(folder) => {
                for document in markdown::discover_markdown(&folder, &mut self.marks, &mut self.problems) {
                    self.document(document, kind, own);
                }
            }
            Place::Skills(folder) => {
                for document in markdown::documents_below(&folder, Kind::Skill, &mut self.marks, &mut self.problems) {
                    self.document(document, kind, own);
                }
            }
        }
    }

    fn file(&mut self, path: &Path, kind: SourceKind, own: bool) {
        self.marks.note(path);
        match files::read(path, MAX_CONFIG_BYTES) {
            Ok(Some(text)) => {
                let base = path.parent().unwrap_or(path);
                let label = path.display().to_string();
                self.layer(Layer { path: Some(path), label, kind, own, base, text: &text });
            }
            Ok(None) => {}
            Err(problem) => self.problems.push(problem.closing()),
        }
    }

    /// Configuration that stands in the environment itself, the user's own. What is managed comes after whole configurations,
    /// and before single values.
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
            // A bare word is as good as a quoted one here.
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
                self.problems.push(place(Problem::error(message).closing(), &[]));
                return;
            }
            Err(broken) => {
                let message = format!("this is not JSON: {}; it is left out as a whole", broken.message);
                self.problems.push(place(Problem::error(message).closing(), &[]).at(Some(broken.place)));
                return;
            }
        };
        for repeated in jsonc::duplicates(text, MAX_FINDINGS) {
            let key = repeated.path.join(".");
            let message = format!("{key} stands here once more; the last one counts");
            self.problems.push(place(Problem::warning(message).about(key), &[]).at(repeated.place));
        }
        let moved = value.as_object_mut().map(lower).unwrap_or_default();
        for finding in check(&mut value) {
            let written = moved.iter().find_map(|(now, written)| {
                finding.path.strip_prefix(now.as_slice()).map(|rest| [written.as_slice(), rest].concat())
            });
            self.problems.push(place(finding.problem(), written.as_ref().unwrap_or(&finding.path)));
        }
        let Json::Object(mut map) = value else { return };
        if layer.path.is_some_and(find::is_foreign) {
            self.problems.extend(foreign(&map).iter().map(|finding| place(finding.problem(), &finding.path)));
        }
        let trusted = match layer.path {
            Some(path) if !layer.own => self.admit(path, layer.text, || guard::guard(&mut map)),
            _ => true,
        };
        rules::canonical(&mut map);
        merge(&mut self.raw, map.clone());
        let mut value = Json::Object(map);
        let lookup = Lookup { env: &self.inputs.env, base: layer.base, home: &self.inputs.home };
        for miss in substitute(&mut value, &lookup, &mut self.marks) {
            let problem = Problem { severity: miss.severity, ..Problem::error(miss.message) };
            self.problems.push(place(problem.about(miss.path.join(".")), &miss.path));
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

    /// Whether a file of the repository takes effect as a whole; else what `strip` takes out of it is noted.
    fn admit(&mut self, path: &Path, text: &str, strip: impl FnOnce() -> Vec<String>) -> bool {
        let hash = content_hash(text.as_bytes());
        if self.inputs.trust.covers(path, &hash) {
            return true;
        }
        let what = strip();
        if !what.is_empty() {
            self.untrusted.push(Untrusted { path: path.to_owned(), hash, what });
        }
        false
    }

    /// Remembers where the paths of a layer are relative to, which merging would forget.
    fn note_paths(&mut self, map: &JsonMap, layer: &Layer<'_>, trusted: bool) {
        let texts = |value: Option<&Json>| -> Vec<String> {
            let list = value.and_then(Json::as_array).into_iter().flatten();
            list.filter_map(|item| item.as_str().map(str::to_owned)).collect()
        };
        self.wanted.extend(texts(map.get("instructions")).into_iter().map(|pattern| Wanted {
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

    /// Merges a checked, guarded, canonical and filled configuration.
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
                // A later place wins, and takes the later position.
                Ok(skill) => {
                    self.skills.shift_remove(&skill.name);
                    self.skills.insert(skill.name.clone(), skill);
                }
                Err(problem) => self.problems.push(problem),
            }
            return;
        };
        for finding in check(&mut value) {
            // The path begins with the section and the name, which the file itself does not have.
            let place = finding.path.get(2..).and_then(|path| document.place(path));
            self.problems.push(finding.problem().in_file(path).at(place));
        }
        let Json::Object(mut map) = value else { return };
        if find::is_foreign(path) {
            self.problems.extend(foreign(&map).iter().map(|finding| finding.problem().in_file(path)));
        }
        let trusted = own || self.admit(path, &document.text, || guard::guard_markdown(&mut map));
        let label = path.display().to_string();
        self.sources.push(Source { path: Some(path.to_owned()), label: label.clone(), kind });
        rules::canonical(&mut map);
        merge(&mut self.raw, map.clone());
        self.apply(map, &label, trusted);
    }

    /// Whether a file that the repository names really lies in it; one that a link leads to elsewhere needs trust.
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
            for document in markdown::documents_below(&folder, Kind::Skill, &mut self.marks, &mut self.problems) {
                self.document(document, SourceKind::Folder, own);
            }
        }
    }

    fn instructions(&mut self, switches: &Switches, folders: &[PathBuf]) -> Vec<Instruction> {
        let claude = switches.claude_prompt.then(|| self.inputs.home.join(".claude/CLAUDE.md"));
        let mut candidates = instruction::global(&self.inputs.dirs.config, claude.as_deref());
        if switches.project {
            candidates.extend(instruction::project(folders));
        }
        for entry in std::mem::take(&mut self.wanted) {
            candidates.extend(instruction::wanted(&entry, folders, &self.inputs.home, &mut self.problems));
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
