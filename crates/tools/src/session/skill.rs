//! The `skill` tool: gives the text of a skill to the model.

use std::path::{Path, PathBuf};

use api::Skill;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::files::disk;
use crate::files::write::object;
use crate::search::folder::Folder;
use crate::search::walk::{self, StopCondition};
use crate::tool::context::Context;
use crate::tool::{Effect, Need, Output, ToolError, TypedTool};

/// The maximum number of files in the skill's folder to list.
const MAX_FILES: usize = 10;

/// Loads a skill: instructions for a kind of task, and the files that come with them.
///
/// The skills that exist are listed in the system prompt. Load one when the task fits its description.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Input {
    /// The name of the skill.
    name: String,
}

pub(crate) struct LoadSkill;

impl TypedTool for LoadSkill {
    type Input = Input;
    const NAME: &'static str = "skill";
    const EFFECT: Effect = Effect::ReadOnly;

    async fn needs(&self, input: &Input, ctx: &Context) -> Result<Vec<Need>, ToolError> {
        find(input, ctx)?;
        let need = Need::new("skill", input.name.clone());
        Ok(vec![Need { always: need.patterns.clone(), ..need }])
    }

    async fn run(&self, input: Input, ctx: Context) -> Result<Output, ToolError> {
        let skill = find(&input, &ctx)?;
        let dir = Path::new(&skill.location).parent().unwrap_or(Path::new("/")).to_owned();
        let (folder, cancel) = (dir.clone(), ctx.cancel.clone());
        let files = tokio::task::spawn_blocking(move || files(&folder, cancel)).await.unwrap_or_default();
        let files: Vec<String> = files.iter().map(|file| format!("<file>{}</file>", file.display())).collect();
        let name = &skill.name;
        let output = format!(
            "<skill_content name=\"{name}\">\n# Skill: {name}\n\n{}\n\
             At most {MAX_FILES} of its files are named here.\n\n<skill_files>\n{}\n</skill_files>\n</skill_content>",
            text(&skill.content, &dir),
            files.join("\n")
        );
        Ok(Output {
            title: format!("Loaded skill: {name}"),
            output,
            metadata: object(json!({"name": name, "dir": dir.to_string_lossy(), "truncated": false})),
            ..Output::default()
        })
    }
}

/// The text of a skill, and where its relative paths start.
pub fn text(content: &str, folder: &Path) -> String {
    format!(
        "{}\n\nBase directory for this skill: {}\n\
         Relative paths in this skill (such as scripts/ or reference/) start at this directory.",
        content.trim(),
        folder.display()
    )
}

fn find<'a>(input: &Input, ctx: &'a Context) -> Result<&'a Skill, ToolError> {
    let skills = &ctx.options.skills;
    skills.iter().find(|skill| skill.name == input.name).ok_or_else(|| {
        let mut names: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
        names.sort_unstable();
        let names = if names.is_empty() { "none".into() } else { names.join(", ") };
        ToolError::failed(format!("Skill \"{}\" not found. Available skills: {names}", input.name))
    })
}

fn files(folder: &Path, cancel: CancellationToken) -> Vec<PathBuf> {
    let found: std::sync::Mutex<Vec<PathBuf>> = std::sync::Mutex::default();
    walk::files(folder, false, &StopCondition::new(cancel), || {
        |entry: ignore::DirEntry| {
            let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if entry.file_name() != "SKILL.md" {
                found.push(entry.into_path());
            }
            if found.len() >= walk::MAX_RESULTS { ignore::WalkState::Quit } else { ignore::WalkState::Continue }
        }
    });
    let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    // The walk works with names: drop what it found behind a link that appeared.
    let real = disk::resolve(folder).and_then(|folder| Folder::open(&folder));
    found.retain(|path| path.strip_prefix(folder).is_ok_and(|path| real.as_ref().is_ok_and(|real| real.has(path))));
    found.sort();
    found.truncate(MAX_FILES);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::registry::testing::Workspace;

    #[tokio::test]
    async fn output_matches_the_recording() {
        let mut ws = Workspace::new();
        let location = ws.file(".opencode/skill/demo/SKILL.md", "unused");
        let script = ws.file(".opencode/skill/demo/scripts/run.sh", "");
        ws.options.skills = vec![Skill {
            name: "demo".into(),
            description: Some("shows".into()),
            location: location.to_string_lossy().into_owned(),
            content: "BODY\n".into(),
        }];
        let dir = location.parent().unwrap().display().to_string();
        let output = ws.run("skill", json!({"name": "demo"})).await.unwrap();
        assert_eq!(output.title, "Loaded skill: demo");
        assert_eq!(output.metadata, object(json!({"name": "demo", "dir": dir, "truncated": false})));
        assert!(
            output
                .output
                .starts_with("<skill_content name=\"demo\">\n# Skill: demo\n\nBODY\n\nBase directory for this skill: ")
        );
        assert!(output.output.contains(&format!("<skill_files>\n<file>{}</file>\n</skill_files>", script.display())));
        let needs = ws.needs("skill", json!({"name": "demo"})).await.unwrap();
        assert_eq!((needs[0].patterns[0].as_str(), needs[0].always[0].as_str()), ("demo", "demo"));
        let error = ws.fail("skill", json!({"name": "nope"})).await;
        assert_eq!(error, "Skill \"nope\" not found. Available skills: demo");
    }
}
