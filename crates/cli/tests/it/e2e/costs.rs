//! What a turn cost, wherever that is shown: at its end, in the session, in the tree.

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::ModelServer;

use super::rig::{Rig, signal};
use super::terminal::Terminal;

/// A model with prices, and a smaller one for titles.
fn configure(rig: &Rig, server: &ModelServer) {
    let mut config = server.config();
    let price = json!({ "cost": { "input": 1000, "output": 5000, "cache_read": 100 } });
    config["provider"]["test"]["models"] = json!({ "test-model": price });
    rig.configure(config);
}

fn used(input: u64, output: u64) -> Value {
    json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output })
}

/// Every number that says what the last session cost, in dollars: they are the same. Gives it, and what its title cost.
#[track_caller]
fn agreed(rig: &Rig, footer: &str) -> (f64, f64) {
    let tree = rig.trefoil(&["tree", "last", "--json"]).expect(0).json();
    let node = &tree["sessions"][0];
    let (own, title) = (node["own"]["cost"].as_f64().unwrap(), node["titling"]["used"]["cost"].as_f64().unwrap());
    assert_eq!(node["titling"]["running"], false);
    assert_eq!(node["total"]["cost"], node["own"]["cost"]);
    let session = &rig.sessions()[0];
    assert!((session["cost"].as_f64().unwrap() - own).abs() < 1e-9, "{session:#}\n{node:#}");
    for kind in ["input", "output", "reasoning"] {
        assert_eq!(session["tokens"][kind], node["own"]["tokens"][kind], "{kind}");
    }
    let dollars = |amount: f64| if amount < 10.0 { format!("${amount:.4}") } else { format!("${amount:.2}") };
    let named = format!("{} for the title", dollars(title));
    for text in
        [footer.to_owned(), rig.trefoil(&["tree", "last"]).stdout, rig.trefoil(&["session", "show", "last"]).stdout]
    {
        assert!(text.contains(&dollars(own)) && text.contains(&named), "{own}, {named:?} are not in:\n{text}");
    }
    (own, title)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn all_that_show_a_cost_agree_and_name_the_title() {
    let rig = Rig::new();
    let mut server = ModelServer::start().await;
    configure(&rig, &server);
    let terminal = Terminal::new(rig.command(&["run", "go"]));
    // The title is asked for beside the turn.
    for _ in 0..2 {
        let mut call = server.next_call().await;
        let is_title = call.request.tools().is_empty();
        call.text(if is_title { "A title" } else { "Done." }).await;
        call.usage(if is_title { used(10, 2) } else { used(100, 20) });
        call.finish("stop").await;
    }
    let (footer, rig) = tokio::task::spawn_blocking(move || (terminal.end(0), rig)).await.unwrap();
    let (own, title) = agreed(&rig, &footer);
    assert!((title - 0.02).abs() < 1e-9 && (own - 0.22).abs() < 1e-9, "{own} {title}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_turn_that_is_cancelled_costs_the_same_everywhere() {
    let rig = Rig::new();
    let mut server = ModelServer::start().await;
    configure(&rig, &server);
    let mut terminal = Terminal::new(rig.command(&["run", "go"]));
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut call = server.next_call().await;
        if call.request.tools().is_empty() {
            call.text("A title").await;
            call.usage(used(10, 2));
            call.finish("stop").await;
        } else {
            call.text("Some words that follow each other").await;
            held.push(call);
        }
    }
    let (terminal, rig) = tokio::task::spawn_blocking(move || {
        terminal.screen.wait_for("Some words");
        signal(terminal.child.id(), Signal::INT);
        (terminal.end(130), rig)
    })
    .await
    .unwrap();
    let (own, title) = agreed(&rig, &terminal);
    assert!(own > title && title > 0.0, "{own} {title}: what was cut off is estimated");
    assert!(terminal.contains("~$"), "{terminal}");
}
