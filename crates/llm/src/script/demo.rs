//! The offline demo: a small real task with real tools, for users who have no model yet. It reacts to the results of
//! the tools, so what it says is true. Pure.

use api::Json;
use serde_json::json;

use super::step::ScriptedCall;
use super::{Step, Turn};
use crate::error::bounded;
use crate::{AssistantContent, CachedMessage, Prompt, PromptMessage, ToolResult};

/// The sample project: a script with a spelling mistake, and a test that fails because of it.
const SAMPLE: &str = "greeter.sh";
const SAMPLE_TEST: &str = "test.sh";
const MISTAKE: &str = "Helo, ";
const CORRECTION: &str = "Hello, ";
/// What the test prints if it passes.
const PASSED: &str = "PASS";

/// The demo ends after this many answers, whatever the tools return.
const MAX_STEPS: usize = 8;
/// How much of a tool's output is quoted.
const MAX_LINES: usize = 5;
const MAX_LINE: usize = 100;

const INTRODUCTION: &str = "This is Trefoil's offline demo: a fixed script, not a language model, so it does not \
    understand what you write. The tools that it uses are real.\n\n";
const FAREWELL: &str = "\n\nTo let a real model work here, set OPENAI_API_KEY, or name any OpenAI-compatible server \
    under `provider` in trefoil.json, and ask again.";

/// File types that are not worth reading.
const BINARY: [&str; 15] =
    ["png", "jpg", "jpeg", "gif", "webp", "ico", "pdf", "zip", "gz", "woff", "woff2", "so", "bin", "lock", "db"];

/// The next step of the demo.
pub fn step(prompt: &Prompt, turn: &Turn<'_>) -> Step {
    let demo = Demo { prompt, results: results(turn.since) };
    let mut step = demo.next(turn.step);
    // A script uses no tokens, and reports none.
    for name in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        step.usage.insert(name.to_owned(), 0.into());
    }
    for name in ["prompt_tokens_details", "completion_tokens_details"] {
        step.usage.insert(name.to_owned(), Json::Null);
    }
    step
}

struct Demo<'a> {
    prompt: &'a Prompt,
    /// The tool results of this turn, each with the call's input.
    results: Vec<(&'a Json, &'a ToolResult)>,
}

impl<'a> Demo<'a> {
    fn next(&self, step: usize) -> Step {
        let Some(listing) = self.result("glob") else {
            if step == 0 && self.has("glob") {
                return act(format!("{INTRODUCTION}First, what is here?"), [("glob", json!({"pattern": "*"}))]);
            }
            return Step::say(format!("{INTRODUCTION}I have no tool to look around with here.{FAREWELL}"));
        };
        if listing.is_error {
            return Step::say(format!("I could not look around: {}{FAREWELL}", quote(&listing.output)));
        }
        let files = Files::parse(&listing.output);
        let next = match files.sample() {
            Some((script, test)) => self.repair(&script, &test),
            None => self.explore(&files),
        };
        next.filter(|_| step < MAX_STEPS).unwrap_or_else(|| self.report(&files))
    }

    /// The next step in the sample project; `None` once only the report is left.
    fn repair(&self, script: &str, test: &str) -> Option<Step> {
        let about_script =
            |(input, result): &&(&Json, &ToolResult)| result.name == "read" && input["filePath"] == script;
        let Some((_, read)) = self.results.iter().find(about_script) else {
            return self.has("read").then(|| {
                let calls = [("read", json!({"filePath": script})), ("read", json!({"filePath": test}))];
                act("This is the sample project. I read the script and its test.", calls)
            });
        };
        let wrong = !read.is_error && read.output.contains(MISTAKE);
        if wrong && self.has("edit") && self.result("edit").is_none() {
            let edit = json!({"filePath": script, "oldString": MISTAKE, "newString": CORRECTION});
            return Some(act(
                format!("The script prints {MISTAKE:?} where its test wants {CORRECTION:?}. I correct the spelling."),
                [("edit", edit)],
            ));
        }
        let ready = self.has("bash") && self.result("bash").is_none();
        ready.then(|| act("Now the test decides.", [("bash", json!({"command": format!("sh {SAMPLE_TEST}")}))]))
    }

    /// The next step in any other directory.
    fn explore(&self, files: &Files<'_>) -> Option<Step> {
        if self.results.len() > 1 {
            return None;
        }
        let mut calls = Vec::new();
        let mut text = "There are no files that I can see.".to_owned();
        if let Some(file) = files.readable().filter(|_| self.has("read")) {
            text = format!("I read {}.", files.short(file));
            calls.push(("read", json!({"filePath": file})));
        }
        if self.has("bash") {
            let command = if files.paths.is_empty() { "ls -A" } else { "git status --short --branch" };
            calls.push(("bash", json!({"command": command})));
        }
        (!calls.is_empty()).then(|| act(text, calls))
    }

    fn report(&self, files: &Files<'_>) -> Step {
        let mut text = match (files.sample(), self.result("bash")) {
            (Some(_), Some(test)) if !test.is_error && test.output.contains(PASSED) => {
                let change = match self.result("edit") {
                    Some(edit) if !edit.is_error => format!("{SAMPLE} is repaired, and its test passes"),
                    _ => format!("There was nothing to repair in {SAMPLE}; its test passes"),
                };
                format!("{change}:\n\n{}", quote(&test.output))
            }
            (Some(_), _) => {
                let mut text = format!("{SAMPLE} is not repaired.");
                for tool in ["edit", "bash"] {
                    let failed = self.result(tool).filter(|result| result.is_error || tool == "bash");
                    text.extend(failed.map(|result| format!("\n\n`{tool}` said:\n\n{}", quote(&result.output))));
                }
                text
            }
            (None, _) => self.describe(files),
        };
        text.push_str(FAREWELL);
        Step::say(text)
    }

    /// Describes a directory that is not the sample.
    fn describe(&self, files: &Files<'_>) -> String {
        let mut text = match files.paths.len() {
            0 => "This directory holds no files that I can see.".to_owned(),
            count => {
                let names: Vec<&str> = files.paths.iter().take(MAX_LINES).map(|path| files.short(path)).collect();
                let more = if count > names.len() { " and others" } else { "" };
                format!("I saw {count} file{}: {}{more}.", if count == 1 { "" } else { "s" }, names.join(", "))
            }
        };
        for (input, result) in &self.results {
            let said = match (result.name.as_str(), result.is_error) {
                ("glob", _) => continue,
                (name, true) => format!("`{name}` failed:\n\n{}", quote(&result.output)),
                ("read", false) => {
                    let file = input["filePath"].as_str().unwrap_or("The file");
                    format!("{} begins:\n\n{}", files.short(file), quote(&content(&result.output)))
                }
                (_, false) => {
                    let command = input["command"].as_str().unwrap_or("the command");
                    format!("`{command}` says:\n\n{}", quote(&result.output))
                }
            };
            text.push_str("\n\n");
            text.push_str(&said);
        }
        text
    }

    fn has(&self, tool: &str) -> bool {
        self.prompt.tools.iter().any(|spec| spec.name == tool)
    }

    /// The first result of a tool.
    fn result(&self, tool: &str) -> Option<&'a ToolResult> {
        self.results.iter().find(|(_, result)| result.name == tool).map(|(_, result)| *result)
    }
}

fn results(since: &[CachedMessage]) -> Vec<(&Json, &ToolResult)> {
    let mut inputs: Vec<(&str, &Json)> = Vec::new();
    let mut results = Vec::new();
    for message in since {
        match &**message {
            PromptMessage::Assistant(content) => inputs.extend(content.iter().filter_map(|piece| match piece {
                AssistantContent::ToolCall { id, input, .. } => Some((id.as_str(), input)),
                _ => None,
            })),
            PromptMessage::Tool(result) => {
                let input =
                    inputs.iter().rev().find(|(id, _)| *id == result.id).map_or(&Json::Null, |(_, input)| *input);
                results.push((input, result));
            }
            PromptMessage::User(_) => {}
        }
    }
    results
}

fn act(text: impl Into<String>, calls: impl IntoIterator<Item = (&'static str, Json)>) -> Step {
    let tools = calls.into_iter().map(|(name, input)| ScriptedCall::Pair(name.to_owned(), input)).collect();
    Step { tools, ..Step::say(text) }
}

/// The files that `glob` listed.
struct Files<'a> {
    paths: Vec<&'a str>,
    /// The folder that contains all of them, with a trailing slash.
    root: &'a str,
}

impl<'a> Files<'a> {
    fn parse(output: &'a str) -> Self {
        // The tool's notes are in parentheses, or are sentences.
        let path = |line: &&str| !line.is_empty() && !line.starts_with('(') && !line.starts_with("No files");
        let paths: Vec<&str> = output.lines().map(str::trim).filter(path).collect();
        let folder = |path: &'a str| &path[..path.rfind('/').map_or(0, |slash| slash + 1)];
        let root = paths.iter().map(|path| folder(path)).reduce(common).unwrap_or_default();
        Self { paths, root }
    }

    /// The sample's script and test, if this directory is the sample itself: not somewhere below it, so that the demo
    /// never edits the sample in a checkout.
    fn sample(&self) -> Option<(String, String)> {
        let here = |name: &str| self.paths.iter().find(|path| self.short(path) == name).map(|path| (*path).to_owned());
        Some((here(SAMPLE)?, here(SAMPLE_TEST)?))
    }

    /// The file that says most about the directory.
    fn readable(&self) -> Option<&'a str> {
        let kind = |path: &str| path.rsplit_once('.').map(|(_, kind)| kind.to_lowercase()).unwrap_or_default();
        let plain = |path: &&&str| {
            !self.short(path).split('/').any(|name| name.starts_with('.')) && !BINARY.contains(&kind(path).as_str())
        };
        self.paths.iter().filter(plain).copied().min_by_key(|path| {
            let name = path.rsplit('/').next().unwrap_or(path).to_lowercase();
            (!name.starts_with("readme"), path.matches('/').count(), *path)
        })
    }

    fn short<'p>(&self, path: &'p str) -> &'p str {
        path.strip_prefix(self.root).unwrap_or(path)
    }
}

/// The folder that contains both.
fn common<'a>(one: &'a str, other: &str) -> &'a str {
    let same = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let slash = one.as_bytes()[..same].iter().rposition(|byte| *byte == b'/');
    &one[..slash.map_or(0, |slash| slash + 1)]
}

/// The lines of a file in `read`'s output, without tags and line numbers.
fn content(output: &str) -> String {
    let body = output.split_once("<content>").map_or(output, |(_, body)| body);
    let body = body.split_once("</content>").map_or(body, |(body, _)| body);
    let unnumbered = |line: &str| {
        let rest = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
        rest.strip_prefix(": ").or_else(|| rest.strip_prefix("| ")).unwrap_or(line).to_owned()
    };
    body.lines().map(unnumbered).collect::<Vec<_>>().join("\n")
}

/// The first lines of a tool's output, as a quotation.
fn quote(text: &str) -> String {
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).take(MAX_LINES);
    let lines: Vec<String> = lines.map(|line| format!("> {}", bounded(line.to_owned(), MAX_LINE))).collect();
    if lines.is_empty() { "> (nothing)".to_owned() } else { lines.join("\n") }
}
