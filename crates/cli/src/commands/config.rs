//! `trefoil config show|path|check`.

use config::{LoadedConfig, Problem, Severity};

use super::trust;
use crate::args::Config as Args;
use crate::exit::Exit;
use crate::terminal::{self, Style, one_line, plural, print_json};
use crate::wiring::{Invocation, log};

/// `trefoil config`.
pub fn command(args: &Args, invocation: &Invocation) -> anyhow::Result<Exit> {
    let mut loaded = config::load(&invocation.config_inputs());
    match args {
        Args::Show { json: true } => print_json(&loaded.raw)?,
        Args::Show { json: false } => {
            let mut text = String::new();
            for source in &loaded.sources {
                text += &format!("// {}\n", one_line(&source.label, 300));
            }
            text += &terminal::escape_json(&serde_json::to_string_pretty(&loaded.raw)?);
            terminal::print(&text)?;
        }
        Args::Path => terminal::print(&paths(&loaded, invocation))?,
        Args::Check => {
            loaded.problems.extend(a2a_problems(&loaded.config.a2a));
            let (text, exit) = report(&loaded, Style::stdout(invocation.no_color()));
            terminal::print(&text)?;
            return Ok(exit);
        }
    }
    Ok(Exit::Success)
}

/// The numbers of sources and problems.
pub fn totals(sources: usize, errors: usize, warnings: usize) -> String {
    format!("{}, {}, {}", plural(sources, "source"), plural(errors, "error"), plural(warnings, "warning"))
}

fn paths(loaded: &LoadedConfig, invocation: &Invocation) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, path: &std::path::Path| {
        rows.push(vec![name.to_string(), one_line(&path.display().to_string(), 400)]);
    };
    for source in &loaded.sources {
        if let Some(path) = &source.path {
            row("read", path);
        }
    }
    for folder in &invocation.dirs.config {
        row("config", folder);
    }
    row("data", &invocation.dirs.data);
    row("state", &invocation.dirs.state);
    row("cache", &invocation.dirs.cache);
    row("database", &invocation.database_path());
    row("trust", &invocation.dirs.trust_file());
    row("log", &log::path(&invocation.dirs.state));
    terminal::table(&rows)
}

/// What is wrong in the section `a2a`. Its settings belong to the A2A service, which does not start with them.
fn a2a_problems(section: &api::JsonMap) -> impl Iterator<Item = Problem> {
    a2a::Settings::problems(section).into_iter().map(|found| {
        let message = format!("{found}; the A2A service does not start with it (docs/a2a.md lists its settings)");
        Problem::error(message).about(found.name)
    })
}

/// What is wrong, what is left out and what has no effect yet. Any error makes the check fail.
fn report(loaded: &LoadedConfig, style: Style) -> (String, Exit) {
    let mut text = String::new();
    let mut errors = 0;
    for problem in &loaded.problems {
        let kind = match problem.severity {
            Severity::Error => {
                errors += 1;
                style.red("error")
            }
            Severity::Warning => style.yellow("warning"),
        };
        text += &format!("{kind}: {}\n", one_line(&problem.to_string(), 1000));
    }
    if !loaded.untrusted.is_empty() {
        text += &format!("{}: not trusted, so left out (`trefoil trust` trusts it):\n", style.yellow("warning"));
        text += &trust::describe(&loaded.untrusted, style);
    }
    if !loaded.inert.is_empty() {
        let keys: Vec<String> = loaded.inert.iter().map(|key| one_line(key, 100)).collect();
        text += &format!("{}: known, but without effect yet: {}\n", style.dim("note"), keys.join(", "));
    }
    let warnings = loaded.problems.len() - errors;
    text += &format!("{}\n", totals(loaded.sources.len(), errors, warnings));
    (text, if errors > 0 { Exit::Failed } else { Exit::Success })
}
