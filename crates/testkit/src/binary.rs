//! The program under test.

use std::path::PathBuf;

/// The built `trefoil` program, from the folder that the running test was built into. Builds nothing.
pub fn trefoil_bin() -> PathBuf {
    let program = profile_folder().join(format!("trefoil{}", std::env::consts::EXE_SUFFIX));
    assert!(program.is_file(), "{} does not exist: run `cargo build` first", program.display());
    program
}

/// The target folder, where tools for tests are installed.
pub fn target_folder() -> PathBuf {
    let mut folder = profile_folder();
    folder.pop();
    folder
}

/// The folder that the running test was built into.
fn profile_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let folder = test.ancestors().find(|folder| folder.join("deps").is_dir());
    folder.expect("tests run from a target folder").to_owned()
}
