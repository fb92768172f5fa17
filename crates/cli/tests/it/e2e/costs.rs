//! The cost of a turn, wherever it is shown: at its end, in the session, in the tree.

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::ModelServer;

use super::harness::{Harness, signal};
use super::terminal::Terminal;

/// A model with prices, and a smaller one for titles.
fn configure(harness: &Harness, server: &ModelServer) {
    let mut config = server.config();
    let price = json!({ "cost": { "input": 1000, "output": 5000, "cache_read": 100 } });
    config["provider"]["test"]["models"] = json!({ "test-model": price });
    harness.configure(config);
}

fn used(input: u64, output: u64) -> Value {
    json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output })
}

/// Checks that everything shows the same cost of the last session. Returns it in dollars, and the cost of its title.
#[track_caller]
fn agreed(harness: &Harness, footer: &str) -> (f64, f64) {
    let tree = harness.trefoil(&["tree", "last", "--json"]).expect(0).json();
    let node = &tree["sessions"][0];
    let (own, title) = (node["own"]["cost"].as_f64().unwrap(), node["titling"]["used"]["cost"].as_f64().unwrap());
    assert_eq!(node["titling"]["running"], false);
    assert_eq!(node["total"]["cost"], node["own"]["cost"]);
    let session = &harness.sessions()[0];
    assert!((session["cost"].as_f64().unwrap() - own).abs() < 1e-9, "{session:#}\n{node:#}");
    for kind in ["input", "output", "reasoning"] {
        assert_eq!(session["tokens"][kind], node["own"]["tokens"][kind], "{kind}");
    }
    let dollars = |amount: f64| if amount < 10.0 { format!("${amount:.4}") } else { format!("${amount:.2}") };
    let named = format!("{} for the title", dollars(title));
    for text in shown(harness, footer) {
        assert!(text.contains(&dollars(own)) && text.contains(&named), "{own}, {named:?} are not in:\n{text}");
    }
    (own, title)
}

/// Everything that shows what the last session used.
fn shown(harness: &Harness, footer: &str) -> [String; 3] {
    [footer.to_owned(), harness.trefoil(&["tree", "last"]).stdout, harness.trefoil(&["session", "show", "last"]).stdout]
}

/// Runs a turn on a terminal while its title is made; returns what it printed.
async fn titled(harness: Harness, server: &mut ModelServer) -> (String, Harness) {
    let terminal = Terminal::new(harness.command(&["run", "go"]));
    for _ in 0..2 {
        let mut call = server.next_call().await;
        let is_title = call.request.tools().is_empty();
        call.text(if is_title { "A title" } else { "Done." }).await;
        call.usage(if is_title { used(10, 2) } else { used(100, 20) });
        call.finish("stop").await;
    }
    tokio::task::spawn_blocking(move || (terminal.end(0), harness)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn all_that_show_a_cost_agree_and_name_the_title() {
    let harness = Harness::new();
    let mut server = ModelServer::start().await;
    configure(&harness, &server);
    let (footer, harness) = titled(harness, &mut server).await;
    let (own, title) = agreed(&harness, &footer);
    assert!((title - 0.02).abs() < 1e-9 && (own - 0.22).abs() < 1e-9, "{own} {title}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_title_without_a_price_is_named_by_its_tokens() {
    let harness = Harness::new();
    let mut server = ModelServer::start().await;
    harness.configure(server.config());
    let (footer, harness) = titled(harness, &mut server).await;
    for text in shown(&harness, &footer) {
        assert!(text.contains("12 tok for the title") && !text.contains("$0.0000 for"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_turn_that_is_cancelled_costs_the_same_everywhere() {
    let harness = Harness::new();
    let mut server = ModelServer::start().await;
    configure(&harness, &server);
    let mut terminal = Terminal::new(harness.command(&["run", "go"]));
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
    let (terminal, harness) = tokio::task::spawn_blocking(move || {
        terminal.screen.wait_for("Some words");
        signal(terminal.child.id(), Signal::INT);
        (terminal.end(130), harness)
    })
    .await
    .unwrap();
    let (own, title) = agreed(&harness, &terminal);
    assert!(own > title && title > 0.0, "{own} {title}: what was cut off is estimated");
    assert!(terminal.contains("~$"), "{terminal}");
}
