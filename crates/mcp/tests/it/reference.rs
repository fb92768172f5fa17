//! The reference servers of the protocol's authors, from npm.

use crate::common::{Rig, soon};
use api::McpStatus;
use serde_json::{Value, json};
use trefoil_mcp::Content;

/// A rig with these servers: name, program and arguments.
fn rig(servers: &[(&str, &str, &[&str])]) -> Rig {
    let programs = peer::mcp_servers(&testkit::target_folder()).expect("the reference servers are installed");
    let config = servers.iter().map(|(name, program, args)| {
        let program = programs.join(program);
        let command = [&[program.to_str().unwrap()], *args].concat();
        ((*name).to_owned(), json!({ "type": "local", "command": command }))
    });
    Rig::new(Value::Object(config.collect()))
}

#[tokio::test]
async fn everything() {
    let rig = rig(&[("every", "mcp-server-everything", &["stdio"])]);
    rig.ready().await;
    assert_eq!(rig.status("every"), McpStatus::Connected);
    assert_eq!(rig.text("every_echo", json!({"message": "hello"})).await, "Echo: hello");
    let image = rig.call("every_get-tiny-image", json!({})).await.unwrap().content;
    assert!(image.iter().any(|piece| matches!(piece, Content::Image { .. })), "{image:?}");
    let long = json!({"duration": 1, "steps": 2});
    let done = soon(rig.call("every_trigger-long-running-operation", long)).await.unwrap();
    assert!(!done.is_error, "{done:?}");
    let prompts = rig.servers.prompts();
    assert!(prompts.iter().any(|prompt| prompt.arguments.len() == 2), "{prompts:?}");
    let resources = rig.servers.resources(None).await;
    let read = rig.servers.read("every", &resources[0].uri).await.unwrap();
    assert!(read[0].text.is_some() || read[0].blob.is_some());
}

#[tokio::test]
async fn filesystem_and_memory() {
    let rig = rig(&[("files", "mcp-server-filesystem", &["."]), ("memory", "mcp-server-memory", &[])]);
    rig.ready().await;
    assert_eq!(rig.status("files"), McpStatus::Connected);
    assert_eq!(rig.status("memory"), McpStatus::Connected);
    let path = rig.folder.path().canonicalize().unwrap().join("a.txt");
    std::fs::write(&path, "from a file").unwrap();
    // It may read the directory that we return when it asks for its roots.
    assert_eq!(rig.text("files_read_text_file", json!({ "path": path })).await, "from a file");
    let outside = rig.call("files_read_text_file", json!({ "path": "/etc/hostname" })).await.unwrap();
    assert!(outside.is_error);
    let graph: Value = serde_json::from_str(&rig.text("memory_read_graph", json!({})).await).unwrap();
    assert!(graph["entities"].is_array(), "{graph}");
}

#[tokio::test]
async fn everything_over_http() {
    for (transport, path) in [("streamableHttp", "mcp"), ("sse", "sse")] {
        let programs = peer::mcp_servers(&testkit::target_folder()).expect("the reference servers are installed");
        let port = peer::free_port().unwrap();
        let mut server = tokio::process::Command::new(programs.join("mcp-server-everything"))
            .arg(transport)
            .env("PORT", port.to_string())
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        soon(listening(&mut server)).await;
        let url = format!("http://127.0.0.1:{port}/{path}");
        let rig = Rig::new(json!({ "every": { "type": "remote", "url": url } }));
        rig.ready().await;
        assert_eq!(rig.status("every"), McpStatus::Connected, "{transport}");
        assert_eq!(rig.text("every_echo", json!({"message": "hello"})).await, "Echo: hello");
        soon(rig.servers.disconnect("every")).await.unwrap();
        assert_eq!(soon(rig.servers.connect("every")).await.unwrap(), McpStatus::Connected);
    }
}

/// Waits until a server prints that it is listening.
async fn listening(server: &mut tokio::process::Child) {
    use tokio::io::AsyncBufReadExt;
    let (out, errors) = (server.stdout.take().unwrap(), server.stderr.take().unwrap());
    let mut out = tokio::io::BufReader::new(out).lines();
    let mut errors = tokio::io::BufReader::new(errors).lines();
    let mut seen = String::new();
    loop {
        let line = tokio::select! {
            Ok(Some(line)) = out.next_line() => line,
            Ok(Some(line)) = errors.next_line() => line,
            else => panic!("the server ended: {seen}"),
        };
        if line.contains("port") || line.contains("listening") {
            // It keeps writing, so someone must keep reading.
            tokio::spawn(async move { while let Ok(Some(_)) = out.next_line().await {} });
            tokio::spawn(async move { while let Ok(Some(_)) = errors.next_line().await {} });
            return;
        }
        seen += &line;
    }
}
