//! The project's own commands: `cargo xtask test`, `cargo xtask fuzz`, `cargo xtask bench`.

#![expect(clippy::print_stdout, reason = "the output is what the program is for")]

mod bench;
mod cargo;
mod fuzz;
mod test;
mod tools;

use anyhow::{Result, bail};

const USAGE: &str = "cargo xtask <command>

  test [--fast]                  everything that must pass: format, lints, build, tests, fuzz and benchmark smoke
                                 (--fast leaves the smokes, the generated requests and OpenCode's own program out)
  fuzz [TARGET] [--seconds N] [--seed N]
                                 random input for one parser, or for all of them
  bench [--smoke] [--only NAME] [--json] [--peer | --opencode PATH]
                                 the benchmark table; --peer installs OpenCode from npm to compare with, --smoke only
                                 sees that everything works";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = arguments.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    match command {
        "test" => test::run(rest),
        "fuzz" => fuzz::run(rest),
        "bench" => bench::run(rest),
        "" | "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        other => bail!("no command {other:?}\n\n{USAGE}"),
    }
}
