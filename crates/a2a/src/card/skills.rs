//! What the agent does, in plain words.

use api::Json;
use serde_json::json;

use super::{CardInput, Detail, OUTPUT_MODES, input_modes};
use crate::wire::Extension;
use crate::wire::methods::{self, EXTENSIONS};

/// The description of a service that has none of its own.
pub(super) const DESCRIPTION: &str = "A coding agent that reads, explains and changes the code of a workspace, and runs commands there. \
     Send it a task in plain words; it streams what it does, and asks before it does what needs your permission.";

/// The description of the card.
pub(super) fn description(input: &CardInput, detail: Detail) -> String {
    let mut text = input.description.clone();
    let mut say = |sentence: &str| {
        text.push(' ');
        text.push_str(sentence);
    };
    if let Some(project) = &input.project {
        say(&format!("Project: {project}."));
    }
    if detail == Detail::Public {
        return text;
    }
    say("All callers work in the same workspace; tasks and sessions belong to who started them.");
    if let Some(root) = &input.workspace_root {
        say(&format!("Workspace: {root}."));
    }
    text
}

/// The skill of an extension: its id, its name, what it does, and its tags.
struct Skill {
    extension: Extension,
    id: &'static str,
    name: &'static str,
    description: &'static str,
    tags: &'static [&'static str],
}

const SKILLS: [Skill; 5] = [
    Skill {
        extension: Extension::SessionManagement,
        id: "opencode.sessions.management",
        name: "Sessions",
        description: "Reads, continues, forks, reverts, shares and summarizes the caller's sessions through JSON-RPC methods \
                      of an extension.",
        tags: &["opencode", "sessions", "history", "provider-private"],
    },
    Skill {
        extension: Extension::ProviderDiscovery,
        id: "opencode.providers.query",
        name: "Providers and models",
        description: "Lists the model providers and models that requests can choose.",
        tags: &["opencode", "providers", "models", "provider-private"],
    },
    Skill {
        extension: Extension::WorkspaceControl,
        id: "opencode.workspace.control",
        name: "Projects, workspaces and worktrees",
        description: "Lists projects, workspaces and worktrees; creates, resets and removes them where the deployment allows it.",
        tags: &["opencode", "project", "workspace", "worktree", "provider-private"],
    },
    Skill {
        extension: Extension::InterruptRecovery,
        id: "opencode.interrupt.recovery",
        name: "Open requests",
        description: "Lists the permissions and questions of the caller's tasks that still wait for an answer, for example \
                      after a lost connection.",
        tags: &["interrupt", "permission", "question", "provider-private"],
    },
    Skill {
        extension: Extension::InteractiveInterrupt,
        id: "opencode.interrupt.callback",
        name: "Answers to the agent",
        description: "Answers the permissions and questions that a task asks for while it runs. A plain text message to the \
                      task does the same.",
        tags: &["interrupt", "permission", "question", "shared"],
    },
];

const JSON_MODE: &str = "application/json";

/// The skills of a card.
pub(super) fn skills(input: &CardInput, detail: Detail) -> Json {
    let mut chat = json!({
        "id": "opencode.chat",
        "name": "Coding",
        "description": "Works on the code of the workspace by request: explains, reviews, writes, fixes, tests. Takes text and \
                        files. Answers in text; tool calls come as JSON for clients that accept it.",
        "tags": ["assistant", "coding", "opencode", "core-a2a", "portable"],
        "inputModes": input_modes(input),
        "outputModes": OUTPUT_MODES,
    });
    if detail == Detail::Extended {
        chat["examples"] = json!([
            "Which parts of this repository handle errors of the network?",
            "Write a test for the parser of dates, and fix what it finds.",
            "Review the attached patch.",
        ]);
    }
    let shown =
        SKILLS.iter().filter(|one| detail == Detail::Extended || one.extension == Extension::InteractiveInterrupt);
    std::iter::once(chat).chain(shown.map(|one| skill(one, input, detail))).collect()
}

fn skill(skill: &Skill, input: &CardInput, detail: Detail) -> Json {
    let mut json = json!({
        "id": skill.id,
        "name": skill.name,
        "description": skill.description,
        "tags": skill.tags,
        "inputModes": [JSON_MODE],
        "outputModes": [JSON_MODE],
    });
    if detail == Detail::Extended {
        let enabled: Vec<&str> = methods::enabled(&input.wire).collect();
        let of_skill =
            EXTENSIONS.iter().filter(|method| method.extension == skill.extension && enabled.contains(&method.name));
        json["examples"] = of_skill.map(|method| format!("{}: {}", method.name, method.summary)).collect();
    }
    json
}
