//! The system prompt: who the agent is, where it works, and the project's instructions.
//!
//! Parts that stay the same from turn to turn come first, so that a provider's prompt cache can keep them.

use api::{Agent, Model};

use crate::ask::rules::Rules;
use crate::project::instance::Instance;

/// The blocks of the system prompt.
pub(crate) fn blocks(
    instance: &Instance,
    agent: &Agent,
    model: &Model,
    rules: &Rules,
    servers: Option<&str>,
    addition: Option<&str>,
) -> Vec<String> {
    let role = agent
        .prompt
        .clone()
        .filter(|prompt| !prompt.is_empty())
        .unwrap_or_else(|| include_str!("../prompts/base.md").to_owned());
    let mut blocks = vec![role, environment(instance, model)];
    for instruction in &instance.loaded.instructions {
        blocks.push(format!("Instructions from: {}\n{}", instruction.path.display(), instruction.text));
    }
    blocks.extend(skills(instance).filter(|_| !rules.refuses("skill")));
    blocks.extend(servers.into_iter().chain(addition).map(str::to_owned));
    blocks
}

fn environment(instance: &Instance, model: &Model) -> String {
    let git = if instance.project.vcs.is_some() { "yes" } else { "no" };
    format!(
        "You are powered by the model {} ({}/{}).\n<env>\n  Working directory: {}\n  Workspace root: {}\n  \
         Git repository: {git}\n  Platform: {}\n  Today's date: {}\n</env>",
        model.name,
        model.provider_id,
        model.id,
        instance.directory.display(),
        instance.worktree().display(),
        std::env::consts::OS,
        chrono::Local::now().format("%a %b %e %Y"),
    )
}

fn skills(instance: &Instance) -> Option<String> {
    let skills = instance.loaded.skills.iter().filter_map(|skill| Some((&skill.name, skill.description.as_ref()?)));
    let list: String = skills.map(|(name, description)| format!("\n- {name}: {description}")).collect();
    let text = format!(
        "Skills are instructions for special kinds of work. When a task fits one of them, load it with the `skill` tool \
         before you begin.\n<available_skills>{list}\n</available_skills>"
    );
    (!list.is_empty()).then_some(text)
}
