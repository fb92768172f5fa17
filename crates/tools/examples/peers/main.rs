//! Compares `apply_patch` with the real Codex and `edit` with the real OpenCode, on generated cases. Run by hand:
//!
//! `cargo run -p trefoil-tools --example peers -- [codex|opencode] [CASES] [SEED]`
//!
//! Both programs come from npm. Cases in which the tools differ are printed; the exit code says whether both changed a
//! file and left different bytes where they should not.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a program for developers: it fails as tests do, and prints what it found"
)]

mod cases;
mod codex;
mod opencode;
mod ours;

use std::collections::BTreeMap;
use std::process::ExitCode;

use cases::Case;

/// The maximum number of cases to print for each kind of difference.
const PRINTED: usize = 5;

/// The content of a file after a call; `None` if the call was refused.
type Outcome = Option<Vec<u8>>;

/// The content without the indentation of its lines.
fn flat(content: &[u8]) -> Vec<&[u8]> {
    content.split(|byte| *byte == b'\n').map(|line| line.trim_ascii_start()).collect()
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let peer = arguments.next().unwrap_or_default();
    let mut number = |default: u64| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (count, seed) = (number(500), number(1));
    let mut random = fastrand::Rng::with_seed(seed);
    let (tool, cases, theirs) = match peer.as_str() {
        "codex" => {
            let cases: Vec<Case> = (0..count).map(|_| cases::patch(&mut random)).collect();
            let theirs = codex::run(&cases);
            ("apply_patch", cases, theirs)
        }
        "opencode" => {
            let cases: Vec<Case> = (0..count).map(|_| cases::edit(&mut random)).collect();
            let theirs = opencode::run(&cases).await;
            ("edit", cases, theirs)
        }
        other => panic!("codex or opencode, not {other:?}"),
    };
    let mut verdicts: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for (case, theirs) in cases.iter().zip(theirs) {
        let ours = ours::run(tool, case).await;
        let verdict = match (&ours, &theirs) {
            (ours, theirs) if ours == theirs => "same",
            (None, _) => "only theirs changes the file",
            (_, None) => "only ours changes the file",
            (Some(ours), Some(theirs)) if flat(ours) == flat(theirs) => "different indentation",
            _ => "different",
        };
        let show = |outcome: &Outcome| outcome.as_deref().map(|content| String::from_utf8_lossy(content).into_owned());
        let text = format!("{case:?}\n  ours:   {:?}\n  theirs: {:?}", show(&ours), show(&theirs));
        verdicts.entry((case.kind, verdict)).or_default().push(text);
    }
    let mut wrong = 0;
    for ((kind, verdict), cases) in &verdicts {
        println!("{:>5}  {kind}: {verdict}", cases.len());
        wrong += if *verdict == "different" && !cases::may_differ(kind) { cases.len() } else { 0 };
    }
    for ((kind, verdict), cases) in verdicts.iter().filter(|((_, verdict), _)| *verdict != "same") {
        println!("\n{kind}: {verdict}");
        cases.iter().take(PRINTED).for_each(|case| println!("{case}"));
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
