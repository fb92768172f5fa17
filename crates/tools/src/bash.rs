//! The `bash` tool: runs a command line.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use api::JsonMap;
use exec::bash::Parsed;
use exec::{End, Spec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::files::path::{self, Locator, Target};
use crate::files::write::object;
use crate::tool::context::{Context, Options, ProgressUpdate};
use crate::tool::truncate::{self, Total, truncate};
use crate::tool::{Effect, Need, Output, ToolError, TypedTool};

mod terminal;

/// The maximum timeout of a call.
const MAX_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);
/// How many bytes of the output clients see while the command runs, counted from the end.
const LIVE_BYTES: usize = 32 * 1024;
/// Files outside every workspace that are safe to use.
const DEVICES: [&str; 8] =
    ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty"];

/// Runs a command line in a shell and returns its output, stdout and stderr together.
///
/// There is no terminal and no input, so use options that need none (`--yes`, `--no-pager`). Everything that the
/// command started ends with it: nothing keeps running in the background. Long output is shortened in the middle, and the
/// full output is saved to a file whose path you get. To read, find or change files, prefer the other tools.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Input {
    /// The command line.
    command: String,
    /// How long it may take, in milliseconds; 120000 if left out.
    timeout: Option<u64>,
    /// The folder to run in; the working directory if left out. Better than `cd`.
    workdir: Option<String>,
}

pub(crate) struct Bash;

impl TypedTool for Bash {
    type Input = Input;
    const NAME: &'static str = "bash";
    const EFFECT: Effect = Effect::SideEffect;

    async fn needs(&self, input: &Input, ctx: &Context) -> Result<Vec<Need>, ToolError> {
        let parsed = exec::bash::parse(&input.command);
        let mut needs = Vec::new();
        let locator = Locator::new(ctx)?;
        let workdir = locator.locate_from(&ctx.directory, input.workdir.as_deref().unwrap_or("."))?;
        let understood = outside_needs(ctx, &locator, &workdir, &parsed, &mut needs);
        needs.extend(redirect_needs(ctx, &locator, &workdir, input, &parsed));
        let same_shell = ctx.options.shell.file_name().is_some_and(|name| name == "bash");
        needs.push(command_need(&input.command, parsed, understood && same_shell));
        Ok(needs)
    }

    async fn run(&self, input: Input, ctx: Context) -> Result<Output, ToolError> {
        let timeout = match input.timeout {
            None => ctx.options.bash_timeout,
            Some(0) => return Err(ToolError::failed("timeout is 0, so the command could not run. Give milliseconds.")),
            Some(millis) => Duration::from_millis(millis).min(MAX_TIMEOUT),
        };
        let workdir = path::locate(&ctx, input.workdir.as_deref().unwrap_or("."))?;
        path::confirm(&ctx, &Vec::from_iter(workdir.outside_folder_need()))?;
        if let Some(terminal) = terminal::open(&ctx, &input.command, &workdir.real).await? {
            return terminal::run(terminal, input.command, timeout, &ctx).await;
        }
        let mut spec = Spec::shell(&ctx.options.shell, &input.command, &workdir.real);
        spec.env = ctx.options.shell_env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        spec.timeout = Some(timeout);
        spec.keep_bytes = ctx.options.max_bytes;
        let folder = ctx.options.output_dir.clone();
        let made = tokio::task::spawn_blocking(move || truncate::make_output_dir(&folder)).await;
        spec.spill = matches!(made, Ok(Ok(()))).then(|| truncate::output_path(&ctx.options));

        let mut live = LiveOutput { text: String::new(), ctx: &ctx };
        live.send();
        let mut on_output = |text: &str| live.push(text);
        let outcome = ctx.exec.run(spec, ctx.cancel.clone(), &mut on_output).await;
        let outcome = outcome.map_err(|error| ToolError::failed(format!("The command did not run: {error}")))?;

        let (text, truncated) = shorten(outcome.output, &ctx.options).await;
        let exit = match outcome.end {
            End::Exited(code) => Some(code),
            _ => None,
        };
        let text = if text.is_empty() { "(no output)".to_owned() } else { text };
        let metadata = object(json!({"output": text, "exit": exit, "truncated": truncated}));
        Ok(result(input.command, &text, note(outcome.end, timeout), metadata))
    }
}

/// The result of a command: its output, and a note if it did not exit normally.
fn result(command: String, text: &str, note: Option<String>, metadata: JsonMap) -> Output {
    let mut output = text.to_owned();
    if let Some(note) = note {
        output.push_str(&format!("\n\n<shell_metadata>\n{note}\n</shell_metadata>"));
    }
    Output { title: command, output, metadata, ..Output::default() }
}

/// Collects the needs for folders outside the workspace: the working directory, paths in the arguments of known
/// commands, redirects. A path that the command line does not determine counts as outside. Returns false if a path
/// could not be resolved.
fn outside_needs(
    ctx: &Context,
    locator: &Locator<'_>,
    workdir: &Target,
    parsed: &Parsed,
    needs: &mut Vec<Need>,
) -> bool {
    needs.extend(workdir.outside_folder_need());
    let mut understood = true;
    let arguments = parsed.commands.iter().flat_map(|command| &command.paths);
    for path in arguments.chain(&parsed.writes).chain(&parsed.reads) {
        if DEVICES.contains(&path.as_str()) {
            continue;
        }
        let need = match home(path, &ctx.options) {
            Some(Home::Unknown) => Some(path::external(path, path.rsplit_once('/').map_or(path, |(parent, _)| parent))),
            Some(Home::Known(path)) => outside_need(locator, &workdir.shown, &path, &mut understood),
            None => outside_need(locator, &workdir.shown, path, &mut understood),
        };
        needs.extend(need.filter(|need| needs.iter().all(|other| other.patterns != need.patterns)));
    }
    if !parsed.unknown_paths.is_empty() {
        // The path may be anywhere, so only a permission for everything covers it.
        let need = Need::new("external_directory", "*").with("filepath", parsed.unknown_paths.join("\n"));
        needs.push(Need { always: Vec::new(), opaque: true, ..need });
    }
    understood
}

/// A redirect to a file edits that file, and a redirect from a file reads it, whatever the command is.
fn redirect_needs(ctx: &Context, locator: &Locator<'_>, workdir: &Target, input: &Input, parsed: &Parsed) -> Vec<Need> {
    let kinds = [("edit", &parsed.writes), ("read", &parsed.reads)];
    let paths = kinds.into_iter().flat_map(|(permission, paths)| paths.iter().map(move |path| (permission, path)));
    let mut needs: Vec<Need> = Vec::new();
    for (permission, path) in paths.filter(|(_, path)| !DEVICES.contains(&path.as_str())) {
        let path = match home(path, &ctx.options) {
            Some(Home::Known(path)) => path,
            Some(Home::Unknown) | None => path.clone(),
        };
        let target = locator.locate_from(&workdir.shown, &path).ok();
        needs.extend(target.as_ref().filter(|_| permission == "edit").and_then(Target::git_directory_need));
        let pattern = target.map_or(path.clone(), |target| target.pattern());
        let need = Need::new(permission, pattern).with("filepath", path).with("command", input.command.clone());
        if !needs.iter().any(|other| other.permission == need.permission && other.patterns == need.patterns) {
            needs.push(need);
        }
    }
    for (permission, _) in
        [("edit", parsed.unknown_write), ("read", parsed.unknown_read)].iter().filter(|(_, any)| *any)
    {
        let need = Need::new(permission, "*").with("filepath", "").with("command", input.command.clone());
        needs.push(Need { always: Vec::new(), opaque: true, ..need });
    }
    needs
}

fn outside_need(locator: &Locator<'_>, workdir: &Path, path: &str, understood: &mut bool) -> Option<Need> {
    match locator.locate_from(workdir, path) {
        Ok(target) if !target.external => None,
        Ok(target) if target.real.is_dir() => target.outside_folder_need(),
        Ok(target) => target.outside_file_need(),
        Err(_) => {
            *understood = false;
            None
        }
    }
}

enum Home {
    Known(String),
    Unknown,
}

/// A path in someone's home directory, which only the command's environment determines.
fn home(path: &str, options: &Options) -> Option<Home> {
    let rest = path.strip_prefix('~')?;
    let home = options.shell_env.iter().find(|(name, _)| name == "HOME");
    match home {
        Some((_, home)) if rest.is_empty() || rest.starts_with('/') => Some(Home::Known(format!("{home}{rest}"))),
        _ => Some(Home::Unknown),
    }
}

fn command_need(command: &str, parsed: Parsed, understood: bool) -> Need {
    let mut patterns: Vec<String> = Vec::new();
    let mut always: Vec<String> = Vec::new();
    let add = |list: &mut Vec<String>, text: String| {
        if !list.contains(&text) {
            list.push(text);
        }
    };
    let opaque = !parsed.opaque.is_empty() || !understood;
    for simple in parsed.commands {
        add(&mut patterns, simple.text);
        add(&mut always, format!("{} *", simple.prefix));
    }
    parsed.opaque.into_iter().for_each(|source| add(&mut patterns, source));
    if patterns.is_empty() {
        patterns.push(command.to_owned());
    }
    let need = Need::new("bash", "").with("command", command);
    Need { patterns, always, opaque, arguments: parsed.arguments, ..need }
}

/// Sends the end of the output to clients while the command runs.
struct LiveOutput<'a> {
    text: String,
    ctx: &'a Context,
}

impl LiveOutput<'_> {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        if self.text.len() > LIVE_BYTES {
            let start = self.text.ceil_char_boundary(self.text.len() - LIVE_BYTES);
            self.text.drain(..start);
        }
        self.send();
    }

    fn send(&self) {
        let metadata = Some(object(json!({"output": self.text})));
        self.ctx.progress.send(ProgressUpdate { title: None, metadata });
    }
}

/// The output within its limits, and whether it was truncated.
async fn shorten(output: exec::Output, options: &Options) -> (String, bool) {
    if !output.truncated {
        let cut = truncate(output.text, options).await;
        return (cut.text, cut.path.is_some());
    }
    let total = Total { lines: output.total_lines, bytes: output.total_bytes };
    let (spilled, bytes) = (output.spilled.clone(), options.max_bytes as u64);
    let tail = tokio::task::spawn_blocking(move || tail(&spilled?, bytes)).await.ok().flatten().unwrap_or_default();
    let mut text = truncate::join(&output.text, &tail, total, output.spilled.as_deref(), options);
    if let Some(error) = output.spill_error {
        text.push_str(&format!("\n[The file with the whole output is not complete: {error}]"));
    }
    (text, true)
}

/// The last `bytes` bytes of a file.
fn tail(path: &Path, bytes: u64) -> Option<String> {
    let mut file = std::fs::File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes))).ok()?;
    let mut content = Vec::new();
    file.take(bytes).read_to_end(&mut content).ok()?;
    Some(String::from_utf8_lossy(&content).into_owned())
}

/// What the model is told if the command did not exit normally.
fn note(end: End, timeout: Duration) -> Option<String> {
    match end {
        End::Exited(_) => None,
        End::Signalled(signal) => Some(format!("The command was ended by signal {signal}.")),
        End::TimedOut => Some(format!(
            "The command was ended because it took longer than its timeout of {} ms. \
             If it needs more time and does not wait for input, run it again with a larger timeout.",
            timeout.as_millis()
        )),
        End::Cancelled => Some("User aborted the command".into()),
    }
}

#[cfg(test)]
mod tests;
