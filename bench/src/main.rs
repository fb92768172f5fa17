//! `trefoil-bench`: measures our program, and others that do the same work in the same run.
//!
//! `cargo xtask bench` builds it together with `trefoil`, which it finds in its own folder, and passes its arguments on. It
//! builds nothing: in the folder of a debug build it measures the debug build. To measure the engine it starts itself
//! again.

#![expect(clippy::print_stdout, reason = "the output is what the program is for")]

mod engine;
mod soak;
mod table;

use anyhow::Result;

/// The program's own allocator, so that the engine uses the same memory and CPU time as there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first() {
        Some(first) if first == engine::ARGUMENT => engine::run(),
        Some(first) if first == "soak" => soak::run(&arguments[1..]),
        _ => table::run(&arguments),
    }
}
