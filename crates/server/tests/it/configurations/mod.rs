//! Real-world configurations, read by the real OpenCode and by Trefoil. Differences in `/config`, `/agent`, `/command`,
//! `/skill` and in what each agent may do are listed in `differences.txt`, with a reason.
//!
//! Each file of `corpus` is one configuration: the files of a project, each below a line `== path`. A path that begins
//! with `~/` lies in the home that all configurations named `home-…` share. Before the files there may be `crlf`, for
//! their line endings, and `directory: …`, where the agent works.

mod compare;

use std::path::{Path, PathBuf};
use std::time::Duration;

use config::{Dirs, TrustStore, content_hash};
use futures::StreamExt as _;
use serde_json::{Value, json};
use testkit::{OpenCode, TempProject, eventually};

use crate::accepted_differences::AcceptedDifferences;
use crate::common::Rig;

/// The least number of configurations.
const MIN_CASES: usize = 60;
/// The timeout of one attempt: OpenCode never answers requests that arrive just after it began to listen.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// How many configurations are read at a time: OpenCode waits for git most of the time.
const MAX_CONCURRENT: usize = 4;
/// What is compared.
const LISTS: [&str; 4] = ["config", "agent", "command", "skill"];

/// A configuration.
struct Case {
    name: String,
    /// Where the agent works, below the project.
    directory: String,
    files: Vec<(String, String)>,
}

impl Case {
    fn parse(name: &str, text: &str) -> Self {
        let mut case = Self { name: name.to_owned(), directory: String::new(), files: Vec::new() };
        for line in text.split_inclusive('\n') {
            if let Some(path) = line.strip_prefix("== ") {
                case.files.push((path.trim().to_owned(), String::new()));
            } else if let Some((_, content)) = case.files.last_mut() {
                content.push_str(line);
            } else if let Some(directory) = line.strip_prefix("directory: ") {
                case.directory = directory.trim().to_owned();
            }
        }
        if text.starts_with("crlf\n") {
            case.files.iter_mut().for_each(|(_, content)| *content = content.replace('\n', "\r\n"));
        }
        assert!(!case.files.is_empty(), "{name} has no files");
        case
    }

    /// Writes its files; returns the directory to ask for.
    fn write(&self, project: &TempProject) -> PathBuf {
        let root = project.path().join(&self.name);
        std::fs::create_dir_all(root.join(&self.directory)).unwrap();
        let git = project.command("git").args(["init", "--quiet"]).current_dir(&root).status().unwrap();
        assert!(git.success(), "{}: {git}", self.name);
        for (path, content) in &self.files {
            match path.strip_prefix("~/") {
                Some(path) => project.write_home(path, content),
                None => project.write(root.join(path), content),
            };
        }
        if self.directory.is_empty() { root } else { root.join(&self.directory) }
    }
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/configurations/corpus");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let name = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    paths.iter().map(|path| Case::parse(&name(path), &std::fs::read_to_string(path).unwrap())).collect()
}

#[tokio::test]
async fn opencode_and_trefoil_read_configurations_alike() {
    let cases = cases();
    assert!(cases.len() >= MIN_CASES, "{} configurations", cases.len());
    let (home, plain): (Vec<Case>, Vec<Case>) = cases.into_iter().partition(|case| case.name.starts_with("home-"));
    let (home, plain) = tokio::join!(differences(home), differences(plain));
    let differences: Vec<String> = home.into_iter().chain(plain).collect();
    let (unknown, stale) = AcceptedDifferences::parse(include_str!("differences.txt")).check(&differences);
    assert!(unknown.is_empty(), "OpenCode reads these differently:\n{}", unknown.join("\n"));
    assert!(stale.is_empty(), "these differences no longer occur:\n{}", stale.join("\n"));
}

/// The differences between OpenCode and Trefoil for configurations that share a home.
async fn differences(cases: Vec<Case>) -> Vec<String> {
    let project = TempProject::without_git();
    let places: Vec<(String, PathBuf)> = cases.iter().map(|case| (case.name.clone(), case.write(&project))).collect();
    trust_everything(&project);
    let opencode = OpenCode::start(&project, &json!({}));
    let rig = Rig::on(project).await;
    let http = &rig.http;
    until_ready(http, &opencode).await;
    let (their_url, our_url, home) = (&opencode.url(), &rig.url, &rig.project.home());
    let compared = places.iter().map(|(name, place)| async move {
        // Trefoil first, as OpenCode writes into files that name no schema.
        let ours = answers(http, our_url, place).await;
        let theirs = answers(http, their_url, place).await;
        let found = compare::compare(&theirs, &ours, home, place);
        found.into_iter().map(|line| format!("{name}: {line}")).collect::<Vec<_>>()
    });
    futures::stream::iter(compared).buffered(MAX_CONCURRENT).concat().await
}

/// Trusts every file: untrusted repositories are tested elsewhere.
fn trust_everything(project: &TempProject) {
    let env = project.env().into_iter().collect();
    let mut store = TrustStore::load(&Dirs::from_env(&env, &project.home()).trust_file()).unwrap();
    let mut folders = vec![project.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.extend((!entry.ends_with(".git")).then_some(entry));
            } else {
                store.trust(&entry, &content_hash(&std::fs::read(&entry).unwrap()));
            }
        }
    }
    store.save().unwrap();
}

async fn until_ready(http: &reqwest::Client, opencode: &OpenCode) {
    let url = format!("{}/global/health", opencode.url());
    let answers = async || http.get(&url).timeout(ATTEMPT_TIMEOUT).send().await.is_ok();
    eventually("OpenCode answers", answers).await;
}

/// What a server reports about a directory, by list; null if it refuses the configuration.
async fn answers(http: &reqwest::Client, url: &str, directory: &Path) -> Value {
    let mut answers = json!({});
    for list in LISTS {
        let request = http.get(format!("{url}/{list}?directory={}", directory.display()));
        let answer = request.send().await.unwrap_or_else(|error| panic!("{list} of {}: {error}", directory.display()));
        let body = if answer.status().is_success() { answer.json().await.unwrap() } else { Value::Null };
        answers[list] = body;
    }
    answers
}
