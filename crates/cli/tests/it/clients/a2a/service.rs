//! A running A2A service, and the scripts that are its clients.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{TempProject, WAIT};

use super::super::harness::{finish, succeeded};

/// How long a script may take; a working one takes some seconds. Its own waits are shorter.
pub const LONGEST: Duration = Duration::from_secs(300);
/// The token of the only identity.
pub const TOKEN: &str = "token-of-the-test";
/// Makes a key of cards: prints the private half as a client of OpenSSL would write it, and the public one as a JWK.
const MAKE_KEY: &str = "const {privateKey, publicKey} = require('node:crypto').generateKeyPairSync('ec', {namedCurve: 'P-256'});
    console.log(JSON.stringify({pem: privateKey.export({type: 'pkcs8', format: 'pem'}), jwk: publicKey.export({format: 'jwk'})}))";

/// A project whose agent asks before it runs a command.
pub fn project() -> TempProject {
    let project = TempProject::new();
    project.write("a.txt", "needle\n");
    project.write_home(".config/trefoil/trefoil.json", r#"{"permission": {"bash": "ask"}}"#);
    project
}

/// The prompts that the scripts send, with the steps that the model plays.
pub fn prompts() -> Value {
    let prompt = |steps: Value, answer: &str| json!({"text": format!("SCRIPT: {steps}"), "answer": answer});
    let read = json!([["read", {"filePath": "a.txt"}]]);
    let bash = json!([["bash", {"command": "echo allowed", "description": "Says so"}]]);
    let options = json!([{"label": "Red", "description": "Warm"}, {"label": "Blue", "description": "Cold"}]);
    let question = json!({"header": "Colour", "question": "Which colour?", "options": options});
    let question = json!([["question", {"questions": [question]}]]);
    json!({
        "hello": prompt(json!([{"text": "Hello over A2A."}]), "Hello over A2A."),
        "steps": prompt(json!([{"reasoning": "Hm.", "tools": read}, {"text": "It was read."}]), "It was read."),
        "held": prompt(json!([{"text": "Working. ", "hold": "{gate}", "tools": read}, {"text": "Done."}]), "Working. Done."),
        "permission": prompt(json!([{"tools": bash}, {"text": "It was allowed."}]), "It was allowed."),
        "question": prompt(json!([{"tools": question}, {"text": "It was painted."}]), "It was painted."),
    })
}

/// `trefoil a2a` in a project of its own. Ends when dropped.
pub struct A2aService {
    pub project: TempProject,
    pub url: String,
    child: Child,
    log: PathBuf,
    key: Value,
}

impl A2aService {
    /// In this project, with changes to the command.
    pub fn start(project: TempProject, change: impl FnOnce(&mut Command)) -> Self {
        let mut node = project.command("node");
        node.args(["-e", MAKE_KEY]);
        let made: Value = serde_json::from_str(&succeeded(&finish(node, WAIT))).unwrap();
        let pem = project.write_home("card.pem", made["pem"].as_str().unwrap());
        let log = project.root().join("a2a.log");
        let mut command = project.command(env!("CARGO_BIN_EXE_trefoil"));
        command.args(["a2a", "--port", "0", "--print-logs", "--log-level", "warn"]);
        command.env("A2A_BEARER_TOKEN", TOKEN).env("A2A_CARD_SIGNING_KEY", pem);
        command.env("A2A_PUSH_ALLOW_PRIVATE_HOSTS", "true");
        command.stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let told = told(&mut child);
        let Some(url) = told.strip_prefix("a2a service listening on ") else {
            let (found, log) = (testkit::autopsy(&mut child), std::fs::read_to_string(&log).unwrap_or_default());
            panic!("the service told no address within {WAIT:?} but {told:?}: {found}\nits log:\n{log}")
        };
        Self { project, url: url.trim_end().to_owned(), child, log, key: made["jwk"].clone() }
    }

    /// Runs a script with this service; fails with its output.
    #[track_caller]
    pub fn run(&self, program: &Path, script: &Path, transport: &str) {
        let setup = json!({"url": self.url, "token": TOKEN, "transport": transport, "key": self.key,
            "scratch": self.project.root(), "prompts": prompts()});
        run(&self.project, program, script, &setup);
    }
}

/// Runs a script; fails with its output.
#[track_caller]
pub fn run(project: &TempProject, program: &Path, script: &Path, setup: &Value) {
    let mut command = project.command(program);
    command.arg(script).env("TREFOIL_A2A", setup.to_string()).env("PYTHONDONTWRITEBYTECODE", "1");
    // What the scripts take to run or to show less.
    command.envs(["TREFOIL_A2A_ONLY", "REPLAY"].into_iter().filter_map(|name| Some((name, std::env::var(name).ok()?))));
    succeeded(&finish(command, LONGEST));
}

/// The first line that a program prints.
pub fn told(child: &mut Child) -> String {
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = stdout.read_line(&mut line);
        let _ = sender.send(line);
        // Its later output must not block it.
        let _ = std::io::copy(&mut stdout, &mut std::io::sink());
    });
    receiver.recv_timeout(WAIT).unwrap_or_default()
}

impl Drop for A2aService {
    #[expect(clippy::print_stderr, reason = "the test's output says why it failed")]
    fn drop(&mut self) {
        let found = testkit::autopsy(&mut self.child);
        if std::thread::panicking() {
            eprintln!("the service: {found}\nits log:\n{}", std::fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}
