use super::*;
use crate::{Dirs, Trust, load};

fn inputs(home: &Path) -> Inputs {
    let directory = home.join("project");
    fs::create_dir_all(&directory).unwrap();
    let env = Default::default();
    Inputs { dirs: Dirs::from_env(&env, home), home: home.to_owned(), directory, env, trust: Trust::All }
}

#[test]
fn shipped_agents_are_valid_and_have_no_effect_until_installed() {
    let home = tempfile::tempdir().unwrap();
    let inputs = inputs(home.path());
    for agent in &OPTIONAL_AGENTS {
        assert!(load(&inputs).agents.is_empty());
        assert!(agent.description().len() > 40, "{}", agent.name);
        for place in [AgentPlace::Global, AgentPlace::Project] {
            let path = write_agent(&inputs, &place, agent.name, agent.text).unwrap();
            let loaded = load(&inputs);
            assert_eq!((&loaded.problems, loaded.agents.len()), (&vec![], 1), "{}", agent.name);
            let (config, prompt) = (&loaded.agents[0].config, loaded.agents[0].config.prompt.as_deref().unwrap());
            assert_eq!((config.mode, loaded.agents[0].name.as_str()), (Some(AgentMode::Subagent), agent.name));
            assert!(prompt.len() > 500 && !config.permission.as_ref().unwrap().is_empty());
            assert_eq!(installed_agent(&inputs, agent.name), Some(path.clone()));
            assert!(matches!(write_agent(&inputs, &place, agent.name, "x"), Err(AgentFileError::Exists(_))));
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn a_new_agent_survives_a_round_trip() {
    let home = tempfile::tempdir().unwrap();
    let inputs = inputs(home.path());
    let agent = NewAgent {
        description: "Reviews: \"carefully\" # and more".to_owned(),
        mode: Some(AgentMode::Subagent),
        model: Some("local/tiny".to_owned()),
        temperature: Some(0.2),
        steps: Some(7),
        tools: Some(vec!["read".to_owned(), "grep".to_owned(), "write".to_owned()]),
        isolated: true,
        prompt: "Look at\n---\nit.\n".to_owned(),
    };
    let path = write_agent(&inputs, &AgentPlace::Project, "reviewer", &agent.markdown().unwrap()).unwrap();
    assert!(path.ends_with("project/.trefoil/agent/reviewer.md"));
    let loaded = load(&inputs);
    assert_eq!(loaded.problems, []);
    let read = &loaded.agents[0].config;
    assert_eq!(read.description.as_deref(), Some(agent.description.as_str()));
    assert_eq!((read.mode, read.model.as_deref()), (agent.mode, agent.model.as_deref()));
    assert_eq!((read.temperature, read.steps), (agent.temperature, agent.steps));
    assert_eq!(read.isolation, Some(crate::Isolation::Worktree));
    assert_eq!(read.prompt.as_deref(), Some("Look at\n---\nit."));
    let denied: Vec<_> = read.permission.iter().flatten().map(|rule| rule.permission.as_str()).collect();
    assert_eq!(denied, ["glob", "list", "bash", "webfetch", "websearch", "task", "todowrite", "skill", "question"]);
    assert_eq!(read.only.as_deref(), Some(&["read", "edit", "grep"].map(str::to_owned)[..]));
}

#[test]
fn invalid_agents_are_refused_and_nothing_is_written() {
    let home = tempfile::tempdir().unwrap();
    let inputs = inputs(home.path());
    for name in ["", "Upper", "../up", "a/b", "a b", &"x".repeat(65)] {
        assert!(matches!(write_agent(&inputs, &AgentPlace::Global, name, "x"), Err(AgentFileError::Name(_))), "{name}");
    }
    let good = NewAgent { description: "d".to_owned(), prompt: "p".to_owned(), ..NewAgent::default() };
    for (bad, why) in [
        (NewAgent { description: " ".to_owned(), ..good.clone() }, "needs a description"),
        (NewAgent { prompt: String::new(), ..good.clone() }, "needs a prompt"),
        (NewAgent { model: Some("tiny".to_owned()), ..good.clone() }, "provider/model"),
        (NewAgent { temperature: Some(3.0), ..good.clone() }, "between 0 and 2"),
        (NewAgent { tools: Some(vec!["rm".to_owned()]), ..good.clone() }, "no tool \"rm\""),
    ] {
        let error = bad.markdown().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    for (text, why) in
        [("---\nmode: helper\n---\nx", "mode"), ("---\na: [\n---\n", "line 2"), ("---\nsteps: 0\n---\nx", "steps")]
    {
        let error = write_agent(&inputs, &AgentPlace::Global, "x", text).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    assert!(!find::global_folder(&inputs).exists());
    // A link in the project that leads out of it.
    std::os::unix::fs::symlink(home.path(), inputs.directory.join(".trefoil")).unwrap();
    let refused = write_agent(&inputs, &AgentPlace::Project, "x", "x");
    assert!(matches!(refused, Err(AgentFileError::Outside(_))), "{refused:?}");
    assert!(!home.path().join("agent/x.md").exists());
}
