//! Truncates long outputs: the model gets the beginning and the end, and the path of a file with the full text.

use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::tool::context::Options;

/// An output within its limits.
#[derive(Debug, Clone, PartialEq)]
pub struct TruncatedText {
    /// What the model reads.
    pub text: String,
    /// The file with the full text, if it was truncated.
    pub path: Option<PathBuf>,
}

/// Truncates a text to the limits of the options; the full text is saved.
pub async fn truncate(text: String, options: &Options) -> TruncatedText {
    if fits(&text, options) {
        return TruncatedText { text, path: None };
    }
    let path = output_path(options);
    let (whole, saved) = (text.clone(), path.clone());
    let saved = tokio::task::spawn_blocking(move || save(&saved, &whole)).await;
    let saved = matches!(saved, Ok(Ok(()))).then_some(path);
    let total = Total { lines: text.lines().count() as u64, bytes: text.len() as u64 };
    let text = join(&text, &text, total, saved.as_deref(), options);
    TruncatedText { text, path: saved }
}

/// A new file name for a full output.
pub(crate) fn output_path(options: &Options) -> PathBuf {
    options.output_dir.join(format!("tool_{}", api::tool_call_id().trim_start_matches("call_")))
}

/// Creates the directory for full outputs, readable by the user only. It does not create the data directory above it:
/// if that was moved away, a new one in its place would keep the user from moving it back.
pub(crate) fn make_output_dir(folder: &Path) -> io::Result<()> {
    if !folder.is_absolute() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // Each session has a directory of its own below the one for all outputs.
    for folder in folder.parent().into_iter().chain([folder]) {
        match std::fs::DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
    }
    Ok(())
}

fn save(path: &Path, text: &str) -> io::Result<()> {
    make_output_dir(path.parent().unwrap_or(Path::new("/")))?;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// Whether a text is within the limits.
pub(crate) fn fits(text: &str, options: &Options) -> bool {
    text.len() <= options.max_bytes && text.lines().count() <= options.max_lines
}

/// The size of the full text.
#[derive(Clone, Copy)]
pub(crate) struct Total {
    pub lines: u64,
    pub bytes: u64,
}

/// Joins the beginning of `head` and the end of `tail` with a note in between. Each gets half of the limits.
pub(crate) fn join(head: &str, tail: &str, total: Total, saved: Option<&Path>, options: &Options) -> String {
    let (lines, bytes) = (options.max_lines / 2, options.max_bytes / 2);
    let head = first(head, lines, bytes);
    let tail = last(tail, lines, bytes);
    let place = match saved {
        Some(path) => format!(
            "The whole output is in {}: search it with grep, or read parts of it with read and offset/limit.",
            path.display()
        ),
        None => "The whole output could not be saved: run the command again with less output.".into(),
    };
    let Total { lines, bytes } = total;
    format!("{head}\n\n[The middle of this output is left out; it has {lines} lines, {bytes} bytes. {place}]\n\n{tail}")
}

/// The beginning, within the limits and in whole lines; a single longer line is cut.
fn first(text: &str, lines: usize, bytes: usize) -> &str {
    let end = text.match_indices('\n').nth(lines.saturating_sub(1)).map_or(text.len(), |(at, _)| at);
    let text = &text[..end];
    if text.len() <= bytes {
        return text;
    }
    let text = &text[..text.floor_char_boundary(bytes)];
    text.rfind('\n').map_or(text, |at| &text[..at])
}

/// The end, likewise.
fn last(text: &str, lines: usize, bytes: usize) -> &str {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let start = body.rmatch_indices('\n').nth(lines.saturating_sub(1)).map_or(0, |(at, _)| at + 1);
    let text = &text[start..];
    if text.len() <= bytes {
        return text;
    }
    let text = &text[text.ceil_char_boundary(text.len() - bytes)..];
    match text.find('\n') {
        Some(at) if at + 1 < text.len() => &text[at + 1..],
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn options(dir: &Path) -> Options {
        Options { max_lines: 4, max_bytes: 40, output_dir: dir.join("out"), ..Options::default() }
    }

    #[tokio::test]
    async fn a_long_text_keeps_both_ends_and_is_saved() {
        let dir = tempfile::tempdir().unwrap();
        let text: String = (1..=100).map(|n| format!("line {n}\n")).collect();
        let cut = truncate(text.clone(), &options(dir.path())).await;
        let path = cut.path.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        assert!(cut.text.starts_with("line 1\nline 2\n\n["), "{}", cut.text);
        assert!(cut.text.ends_with("]\n\nline 99\nline 100\n"), "{}", cut.text);
        assert!(cut.text.contains("100 lines") && cut.text.contains(path.to_str().unwrap()));
    }

    #[tokio::test]
    async fn a_short_text_is_unchanged_and_a_failed_save_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let short = truncate("a\nb\n".into(), &options(dir.path())).await;
        assert_eq!(short, TruncatedText { text: "a\nb\n".into(), path: None });
        std::fs::write(dir.path().join("out"), "a file where the folder should be").unwrap();
        let nowhere = Options { output_dir: PathBuf::new(), ..options(dir.path()) };
        for options in [options(dir.path()), nowhere] {
            let cut = truncate("x".repeat(100), &options).await;
            assert_eq!(cut.path, None);
            assert!(cut.text.contains("could not be saved"));
        }
    }

    proptest! {
        #[test]
        fn both_ends_respect_the_limits(text in "[a-zé\n]{0,200}", lines in 1usize..5, bytes in 1usize..50) {
            let head = first(&text, lines, bytes);
            prop_assert!(text.starts_with(head) && head.len() <= bytes && head.lines().count() <= lines);
            let tail = last(&text, lines, bytes);
            prop_assert!(text.ends_with(tail) && tail.len() <= bytes && tail.lines().count() <= lines);
        }
    }
}
