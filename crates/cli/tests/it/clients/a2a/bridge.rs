//! opencode-a2a in front of `trefoil serve`.

use std::fs::File;
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::json;
use testkit::until;

use super::super::harness::TestServer;
use super::service::{TOKEN, project, prompts, run};
use super::{installed, script};

/// opencode-a2a; it is killed on drop.
struct Bridge {
    child: Child,
    url: String,
}

impl Bridge {
    fn start(served: &TestServer) -> Self {
        let port = peer::free_port().unwrap().to_string();
        let url = format!("http://127.0.0.1:{port}");
        let root = served.project.root();
        let log = File::create(root.join("opencode-a2a.log")).unwrap();
        let credentials = json!([{"scheme": "bearer", "token": TOKEN, "principal": "tester"}]);
        let mut command = served.project.command(installed(peer::opencode_a2a));
        command
            .arg("serve")
            .env("OPENCODE_BASE_URL", &served.url)
            .env("OPENCODE_WORKSPACE_ROOT", served.project.path());
        command.env("A2A_PORT", &port).env("A2A_PUBLIC_URL", &url).env("A2A_RATE_LIMIT_ENABLED", "false");
        command.env("A2A_STATIC_AUTH_CREDENTIALS", credentials.to_string());
        let database = format!("sqlite+aiosqlite:///{}", root.join("opencode-a2a.db").display());
        command.env("A2A_TASK_STORE_DATABASE_URL", database);
        let child = command.stdout(Stdio::from(log.try_clone().unwrap())).stderr(log).spawn().unwrap();
        until("opencode-a2a listens", || TcpStream::connect(url.trim_start_matches("http://")).is_ok());
        Self { child, url }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn opencode_a2a_works_on_trefoil() {
    let served = TestServer::with(project(), |_| {});
    let bridge = Bridge::start(&served);
    let setup = json!({"url": bridge.url, "token": TOKEN, "transport": "JSONRPC", "scratch": served.project.root(),
        "prompts": prompts()});
    run(&served.project, &installed(peer::a2a_python), &script("a2a_bridge.py"), &setup);
}
