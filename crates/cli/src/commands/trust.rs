//! `trefoil trust`, and the question about trust that `run` asks.

use std::path::Path;

use anyhow::Context as _;
use config::{LoadedConfig, TrustStore, UntrustedFile};
use tokio_util::sync::CancellationToken;

use crate::args::Trust as Args;
use crate::exit::{Exit, Failure};
use crate::terminal::{self, LineReader, Style, is_interactive, one_line, plural};
use crate::wiring::Invocation;

/// The most reasons that are shown for one file.
const MAX_REASONS: usize = 20;

/// What untrusted configuration wants to do, file by file.
pub fn describe(untrusted: &[UntrustedFile], style: Style) -> String {
    let mut text = String::new();
    for file in untrusted {
        text += &format!("  {}\n", style.bold(&one_line(&file.path.display().to_string(), 200)));
        for reason in file.what.iter().take(MAX_REASONS) {
            text += &format!("    - {}\n", one_line(reason, style.width.max(80)));
        }
        if file.what.len() > MAX_REASONS {
            text += &format!("    … {} more\n", file.what.len() - MAX_REASONS);
        }
    }
    text
}

/// `trefoil trust`.
pub async fn command(args: &Args, invocation: &Invocation, cancel: CancellationToken) -> anyhow::Result<()> {
    let file = invocation.dirs.trust_file();
    let mut trusted = TrustStore::load(&file)?;
    if args.list {
        let rows: Vec<Vec<String>> = trusted
            .list()
            .map(|(path, contents)| vec![one_line(&path.display().to_string(), 200), plural(contents.len(), "version")])
            .collect();
        return Ok(terminal::print(&terminal::table(&rows))?);
    }
    let path = match &args.path {
        Some(path) => invocation
            .directory
            .join(path)
            .canonicalize()
            .map_err(|error| Failure::new(Exit::Usage, format!("cannot trust {}: {error}", path.display())))?,
        None => invocation.directory.clone(),
    };
    let directory = if path.is_dir() { path.clone() } else { path.parent().unwrap_or(&path).to_path_buf() };
    if args.revoke {
        let root =
            if args.path.is_some() { path } else { config::project_info(&directory, &invocation.dirs.state).worktree };
        let files = trusted.revoke(&root);
        trusted.save()?;
        terminal::say(&format!("no longer trusted: {} below {}\n", plural(files, "file"), root.display()));
        return Ok(());
    }
    let mut untrusted =
        config::load(&config::Inputs { directory: directory.clone(), ..invocation.config_inputs() }).untrusted;
    untrusted.extend(git_programs(invocation, &directory).await?);
    if untrusted.is_empty() {
        terminal::say("there is nothing here that needs trust\n");
        return Ok(());
    }
    terminal::say("This repository's own configuration wants to:\n");
    terminal::eprint(&describe(&untrusted, Style::stderr(invocation.no_color())));
    if !args.yes {
        if !is_interactive() {
            return Err(Failure::new(Exit::Denied, "nothing was trusted: there is no terminal to ask on")
                .hint("look at the list above, then run it again with --yes")
                .into());
        }
        if !confirm("Trust these files, as they are now? [y/N] ", &mut LineReader::default(), cancel).await {
            return Err(Failure::new(Exit::Denied, "nothing was trusted").into());
        }
    }
    save(&mut trusted, &untrusted)?;
    terminal::say(&format!("trusted {}, until the content changes\n", plural(untrusted.len(), "file")));
    Ok(())
}

/// The programs in the repository's own git configuration, which Trefoil's git does not run until they are trusted.
async fn git_programs(invocation: &Invocation, directory: &Path) -> anyhow::Result<Option<UntrustedFile>> {
    let program = std::env::current_exe().context("the path of this program cannot be read")?;
    let found = exec::Exec::supervised(program, None).git(directory).programs().await;
    let Ok(Some(programs)) = found else { return Ok(None) };
    let hash = config::content_hash(programs.text().as_bytes());
    let known = invocation.config_inputs().trust.covers(&programs.file, &hash);
    Ok((!known).then(|| UntrustedFile { what: programs.what(), path: programs.file, hash }))
}

/// Asks about untrusted configuration on a terminal, or else lists it. Returns whether it is trusted now, so that the configuration
/// must be loaded again.
pub async fn offer(
    loaded: &LoadedConfig,
    invocation: &Invocation,
    ask: Option<&mut LineReader>,
    cancel: CancellationToken,
) -> anyhow::Result<bool> {
    if loaded.untrusted.is_empty() {
        return Ok(false);
    }
    for file in &loaded.untrusted {
        tracing::warn!(path = %file.path.display(), what = %file.what.join("; "), "not trusted, so left out");
    }
    terminal::say("Not trusted, so left out of the configuration:\n");
    terminal::eprint(&describe(&loaded.untrusted, Style::stderr(invocation.no_color())));
    let Some(input) = ask else {
        terminal::say("  hint: `trefoil trust` trusts these files as they are now\n");
        return Ok(false);
    };
    if !confirm("Trust these files now, as they are? [y/N] ", input, cancel).await {
        return Ok(false);
    }
    save(&mut TrustStore::load(&invocation.dirs.trust_file())?, &loaded.untrusted)?;
    Ok(true)
}

fn save(trusted: &mut TrustStore, files: &[UntrustedFile]) -> anyhow::Result<()> {
    for file in files {
        trusted.trust(Path::new(&file.path), &file.hash);
    }
    Ok(trusted.save()?)
}

/// Asks a question; anything but a clear yes is a no.
async fn confirm(question: &str, input: &mut LineReader, cancel: CancellationToken) -> bool {
    terminal::eprint(question);
    let line = cancel.run_until_cancelled(input.line()).await.flatten();
    matches!(line.as_deref().map(str::trim), Some("y" | "Y" | "yes"))
}
