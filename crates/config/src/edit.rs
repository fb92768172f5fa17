//! Changes a configuration file for a client. Comments and layout stay; a change that could not be read back is
//! refused; the file is replaced atomically.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use api::{Json, JsonMap};
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};

use crate::files::{self, Access, Durability, MAX_CONFIG_BYTES};
use crate::load::find::{self, SearchOptions};
use crate::load::finish::finish;
use crate::problem::{Problem, Severity};
use crate::redact::{MASK, Redactor};
use crate::schema::check::{check, trefoil_only_keys};
use crate::schema::typed;
use crate::syntax::jsonc;
use crate::trust::content_hash;
use crate::{Inputs, load, rules};

/// Why a configuration file was not changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The change is not a valid configuration.
    #[error("{message}\n  at {}", at(path))]
    Change {
        /// Keys and indexes from the root.
        path: Vec<String>,
        /// What is wrong.
        message: String,
    },
    /// The file prevents it.
    #[error("{}: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong and how to fix it.
        message: String,
    },
}

/// Formats a path as OpenCode does: `["provider"]["p"]`.
fn at(path: &[String]) -> String {
    path.iter().map(|step| format!("[{step:?}]")).collect()
}

/// Changes the user's own configuration: the file that takes precedence, or a new one.
pub fn edit_global(inputs: &Inputs, change: JsonMap) -> Result<(), EditError> {
    let shown = [load::load(inputs).raw, load::global(inputs)];
    edit(&find::global_file(inputs), change, NewFileAccess::Private, &shown).map(drop)
}

/// Changes the configuration of the directory: the file in it that takes precedence, or a new one. Whoever may change
/// it may run commands as well, so the change needs no trust of its own; what was untrusted before stays untrusted.
pub fn edit_project(inputs: &Inputs, change: JsonMap) -> Result<(), EditError> {
    let path = find::project_file(inputs);
    let refused = |message: String| EditError::File { path: path.clone(), message };
    if !SearchOptions::from_env(&inputs.env).project {
        return Err(refused("the configuration of projects is switched off by the environment".to_owned()));
    }
    if !inputs.directory.is_dir() {
        return Err(refused("there is no such directory".to_owned()));
    }
    let loaded = load::load(inputs);
    if fs::symlink_metadata(&path).is_ok() && files::outside(&path, &loaded.project.worktree).is_some() {
        return Err(refused("this link leads out of the repository; change the file itself".to_owned()));
    }
    let trusted = loaded.untrusted.iter().all(|untrusted| untrusted.path != path);
    let hash = edit(&path, change, NewFileAccess::Shared, &[loaded.raw])?;
    if let Some(hash) = hash.filter(|_| trusted) {
        inputs.trust.remember(&path, &hash).map_err(|error| refused(error.to_string()))?;
    }
    Ok(())
}

/// Who may read a newly created file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NewFileAccess {
    /// Only the user: it may contain keys.
    Private,
    /// Everybody who works on the project.
    Shared,
}

/// Serialises changes, from reading to writing.
static EDITING: Mutex<()> = Mutex::new(());

/// Applies a change to a configuration file. Returns the hash of the new content, or `None` if there is no file and
/// nothing to write. `null` removes a key. A value with a masked secret that was sent back as it was `shown` leaves the
/// secret in place; a mask is never written.
fn edit(path: &Path, change: JsonMap, created: NewFileAccess, shown: &[Json]) -> Result<Option<String>, EditError> {
    let refused = |message: String| EditError::File { path: path.to_owned(), message };
    let change = ConfigChange::new(change, shown)?;
    if find::is_opencode_file(path)
        && let Some(finding) = trefoil_only_keys(&change.set).into_iter().next()
    {
        return Err(refused(finding.message));
    }
    let _one = EDITING.lock().unwrap_or_else(PoisonError::into_inner);
    let text = files::read(path, MAX_CONFIG_BYTES).map_err(|problem| refused(problem.message))?;
    if change.set.is_empty() && (change.removed.is_empty() || text.is_none()) {
        return Ok(text.map(|text| content_hash(text.as_bytes())));
    }
    let new = change.apply(text.as_deref().unwrap_or_default()).map_err(|error| match error {
        Refusal::Change(path, message) => EditError::Change { path, message },
        Refusal::File(message) => refused(message),
    })?;
    // Change the target of a link, not the link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let access = match (fs::metadata(&target), created) {
        (Ok(metadata), _) => Access::Same(metadata.permissions()),
        (Err(_), NewFileAccess::Private) => Access::Owner,
        (Err(_), NewFileAccess::Shared) => Access::Everybody,
    };
    files::replace(&target, new.as_bytes(), access, Durability::Synced)
        .map_err(|error| refused(format!("cannot be written: {error}")))?;
    Ok(Some(content_hash(new.as_bytes())))
}

/// A checked change.
struct ConfigChange {
    set: JsonMap,
    /// Paths to remove.
    removed: Vec<Vec<String>>,
}

enum Refusal {
    Change(Vec<String>, String),
    File(String),
}

impl ConfigChange {
    fn new(mut change: JsonMap, shown: &[Json]) -> Result<Self, EditError> {
        let mut gone = Vec::new();
        split(&mut change, &shown.iter().collect::<Vec<_>>(), &mut Vec::new(), &mut gone);
        let mut put = Json::Object(change.clone());
        let findings = check(&mut put);
        if let Some(wrong) = findings.iter().find(|finding| finding.severity == Severity::Error) {
            // What would only be a warning in a file is refused here.
            let so = ["; it is ignored", "; it counts as ask"];
            let message = so.iter().fold(wrong.message.as_str(), |message, so| message.trim_end_matches(so));
            return Err(EditError::Change { message: message.to_owned(), path: wrong.path.clone() });
        }
        let mut put = if let Json::Object(put) = put { put } else { JsonMap::new() };
        prune(&mut put, &change);
        // A file may contain unknown keys; but a client that sends one believes it was accepted.
        if put.is_empty()
            && gone.is_empty()
            && let Some(unknown) = findings.into_iter().next()
        {
            let message = format!("Nothing was changed: {}", unknown.message.replace(" is ignored", ""));
            return Err(EditError::Change { message, path: unknown.path });
        }
        Ok(Self { set: put, removed: gone })
    }

    /// Applies the change to a text.
    fn apply(&self, old: &str) -> Result<String, Refusal> {
        let mark = if old.starts_with('\u{feff}') { "\u{feff}" } else { "" };
        let old = &old[mark.len()..];
        let broken = |broken: jsonc::JsoncError| {
            let (line, column) = broken.position;
            Refusal::File(format!("this is not JSON: {} (line {line}, column {column}); fix it first", broken.message))
        };
        let before = match jsonc::parse(old).map_err(broken)? {
            Json::Null => JsonMap::new(),
            Json::Object(map) => map,
            _ => return Err(Refusal::File("this is not an object; fix it first".to_owned())),
        };
        let put = SecretRestorer::new(&before, &self.set).restore()?;
        let mut wanted = before.clone();
        overlay(&mut wanted, &put);
        for path in &self.removed {
            remove(&mut wanted, path);
        }
        let root = CstRootNode::parse(old, &jsonc::options()).map_err(|error| Refusal::File(error.to_string()))?;
        let object = root.object_value_or_set();
        write(&object, &put);
        for path in &self.removed {
            erase(&object, path);
        }
        let new = format!("{mark}{root}");
        // Never write what would not be read back as intended, for example with duplicate keys.
        let text = new.strip_prefix('\u{feff}').unwrap_or(&new);
        if jsonc::parse(text).ok().as_ref() != Some(&Json::Object(wanted.clone())) {
            return Err(Refusal::File("a key is defined twice here; remove one first".to_owned()));
        }
        if new.len() as u64 > MAX_CONFIG_BYTES {
            return Err(Refusal::File(format!("it would be larger than {MAX_CONFIG_BYTES} bytes")));
        }
        let known = errors(before);
        if let Some(problem) = errors(wanted).into_iter().find(|problem| !known.contains(problem)) {
            let path = problem.key.iter().flat_map(|key| key.split('.')).map(str::to_owned).collect();
            return Err(Refusal::Change(path, problem.message));
        }
        Ok(new)
    }
}

/// Removes the keys to delete from a change, and values with masked secrets as they were shown. Objects that contained
/// nothing else are removed too.
fn split(change: &mut JsonMap, shown: &[&Json], path: &mut Vec<String>, gone: &mut Vec<Vec<String>>) {
    change.retain(|key, value| {
        path.push(key.clone());
        let there: Vec<&Json> = shown.iter().filter_map(|shown| shown.get(key)).collect();
        let stays = match value {
            Json::Null => {
                gone.push(path.clone());
                false
            }
            Json::String(text) if text == MASK => false,
            Json::Object(map) if !map.is_empty() => {
                split(map, &there, path, gone);
                !map.is_empty()
            }
            value => !(has_mask(value) && there.iter().any(|shown| **shown == *value)),
        };
        path.pop();
        stays
    });
}

/// Removes the objects of a checked change that are empty because of the check.
fn prune(put: &mut JsonMap, asked: &JsonMap) {
    put.retain(|key, value| match (value, asked.get(key)) {
        (Json::Object(map), Some(Json::Object(asked))) if !asked.is_empty() => {
            prune(map, asked);
            !map.is_empty()
        }
        _ => true,
    });
}

fn has_mask(value: &Json) -> bool {
    match value {
        Json::String(text) => text.contains(MASK),
        Json::Array(list) => list.iter().any(has_mask),
        Json::Object(map) => map.values().any(has_mask),
        _ => false,
    }
}

/// Restores the secrets of a file in a change that contains masks.
struct SecretRestorer {
    /// The file's content, and the same with masks.
    before: Json,
    masked: Json,
    put: Json,
    /// The change with another value in place of each mask, masked again: where that value is masked too, the place holds
    /// a secret, so the mask stood for one.
    probed: Json,
}

impl SecretRestorer {
    fn new(before: &JsonMap, put: &JsonMap) -> Self {
        let redacted = |mut map: JsonMap| {
            Redactor::default().config(&mut map);
            Json::Object(map)
        };
        let mut probe = Json::Object(put.clone());
        without_masks(&mut probe);
        let probe = if let Json::Object(probe) = probe { probe } else { JsonMap::new() };
        let (before, put) = (before.clone(), put.clone());
        Self { masked: redacted(before.clone()), before: before.into(), probed: redacted(probe), put: put.into() }
    }

    fn restore(mut self) -> Result<JsonMap, Refusal> {
        let mut put = self.put.take();
        unmask(&mut put, (Some(&self.before), Some(&self.masked), Some(&self.probed)), &mut Vec::new())?;
        Ok(if let Json::Object(put) = put { put } else { JsonMap::new() })
    }
}

/// Restores one value, given the file's value there, the same masked, and the probe.
fn unmask(
    value: &mut Json,
    there: (Option<&Json>, Option<&Json>, Option<&Json>),
    path: &mut Vec<String>,
) -> Result<(), Refusal> {
    let (before, masked, probed) = there;
    if !has_mask(value) || before.is_some_and(|before| before == value) {
        return Ok(());
    }
    let refused = |path: &[String]| {
        Err(Refusal::Change(path.to_vec(), format!("{MASK} stands for a secret here; send the secret itself")))
    };
    match value {
        Json::Object(map) => {
            for (key, value) in map {
                path.push(key.clone());
                let at = |place: Option<&'_ Json>| place.and_then(|place| place.get(key.as_str())).cloned();
                let (before, masked, probed) = (at(before), at(masked), at(probed));
                unmask(value, (before.as_ref(), masked.as_ref(), probed.as_ref()), path)?;
                path.pop();
            }
            Ok(())
        }
        value if masked == Some(&*value) => {
            *value = before.cloned().unwrap_or_default();
            Ok(())
        }
        Json::Array(list) => {
            let (before, masked) = (before.and_then(Json::as_array), masked.and_then(Json::as_array));
            let pairs: Vec<(&Json, &Json)> = masked.into_iter().flatten().zip(before.into_iter().flatten()).collect();
            let sent = list.clone();
            let behind =
                |list: &[&Json], at: usize| at.checked_sub(1).and_then(|at| list.get(at)).map(|item| (*item).clone());
            let (sent, shown): (Vec<&Json>, Vec<&Json>) =
                (sent.iter().collect(), pairs.iter().map(|pair| pair.0).collect());
            for (at, item) in list.iter_mut().enumerate().filter(|(_, item)| has_mask(item)) {
                // A fully masked item is identified by the word before it.
                let same = |from: &usize| {
                    *shown[*from] == *item && (*item != MASK || behind(&shown, *from) == behind(&sent, at))
                };
                match std::iter::once(at).filter(|at| *at < pairs.len()).chain(0..pairs.len()).find(same) {
                    Some(from) => *item = pairs[from].1.clone(),
                    None => return refused(path),
                }
            }
            Ok(())
        }
        // A text may contain these characters without being a secret.
        value if probed == Some(&*value) || masked.is_some_and(has_mask) && !before.is_some_and(has_mask) => {
            refused(path)
        }
        _ => Ok(()),
    }
}

/// Replaces each mask by another value.
fn without_masks(value: &mut Json) {
    match value {
        Json::String(text) => *text = text.replace(MASK, "Probe1"),
        Json::Array(list) => list.iter_mut().for_each(without_masks),
        Json::Object(map) => map.values_mut().for_each(without_masks),
        _ => {}
    }
}

/// Merges objects; anything else, including lists, is replaced.
fn overlay(base: &mut JsonMap, put: &JsonMap) {
    for (key, value) in put {
        match (base.get_mut(key), value) {
            (Some(Json::Object(old)), Json::Object(new)) => overlay(old, new),
            _ => drop(base.insert(key.clone(), value.clone())),
        }
    }
}

fn remove(map: &mut JsonMap, path: &[String]) {
    match path {
        [] => {}
        [key] => drop(map.shift_remove(key)),
        [key, rest @ ..] => {
            if let Some(Json::Object(inner)) = map.get_mut(key) {
                remove(inner, rest);
            }
        }
    }
}

/// Like [`overlay`], on text.
fn write(object: &CstObject, put: &JsonMap) {
    for (key, value) in put {
        match (object.get(key), value) {
            (None, value) => drop(object.append(key, input(value))),
            (Some(property), Json::Object(new)) => match property.object_value() {
                Some(old) => write(&old, new),
                None => property.set_value(input(value)),
            },
            (Some(property), value) => property.set_value(input(value)),
        }
    }
}

/// Like [`remove`], on text.
fn erase(object: &CstObject, path: &[String]) {
    let Some((key, rest)) = path.split_first() else { return };
    let Some(property) = object.get(key) else { return };
    match (rest, property.object_value()) {
        ([], _) => property.remove(),
        (rest, Some(inner)) => erase(&inner, rest),
        _ => {}
    }
}

fn input(value: &Json) -> CstInputValue {
    match value {
        Json::Null => CstInputValue::Null,
        Json::Bool(flag) => CstInputValue::Bool(*flag),
        Json::Number(number) => CstInputValue::Number(number.to_string()),
        Json::String(text) => CstInputValue::String(text.clone()),
        Json::Array(list) => CstInputValue::Array(list.iter().map(input).collect()),
        Json::Object(map) => {
            CstInputValue::Object(map.iter().map(|(key, value)| (key.clone(), input(value))).collect())
        }
    }
}

/// The errors in a whole file.
fn errors(map: JsonMap) -> Vec<Problem> {
    let mut value = Json::Object(map);
    let mut problems: Vec<Problem> = check(&mut value).iter().map(|finding| finding.problem()).collect();
    if let Json::Object(mut map) = value {
        rules::canonicalize(&mut map);
        finish(&mut map);
        rules::compile(&mut map, Path::new("/"));
        typed::read(map, &mut problems);
    }
    problems.retain(|problem| problem.severity == Severity::Error);
    problems
}

#[cfg(test)]
mod tests;
