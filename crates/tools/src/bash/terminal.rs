//! Runs a command in a terminal that the human sees, such as an editor's.

use std::path::Path;
use std::time::Duration;

use api::{EnvironmentError, Terminal, TerminalCommand};
use exec::End;
use serde_json::json;

use super::{note, result};
use crate::files::write::object;
use crate::tool::context::{Context, ProgressUpdate};
use crate::tool::truncate::truncate;
use crate::tool::{Output, ToolError};

/// How long a terminal may take to return the output of an ended command.
const OUTPUT_WAIT: Duration = Duration::from_secs(10);

/// Opens a terminal for a command, if the environment has terminals.
pub async fn open(ctx: &Context, command: &str, directory: &Path) -> Result<Option<Box<dyn Terminal>>, ToolError> {
    let command = TerminalCommand {
        program: ctx.options.shell.clone(),
        args: vec!["-c".to_owned(), command.to_owned()],
        directory: directory.to_owned(),
        env: ctx.options.shell_env.clone(),
        max_bytes: ctx.options.max_bytes,
    };
    ctx.env.terminal(command).await.map_err(failed)
}

/// Follows a command to its end, and releases the terminal whatever happens.
pub async fn run(
    terminal: Box<dyn Terminal>,
    command: String,
    timeout: Duration,
    ctx: &Context,
) -> Result<Output, ToolError> {
    let id = terminal.id().to_owned();
    let metadata = Some(object(json!({"output": "", "terminalId": id})));
    ctx.progress.send(ProgressUpdate { title: None, metadata });
    let ended = tokio::select! {
        biased;
        () = ctx.cancel.cancelled() => Ok(End::Cancelled),
        exit = terminal.wait() => exit.map(|exit| match exit.code {
            Some(code) => End::Exited(code),
            None => End::Signalled(exit.signal.and_then(|signal| signal.parse().ok()).unwrap_or_default()),
        }),
        () = tokio::time::sleep(timeout) => Ok(End::TimedOut),
    };
    let end = match ended {
        Ok(end) => end,
        Err(error) => {
            terminal.release().await;
            return Err(failed(error));
        }
    };
    if matches!(end, End::Cancelled | End::TimedOut) {
        // A terminal that cannot be killed is released anyway.
        let _ = tokio::time::timeout(OUTPUT_WAIT, terminal.kill()).await;
    }
    let printed = tokio::time::timeout(OUTPUT_WAIT, terminal.output()).await;
    terminal.release().await;
    let printed = printed.ok().and_then(Result::ok).unwrap_or_default();
    let text = truncate(api::strip_control(&printed.text).into_owned(), &ctx.options).await;
    let truncated = printed.truncated || text.path.is_some();
    let exit = if let End::Exited(code) = end { Some(code) } else { None };
    let metadata = object(json!({"output": text.text, "exit": exit, "truncated": truncated, "terminalId": id}));
    Ok(result(command, &text.text, note(end, timeout), metadata))
}

fn failed(error: EnvironmentError) -> ToolError {
    ToolError::failed(format!("The command did not run: {error}"))
}
