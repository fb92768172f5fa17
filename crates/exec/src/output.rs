//! The output of a command: decoded, counted, and bounded in memory and on disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The maximum size of a spill file, in bytes. If it is exceeded, the last line says so.
pub const SPILL_LIMIT: u64 = 256 << 20;

/// What a command wrote to stdout and stderr, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// The beginning, up to [`crate::Spec::keep_bytes`]; invalid UTF-8 became replacement characters.
    pub text: String,
    /// The total number of bytes.
    pub total_bytes: u64,
    /// The total number of lines, including an unterminated last line.
    pub total_lines: u64,
    /// Whether the end of `text` is missing.
    pub truncated: bool,
    /// The file with the full output, if `text` is truncated.
    pub spilled: Option<PathBuf>,
    /// Why that file is missing or incomplete.
    pub spill_error: Option<String>,
}

/// Takes raw output, keeps the beginning and spills the rest.
pub(crate) struct OutputSink {
    decoder: Utf8Decoder,
    output: Output,
    keep: usize,
    ends_in_line: bool,
    spill: Spill,
}

impl OutputSink {
    pub(crate) fn new(keep: usize, spill: Option<PathBuf>) -> Self {
        let spill = spill.map_or(Spill::None, Spill::Wanted);
        Self { decoder: Utf8Decoder::default(), output: Output::default(), keep, ends_in_line: false, spill }
    }

    /// Takes bytes and returns the new text.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.output.total_bytes += bytes.len() as u64;
        self.output.total_lines += bytes.iter().filter(|&&b| b == b'\n').count() as u64;
        self.ends_in_line = bytes.last().map_or(self.ends_in_line, |&b| b != b'\n');
        let text = self.decoder.push(bytes);
        self.keep(&text);
        text
    }

    /// Ends the output; returns it, and the text that was still held back.
    pub(crate) fn finish(mut self) -> (Output, &'static str) {
        let rest = self.decoder.finish();
        self.keep(rest);
        self.output.total_lines += u64::from(self.ends_in_line);
        self.spill.close(&mut self.output);
        (self.output, rest)
    }

    fn keep(&mut self, text: &str) {
        let mut cut = 0;
        if !self.output.truncated {
            cut = text.floor_char_boundary(self.keep.saturating_sub(self.output.text.len()));
            self.output.text.push_str(&text[..cut]);
        }
        if cut < text.len() {
            if !self.output.truncated {
                self.output.truncated = true;
                self.spill.open(&mut self.output);
            }
            self.spill.write(&text[cut..], &mut self.output);
        }
    }
}

/// The spill file. It is written in place: appending to the page cache costs less than a hop to another thread.
enum Spill {
    None,
    Wanted(PathBuf),
    Open { path: PathBuf, file: File, left: u64 },
    Full { path: PathBuf },
}

impl Spill {
    /// Creates the file with what was kept so far.
    fn open(&mut self, output: &mut Output) {
        let Spill::Wanted(path) = std::mem::replace(self, Spill::None) else { return };
        match create(&path) {
            Ok(file) => {
                *self = Spill::Open { path, file, left: SPILL_LIMIT };
                let head = std::mem::take(&mut output.text);
                self.write(&head, output);
                output.text = head;
            }
            Err(error) => fail(&path, &error, output),
        }
    }

    fn write(&mut self, text: &str, output: &mut Output) {
        let Spill::Open { path, file, left } = self else { return };
        let fits = text.floor_char_boundary(usize::try_from(*left).unwrap_or(usize::MAX));
        let mut result = file.write_all(&text.as_bytes()[..fits]);
        *left -= fits as u64;
        let full = fits < text.len();
        if full && result.is_ok() {
            result = writeln!(file, "\n[the rest is not here: more than {} MiB came]", SPILL_LIMIT >> 20);
        }
        match result {
            Ok(()) if full => *self = Spill::Full { path: std::mem::take(path) },
            Ok(()) => {}
            Err(error) => {
                fail(path, &error, output);
                // What was written is still useful, and the message says that it is incomplete.
                output.spilled = Some(std::mem::take(path));
                *self = Spill::None;
            }
        }
    }

    fn close(self, output: &mut Output) {
        match self {
            Spill::None | Spill::Wanted(_) => {}
            Spill::Open { path, .. } => output.spilled = Some(path),
            Spill::Full { path } => {
                output.spill_error =
                    Some(format!("{} ends after {} MiB: more came", path.display(), SPILL_LIMIT >> 20));
                output.spilled = Some(path);
            }
        }
    }
}

fn fail(path: &Path, error: &io::Error, output: &mut Output) {
    output.spill_error = Some(format!("the full output could not be written to {}: {error}", path.display()));
}

/// Readable only by its owner: output may contain secrets. The caller creates the folder; if that is moved away
/// meanwhile, it must not be recreated.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Incremental lossy UTF-8 decoding: a character cut off by the end of a piece waits for the next piece.
#[derive(Default)]
struct Utf8Decoder {
    /// The beginning of a character, at most three bytes.
    held: Vec<u8>,
}

impl Utf8Decoder {
    fn push(&mut self, bytes: &[u8]) -> String {
        let mut joined = std::mem::take(&mut self.held);
        joined.extend_from_slice(bytes);
        let mut text = String::with_capacity(joined.len());
        let mut rest = joined.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    return text;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(length) = error.error_len() else {
                        self.held = after.to_vec();
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &after[length..];
                }
            }
        }
    }

    fn finish(&mut self) -> &'static str {
        if std::mem::take(&mut self.held).is_empty() { "" } else { "\u{fffd}" }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use std::fs;

    fn sink(keep: usize, spill: Option<PathBuf>, pieces: &[&[u8]]) -> Output {
        let mut sink = OutputSink::new(keep, spill);
        for piece in pieces {
            sink.push(piece);
        }
        sink.finish().0
    }

    #[test]
    fn an_unterminated_last_line_counts() {
        for (pieces, lines) in [
            (&[][..], 0),
            (&[&b"a"[..]], 1),
            (&[b"a\n"], 1),
            (&[b"a\nb"], 2),
            (&[b"a\n", b"b", b""], 2),
            (&[b"\n\n"], 2),
        ] {
            assert_eq!(sink(100, None, pieces).total_lines, lines, "{pieces:?}");
        }
    }

    #[test]
    fn the_beginning_is_kept_and_the_file_has_everything() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("all");
        let output = sink(4, Some(path.clone()), &[b"abc", "déf".as_bytes(), b"\nghi"]);
        assert_eq!((output.text.as_str(), output.truncated), ("abcd", true));
        assert_eq!((output.total_bytes, output.total_lines), (11, 2));
        assert_eq!(output.spilled.as_deref(), Some(path.as_path()));
        assert_eq!(fs::read_to_string(&path).unwrap(), "abcdéf\nghi");
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_character_is_never_cut_and_nothing_follows_the_cut() {
        let output = sink(2, None, &["aé".as_bytes(), b"b"]);
        assert_eq!((output.text.as_str(), output.truncated, output.spilled), ("a", true, None));
    }

    #[test]
    fn short_output_creates_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none");
        let output = sink(3, Some(path.clone()), &[b"abc"]);
        assert_eq!((output.truncated, output.spilled, path.exists()), (false, None, false));
    }

    #[test]
    fn an_unwritable_file_is_reported_and_output_continues() {
        let dir = tempfile::tempdir().unwrap();
        let output = sink(1, Some(dir.path().to_path_buf()), &[b"abc", b"def"]);
        assert_eq!((output.text.as_str(), output.total_bytes, output.spilled), ("a", 6, None));
        assert!(output.spill_error.unwrap().contains(&*dir.path().to_string_lossy()));
    }

    #[test]
    fn a_full_disk_is_reported() {
        let output = sink(1, Some("/dev/full".into()), &[b"abc"]);
        assert!(output.spill_error.unwrap().contains("/dev/full"));
    }

    #[test]
    fn the_file_is_bounded_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spill");
        let file = File::create(&path).unwrap();
        let mut spill = Spill::Open { path: path.clone(), file, left: 4 };
        let mut output = Output::default();
        for text in ["ab", "cé", "dropped"] {
            spill.write(text, &mut output);
        }
        spill.close(&mut output);
        assert!(fs::read_to_string(&path).unwrap().starts_with("abc\n[the rest"));
        assert!(output.spill_error.is_some() && output.spilled.is_some());
    }

    proptest! {
        #[test]
        fn pieces_decode_as_the_whole(bytes in any::<Vec<u8>>(), text in any::<String>(), size in 1usize..7) {
            for whole in [bytes.as_slice(), text.as_bytes()] {
                let mut decoder = Utf8Decoder::default();
                let mut got: String = whole.chunks(size).map(|piece| decoder.push(piece)).collect();
                got.push_str(decoder.finish());
                prop_assert_eq!(got, String::from_utf8_lossy(whole));
            }
        }
    }
}
