//! `trefoil doctor`: checks the installation, and says what to do about each finding.

mod servers;
mod space;

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use api::HostError;
use config::{LoadedConfig, Severity};
use engine::Catalog;
use llm::Llm;
use serde::Serialize;
use store::{Store, StoreError};

use super::config::totals;
use crate::exit::Exit;
use crate::terminal::amounts::megabytes;
use crate::terminal::{self, Style, one_line, plural, print_json};
use crate::wiring::{self, Invocation};

/// The usual variables for keys of model vendors. Their values are never shown.
const KEY_VARIABLES: [&str; 6] =
    ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY"];

/// The column of the findings, after a mark and a name.
const COLUMN: usize = 18;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Note,
    Warning,
    Error,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    name: &'static str,
    level: Level,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    fn new(name: &'static str, level: Level, found: impl Into<String>) -> Self {
        Self { name, level, found: found.into(), advice: None }
    }

    fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// `trefoil doctor`.
pub async fn command(invocation: &Invocation, json: bool) -> anyhow::Result<Exit> {
    let loaded = Arc::new(config::load(&invocation.config_inputs()));
    let mut findings = vec![Finding::new("version", Level::Ok, env!("CARGO_PKG_VERSION"))];
    findings.extend(keys(invocation));
    findings.extend(models(invocation, &loaded).await);
    findings.push(git());
    findings.push(shell(invocation, &loaded));
    findings.push(database(&invocation.database_path()));
    findings.extend(losses(&invocation.database_path()));
    findings.extend(space::check(invocation));
    findings.extend(configuration(invocation, &loaded));
    let exit = if findings.iter().any(|f| f.level == Level::Error) { Exit::Failed } else { Exit::Success };
    if json {
        print_json(&findings)?;
    } else {
        let style = Style::stdout(invocation.no_color());
        let width = if io::stdout().is_terminal() { style.width } else { usize::MAX };
        terminal::print(&text(&findings, style, width))?;
    }
    Ok(exit)
}

/// The findings as lines, wrapped to that width.
fn text(findings: &[Finding], style: Style, width: usize) -> String {
    let mut text = String::new();
    for finding in findings {
        let mark = match finding.level {
            Level::Ok => style.green("✓"),
            Level::Note => style.dim("·"),
            Level::Warning => style.yellow("!"),
            Level::Error => style.red("✗"),
        };
        let name = format!("{:<14}", finding.name);
        let found = terminal::wrap(&one_line(&finding.found, 400), COLUMN, width);
        text += &format!("{mark} {}  {found}\n", style.bold(&name));
        if let Some(advice) = &finding.advice {
            let advice = terminal::wrap(&format!("→ {}", one_line(advice, 400)), COLUMN + 2, width);
            text += &format!("{:COLUMN$}{}\n", "", style.dim(&advice));
        }
    }
    text
}

fn keys(invocation: &Invocation) -> Vec<Finding> {
    let is_set = |name: &&&str| invocation.env.get(**name).is_some_and(|value| !value.is_empty());
    KEY_VARIABLES.iter().filter(is_set).map(|name| Finding::new("key", Level::Ok, format!("{name} is set"))).collect()
}

/// The model servers, and the model of a prompt that names none.
async fn models(invocation: &Invocation, loaded: &Arc<LoadedConfig>) -> Vec<Finding> {
    let catalog = Catalog::new(Arc::clone(loaded), &invocation.script_models(), &invocation.env);
    let mut findings = servers::probe(&Llm::new(wiring::USER_AGENT), loaded, &catalog).await;
    findings.push(match catalog.default_model(None) {
        Ok(model) => {
            Finding::new("model", Level::Ok, format!("{model}, unless a prompt names another or one was used last"))
        }
        Err(HostError::NoModel { message, advice }) => {
            Finding { advice, ..Finding::new("model", Level::Warning, message) }
        }
        Err(error) => {
            Finding::new("model", Level::Error, error.to_string()).advice("`trefoil models` lists what can be used")
        }
    });
    findings
}

/// An address without its secrets.
fn without_secrets(address: &str) -> String {
    let Ok(mut url) = url::Url::parse(address) else { return "an invalid address".into() };
    // Both fail only on an address without a host, which has neither.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.to_string()
}

fn git() -> Finding {
    match Command::new("git").arg("--version").output() {
        Ok(output) if output.status.success() => {
            Finding::new("git", Level::Ok, String::from_utf8_lossy(&output.stdout).trim().to_string())
        }
        _ => Finding::new("git", Level::Warning, "git is not installed")
            .advice("install git: without it a directory has no project of its own"),
    }
}

fn shell(invocation: &Invocation, loaded: &LoadedConfig) -> Finding {
    let shell = loaded.config.shell.clone().or_else(|| invocation.env.get("SHELL").cloned());
    let Some(shell) = shell else {
        return Finding::new("shell", Level::Ok, "SHELL is not set; using the system's shell");
    };
    let name = shell.rsplit('/').next().unwrap_or_default();
    let usable = matches!(name, "bash" | "zsh" | "sh" | "dash" | "ksh") && Path::new(&shell).is_file();
    if usable {
        return Finding::new("shell", Level::Ok, shell);
    }
    Finding::new(
        "shell",
        Level::Warning,
        format!("{shell} does not exist or is not a POSIX shell; using the system's shell"),
    )
    .advice("set `shell` in trefoil.json to the path of bash, zsh or sh")
}

fn database(path: &Path) -> Finding {
    let shown = path.display();
    let Ok(metadata) = std::fs::metadata(path) else {
        return match is_writable(path) {
            true if Store::is_disk_full(path) => {
                Finding::new("database", Level::Warning, format!("{shown} cannot be created: its disk is full"))
                    .advice("free some space, or name a directory on another disk with TREFOIL_DATA_DIR")
            }
            true => Finding::new("database", Level::Ok, format!("{shown} will be created by the first `trefoil run`")),
            false => Finding::new("database", Level::Error, format!("{shown} cannot be created"))
                .advice("make its directory writable, or name another one with TREFOIL_DATA_DIR"),
        };
    };
    let size = format!("{shown}, {}", megabytes(metadata.len()));
    match Store::check(path) {
        Ok(()) if Store::is_disk_full(path) => Finding::new("database", Level::Warning, format!("{size}, sound, but its disk is full"))
            .advice("free some space, or name a directory on another disk with TREFOIL_DATA_DIR; until then it can only be read"),
        Ok(()) if is_writable(path) => Finding::new("database", Level::Ok, format!("{size}, sound")),
        Ok(()) => Finding::new("database", Level::Warning, format!("{size}, sound, but not writable"))
            .advice("make it and its directory writable, or name another one with TREFOIL_DATA_DIR; until then it can only be read"),
        Err(error @ StoreError::Newer { .. }) => Finding::new("database", Level::Error, error.to_string())
            .advice("a newer Trefoil wrote it: upgrade this one, or name another file with TREFOIL_DB"),
        Err(error) => Finding::new("database", Level::Error, error.to_string())
            .advice("restore a copy, or move the file away to start afresh"),
    }
}

/// What the database has lost, now and in the past.
fn losses(path: &Path) -> Vec<Finding> {
    let now = Store::detect_data_loss(path).ok().flatten().map(|loss| {
        Finding::new("lost", Level::Error, loss.to_string())
            .advice("put a copy of the -wal file back before anything else opens the database, or continue without it")
    });
    let before = Store::past_data_losses(path).into_iter().map(|text| {
        Finding::new("lost before", Level::Warning, text.trim().to_owned())
            .advice("remove the files with `torn` in their names once you do not need them")
    });
    now.into_iter().chain(before).collect()
}

/// Whether a file can be written or created: its nearest existing directory is writable, and so is the file if it exists.
fn is_writable(path: &Path) -> bool {
    let folder = path.ancestors().skip(1).find(|folder| folder.exists());
    let folder = folder.is_some_and(|folder| rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok());
    folder && (!path.exists() || rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok())
}

fn configuration(invocation: &Invocation, loaded: &LoadedConfig) -> Vec<Finding> {
    let errors = loaded.problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    let warnings = loaded.problems.len() - errors;
    let level = match (errors, warnings) {
        (0, 0) => Level::Ok,
        (0, _) => Level::Warning,
        _ => Level::Error,
    };
    let finding = Finding::new("configuration", level, totals(loaded.sources.len(), errors, warnings));
    let mut findings =
        vec![if level == Level::Ok { finding } else { finding.advice("`trefoil config check` says what and where") }];
    findings.push(match (invocation.trusts_all(), loaded.untrusted.len()) {
        (true, _) => Finding::new("trust", Level::Warning, "TREFOIL_TRUST=all: every repository may run what it likes")
            .advice("unset it outside of throw-away environments"),
        (false, 0) => Finding::new("trust", Level::Ok, "nothing here waits for trust"),
        (false, files) => Finding::new(
            "trust",
            Level::Warning,
            format!("parts of {} are left out until trusted", plural(files, "file")),
        )
        .advice("`trefoil trust` shows what they want and trusts them"),
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_lines_with_advice_below() {
        let findings = [
            Finding::new("git", Level::Ok, "git version 2"),
            Finding::new("database", Level::Error, "/x\x1b[2J is broken").advice("mend it"),
        ];
        let want = "✓ git             git version 2\n✗ database        /x is broken\n                  → mend it\n";
        assert_eq!(text(&findings, Style::plain(), usize::MAX), want);
    }

    #[test]
    fn findings_wrap_between_words_on_a_terminal() {
        let long = "a sentence that is longer than the terminal is wide";
        let findings = [Finding::new("git", Level::Warning, long).advice(long)];
        let lines = text(&findings, Style::plain(), 40);
        assert!(lines.lines().all(|line| line.chars().count() <= 40), "{lines}");
        assert!(lines.lines().skip(1).all(|line| line.starts_with("                  ")), "{lines}");
        let words = lines.split_whitespace().skip(2).filter(|word| *word != "→").collect::<Vec<_>>().join(" ");
        assert_eq!(words, format!("{long} {long}"));
    }

    #[test]
    fn addresses_are_shown_without_secrets() {
        assert_eq!(without_secrets("https://me:pw@example.org/v1?key=x"), "https://example.org/v1");
        assert_eq!(without_secrets("nonsense"), "an invalid address");
    }

    #[test]
    fn a_missing_database_is_fine_where_it_can_be_created() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(database(&dir.path().join("a/b/trefoil.db")).level, Level::Ok);
        assert!(!dir.path().join("a").exists(), "a check creates nothing");
    }
}
