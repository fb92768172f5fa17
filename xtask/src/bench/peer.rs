//! OpenCode, to compare with: installed from npm, and driven over its HTTP server.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::agent::Agent;
use super::setup::Setup;
use crate::cargo;

/// The version that the design's figures are of.
const PACKAGE: &str = "opencode-ai@1.18.33";

/// How long its server may take to answer for the first time.
const START: Duration = Duration::from_secs(60);
/// How long one request may take: a turn with a long answer.
const REQUEST: Duration = Duration::from_secs(120);
/// Its server leaves a request unanswered that comes in the first moment, so the first ones are given up early.
const FIRST_REQUEST: Duration = Duration::from_millis(500);

/// Installs OpenCode from npm below the target folder, unless it is there; gives the path of its program.
pub fn install() -> Result<PathBuf> {
    let folder = cargo::target().join("peer");
    std::fs::create_dir_all(&folder)?;
    if find(&folder).is_none() {
        println!("installing {PACKAGE} into {}", folder.display());
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&folder).arg(PACKAGE);
        if !npm.status().context("cannot run npm; install Node.js, or name a program with --opencode")?.success() {
            bail!("npm could not install {PACKAGE}; name a program with --opencode instead");
        }
    }
    find(&folder).with_context(|| format!("no OpenCode program in {}", folder.display()))
}

/// The native program itself: the package's own `bin` is a script that starts it, which would be measured as well.
fn find(folder: &Path) -> Option<PathBuf> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    let system = if cfg!(target_os = "macos") { "darwin" } else { std::env::consts::OS };
    let program = folder.join(format!("node_modules/opencode-{system}-{arch}/bin/opencode"));
    program.is_file().then(|| program.canonicalize().ok()).flatten()
}

/// OpenCode's server. Ends when dropped.
pub struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts it with one subscriber, and waits until it answers.
    pub fn start(program: &Path, setup: &Setup) -> Result<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = setup.command(program);
        command.args(["serve", "--hostname", "127.0.0.1", "--port", &address.port().to_string()]);
        command.stdout(Stdio::null()).stderr(File::create(setup.errors())?);
        let server = Self { child: command.spawn()?, address };
        let start = Instant::now();
        while let Err(error) = server.send("GET", "/session", None, FIRST_REQUEST) {
            if start.elapsed() > START {
                return Err(error.context(format!("the server did not answer within {START:?}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut events = TcpStream::connect(address)?;
        write!(events, "GET /event HTTP/1.1\r\nhost: {address}\r\n\r\n")?;
        // Ends with the server's connection.
        std::thread::spawn(move || std::io::copy(&mut events, &mut std::io::sink()));
        Ok(server)
    }

    /// Sends a request; gives the whole answer, headers included.
    fn send(&self, method: &str, path: &str, body: Option<Value>, longest: Duration) -> Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(longest))?;
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.address);
        let content = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all((head + &content).as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        if !answer.starts_with("HTTP/1.1 200") {
            bail!("{method} {path}: {}", answer.get(..500).unwrap_or(&answer));
        }
        Ok(answer)
    }
}

impl Agent for Server {
    fn session(&mut self) -> Result<String> {
        // A title of its own, so that none is asked of the model.
        let answer = self.send("POST", "/session", Some(json!({"title": "bench"})), REQUEST)?;
        id(&answer).with_context(|| format!("a session without id: {answer}"))
    }

    fn turn(&mut self, session: &str, text: &str) -> Result<()> {
        let body = json!({"parts": [{"type": "text", "text": text}]});
        let answer = self.send("POST", &format!("/session/{session}/message"), Some(body), REQUEST)?;
        if !answer.contains(r#""type":"text""#) {
            bail!("the turn had no answer: {answer}");
        }
        Ok(())
    }

    fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The session's id in an answer.
fn id(answer: &str) -> Option<String> {
    let (_, rest) = answer.split_once(r#""id":"ses_"#)?;
    Some(format!("ses_{}", rest.split_once('"')?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_an_id() {
        let answer = "HTTP/1.1 200 OK\r\n\r\n{\"slug\":\"x\",\"id\":\"ses_12ab\",\"title\":\"t\"}";
        assert_eq!(id(answer).as_deref(), Some("ses_12ab"));
        assert_eq!(id("HTTP/1.1 200 OK\r\n\r\n{}"), None);
    }
}
