//! The program under test.

use std::path::PathBuf;

/// The built `trefoil` program, from the folder that the running test was built into. Builds nothing.
pub fn trefoil_bin() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let folder = test.ancestors().find(|folder| folder.join("deps").is_dir()).expect("tests run from a target folder");
    let program = folder.join(format!("trefoil{}", std::env::consts::EXE_SUFFIX));
    assert!(program.is_file(), "{} is not there: run `cargo build` first", program.display());
    program
}
