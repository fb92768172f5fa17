use super::*;
use crate::tool::context::Progress;
use crate::tool::registry::testing::Workspace;
use std::sync::{Arc, Mutex};

#[tokio::test]
async fn output_matches_the_recording() {
    let ws = Workspace::new();
    let command = "echo out; echo err >&2; echo more; exit 3";
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut ctx = ws.context();
    let sink = seen.clone();
    ctx.progress = Progress::new(move |update| {
        let text = update.metadata.unwrap()["output"].as_str().unwrap().to_owned();
        sink.lock().unwrap().push(text);
    });
    let output = ws.run_in(ctx, "bash", json!({"command": command, "description": "ignored"})).await.unwrap();
    assert_eq!((output.title.as_str(), output.output.as_str()), (command, "out\nerr\nmore\n"));
    assert_eq!(output.metadata, object(json!({"output": "out\nerr\nmore\n", "exit": 3, "truncated": false})));
    let seen = seen.lock().unwrap();
    assert_eq!((seen.first().unwrap().as_str(), seen.last().unwrap().as_str()), ("", "out\nerr\nmore\n"));
}

#[tokio::test]
async fn empty_output_signals_and_working_directories() {
    let ws = Workspace::new();
    std::fs::create_dir(ws.path("sub")).unwrap();
    let silent = ws.run("bash", json!({"command": "true"})).await.unwrap();
    assert_eq!((silent.output.as_str(), &silent.metadata["exit"]), ("(no output)", &json!(0)));
    let place = ws.run("bash", json!({"command": "pwd", "workdir": "sub"})).await.unwrap();
    assert_eq!(place.output.trim(), ws.path("sub").to_str().unwrap());
    let killed = ws.run("bash", json!({"command": "kill -9 $$"})).await.unwrap();
    assert!(killed.output.contains("<shell_metadata>\nThe command was ended by signal 9.\n</shell_metadata>"));
    assert_eq!(killed.metadata["exit"], json!(null));
    assert!(ws.fail("bash", json!({"command": "true", "workdir": "missing"})).await.contains("missing"));
    assert!(ws.fail("bash", json!({"command": "true", "timeout": 0})).await.contains("timeout is 0"));
    let odd = ws.run("bash", json!({"command": "printf 'a\\377b'"})).await.unwrap();
    assert_eq!(odd.output, "a\u{fffd}b");
}

#[tokio::test]
async fn a_timeout_and_an_abort_are_reported() {
    let ws = Workspace::new();
    // On a busy machine the command may take longer than the first limit to start.
    for limit in [300, 3_000, 30_000] {
        let late = ws.run("bash", json!({"command": "echo a; sleep 300", "timeout": limit})).await.unwrap();
        assert!(late.output.contains(&format!("{limit} ms")), "{}", late.output);
        assert_eq!(late.metadata["exit"], json!(null));
        if late.metadata["output"] == "a\n" || limit == 30_000 {
            assert!(late.output.starts_with("a\n\n\n<shell_metadata>\n"), "{}", late.output);
            break;
        }
    }
    let mut ctx = ws.context();
    let cancel = ctx.cancel.clone();
    ctx.progress = Progress::new(move |update| {
        if update.metadata.unwrap()["output"] == "ready\n" {
            cancel.cancel();
        }
    });
    let stopped = ws.run_in(ctx, "bash", json!({"command": "echo ready; sleep 300"})).await.unwrap();
    assert_eq!(stopped.output, "ready\n\n\n<shell_metadata>\nUser aborted the command\n</shell_metadata>");
}

#[tokio::test]
async fn long_output_keeps_both_ends_and_is_saved() {
    let ws = Workspace::new();
    let output = ws.run("bash", json!({"command": "seq 1 100000"})).await.unwrap();
    assert!(output.output.starts_with("1\n2\n") && output.output.ends_with("99999\n100000\n"), "{}", output.output);
    assert!(output.output.len() < 60_000 && output.output.contains("100000 lines"));
    assert_eq!(output.metadata["truncated"], true);
    let path = output.output.split("The whole output is in ").nth(1).unwrap().split(": search").next().unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 100_000);
    let line = ws.run("bash", json!({"command": "head -c 10000000 /dev/zero | tr '\\0' x"})).await.unwrap();
    assert!(line.output.len() < 60_000 && line.output.contains("10000000 bytes"));
    let many = ws.run("bash", json!({"command": "seq 1 3000"})).await.unwrap();
    assert!(many.output.contains("3000 lines") && many.output.ends_with("3000\n"));
}

#[tokio::test]
async fn needs_name_each_command_and_each_outside_folder() {
    let ws = Workspace::new();
    let needs = ws.needs("bash", json!({"command": "echo one && ls"})).await.unwrap();
    assert_eq!((needs.len(), needs[0].permission.as_str()), (1, "bash"));
    assert_eq!(
        (&needs[0].patterns[..], &needs[0].always[..]),
        (&["echo one".to_owned(), "ls".into()][..], &["echo *".to_owned(), "ls *".into()][..])
    );
    assert_eq!(needs[0].metadata, object(json!({"command": "echo one && ls"})));
    assert!(!needs[0].opaque);

    let outside = |needs: &[Need]| -> Vec<String> {
        needs.iter().filter(|n| n.permission == "external_directory").flat_map(|n| n.patterns.clone()).collect()
    };
    let cases = [
        ("cat /etc/hostname", vec!["/etc/*".to_owned()]),
        ("cat /etc/hostname /etc/hosts", vec!["/etc/*".to_owned()]),
        ("echo x > /etc/x", vec!["/etc/*".to_owned()]),
        ("echo x > inside 2> /dev/null", vec![]),
        ("rm -rf ../x", vec![format!("{}/*", ws.outside().display())]),
        ("cat ~/x", vec!["~/*".to_owned()]),
        ("X=/etc/hostname; cat \"$X\"", vec!["/etc/*".to_owned()]),
        ("X=src; cat \"$X/a\"", vec![]),
        ("cat $X", vec!["*".to_owned()]),
        ("cat $(echo /etc/hostname)", vec!["*".to_owned()]),
        ("cp -t /etc a", vec!["/etc/*".to_owned()]),
        ("echo x > $X", vec!["*".to_owned()]),
        ("for f in src/*.rs; do wc -l \"$f\"; done", vec![]),
        ("find . -name '*.rs' | xargs wc -l", vec![]),
        ("echo /etc/hostname | xargs cat", vec!["*".to_owned()]),
    ];
    for (command, want) in cases {
        assert_eq!(outside(&ws.needs("bash", json!({"command": command})).await.unwrap()), want, "{command}");
    }
    let workdir = ws.needs("bash", json!({"command": "ls", "workdir": "/etc"})).await.unwrap();
    assert_eq!(outside(&workdir), ["/etc/*"]);
    let ungranted = crate::tool::erase(Bash).run(json!({"command": "ls", "workdir": "/etc"}), ws.context()).await;
    assert!(ungranted.unwrap_err().to_string().contains("not granted"));
}

#[tokio::test]
async fn unparsed_commands_are_opaque() {
    let ws = Workspace::new();
    let needs = ws.needs("bash", json!({"command": "eval \"$X\""})).await.unwrap();
    let need = needs.last().unwrap();
    assert!(need.opaque && !need.patterns.is_empty());
}

#[tokio::test]
async fn an_unknown_file_is_an_opaque_need() {
    let ws = Workspace::new();
    for (command, permission) in [("echo x > $X", "edit"), ("cat < $X", "read"), ("cat $X", "external_directory")] {
        let needs = ws.needs("bash", json!({"command": command})).await.unwrap();
        let need = needs.iter().find(|need| need.permission == permission).unwrap();
        assert!(need.opaque && need.patterns == ["*"] && need.always.is_empty(), "{command}: {need:?}");
    }
}

#[tokio::test]
async fn every_command_is_opaque_for_another_shell() {
    let ws = Workspace::new();
    for (shell, opaque) in [("/bin/bash", false), ("/usr/local/bin/bash", false), ("/bin/sh", true), ("/bin/zsh", true)]
    {
        let mut ctx = ws.context();
        ctx.options = Arc::new(Options { shell: shell.into(), ..(*ctx.options).clone() });
        let needs = crate::tool::erase(Bash).needs(&json!({"command": "ls"}), &ctx).await.unwrap();
        assert_eq!(needs[0].opaque, opaque, "{shell}");
    }
}
