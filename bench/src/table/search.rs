//! A folder tree to search, and ripgrep to compare with.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

/// The text to search for, and the number of lines per occurrence.
pub const PATTERN: &str = r"fn \w+_needle\(";
const ONE_IN: usize = 400;
/// Lines per file.
const LINES: usize = 200;
/// Files per folder.
const FOLDER: usize = 50;

/// Writes the tree. Returns the number of matching lines.
pub fn plant(root: &Path, files: usize) -> Result<usize> {
    let mut matches = 0;
    for file in 0..files {
        let folder = root.join(format!("part{}", file / FOLDER));
        std::fs::create_dir_all(&folder)?;
        let mut text = String::new();
        for line in 0..LINES {
            if (file * LINES + line).is_multiple_of(ONE_IN) {
                matches += 1;
                text.push_str(&format!("fn found_{line}_needle(value: u32) -> u32 {{\n"));
            } else {
                text.push_str(&format!("    let value_{line} = compute({file}, {line}); // a line like many\n"));
            }
        }
        std::fs::write(folder.join(format!("file{file}.rs")), text)?;
    }
    // Without it neither ripgrep nor our tool would read any `.gitignore`.
    std::fs::create_dir_all(root.join(".git"))?;
    std::fs::write(root.join(".gitignore"), "*.o\n/target\n")?;
    Ok(matches)
}

/// The command that does the same search, if there is one.
pub fn ripgrep(root: &Path) -> Option<impl Fn() -> Command> {
    let path = std::env::var_os("PATH")?;
    let program = std::env::split_paths(&path).map(|folder| folder.join("rg")).find(|program| program.is_file())?;
    let root = root.to_owned();
    Some(move || {
        let mut command = Command::new(&program);
        command.args(["--no-config", "--line-number", "--regexp", PATTERN]).arg(&root);
        command
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_has_what_is_searched_for() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(plant(root.path(), 4).unwrap(), 2);
        let text = std::fs::read_to_string(root.path().join("part0/file2.rs")).unwrap();
        assert_eq!(text.matches("_needle(").count(), 1);
        assert_eq!(text.lines().count(), LINES);
    }
}
