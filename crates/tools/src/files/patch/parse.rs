//! Parses the patch format: files between `*** Begin Patch` and `*** End Patch`, each added, updated, moved or deleted.

/// The maximum size of a patch, and number of files in it.
const MAX_BYTES: usize = 4 * 1024 * 1024;
const MAX_FILES: usize = 500;

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const END_OF_FILE: &str = "*** End of File";

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Section {
    Add { path: String, content: String },
    Delete { path: String },
    Update { path: String, to: Option<String>, hunks: Vec<Hunk> },
}

/// A run of changed lines with context.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Hunk {
    /// Lines above the hunk, from `@@ line`; each is searched for below the one before.
    pub anchors: Vec<String>,
    pub lines: Vec<(Kind, String)>,
    /// Whether the hunk belongs to the end of the file.
    pub at_end: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Context,
    Delete,
    Insert,
}

/// Parses a patch. The error names the offending line.
pub(super) fn parse(text: &str) -> Result<Vec<Section>, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("The patch has {} bytes; at most {MAX_BYTES} are taken. Split it.", text.len()));
    }
    let lines: Vec<&str> = text.lines().collect();
    // Models wrap patches in code fences and here-documents.
    let begin =
        lines.iter().position(|line| line.trim() == BEGIN).ok_or(format!("The patch has no line \"{BEGIN}\"."))?;
    let end = lines.iter().rposition(|line| line.trim() == END).filter(|&end| end > begin);
    let end = end.ok_or(format!("The patch has no line \"{END}\" at its end, so it may be incomplete."))?;
    let mut reader = Reader { lines: &lines[..end], at: begin + 1 };
    let mut sections = Vec::new();
    while let Some(line) = reader.next() {
        if line.trim().is_empty() {
            continue;
        }
        if sections.len() == MAX_FILES {
            return Err(format!("The patch has more than {MAX_FILES} files. Split it."));
        }
        sections.push(reader.section(line)?);
    }
    if sections.is_empty() { Err("The patch names no file.".into()) } else { Ok(sections) }
}

struct Reader<'a> {
    lines: &'a [&'a str],
    at: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let line = self.lines.get(self.at)?;
        self.at += 1;
        Some(line)
    }

    /// The next line, unless it is a header.
    fn next_unless(&mut self, is_header: fn(&str) -> bool) -> Option<&'a str> {
        let line = self.lines.get(self.at)?;
        if is_header(line) { None } else { self.next() }
    }

    fn error(&self, line: &str, expected: &str) -> String {
        let shown: String = line.chars().take(80).collect();
        format!("Line {} of the patch is \"{shown}\": {expected}.", self.at)
    }

    fn section(&mut self, line: &str) -> Result<Section, String> {
        let known = ["*** Add File:", "*** Delete File:", "*** Update File:"];
        let found = known.iter().find_map(|kind| Some((*kind, line.trim().strip_prefix(kind)?.trim().to_owned())));
        let Some((kind, path)) = found else {
            return Err(self.error(line, "expected \"*** Add File: \", \"*** Update File: \" or \"*** Delete File: \""));
        };
        match kind {
            _ if path.is_empty() => Err(self.error(line, "the path is missing")),
            "*** Add File:" => self.add(path),
            "*** Delete File:" => Ok(Section::Delete { path }),
            _ => self.update(path),
        }
    }

    fn add(&mut self, path: String) -> Result<Section, String> {
        let mut content = String::new();
        while let Some(line) = self.next_unless(|line| line.trim_start().starts_with("*** ")) {
            let Some(text) = line.strip_prefix('+') else {
                if line.trim().is_empty() {
                    continue;
                }
                return Err(self.error(line, "every line of a new file starts with +"));
            };
            content.push_str(text);
            content.push('\n');
        }
        Ok(Section::Add { path, content })
    }

    fn update(&mut self, path: String) -> Result<Section, String> {
        let to = self.lines.get(self.at).and_then(|line| line.strip_prefix("*** Move to:"));
        let to = to.map(|to| to.trim().to_owned()).filter(|to| !to.is_empty());
        self.at += usize::from(to.is_some());
        let mut hunks: Vec<Hunk> = Vec::new();
        let mut open = Hunk::default();
        // A header in an update starts its line: after a space it is a line of the file.
        let is_header = |line: &str| line.starts_with("*** ") && line.trim_end() != END_OF_FILE;
        while let Some(line) = self.next_unless(is_header) {
            if line.trim_end() == END_OF_FILE {
                open.at_end = true;
            } else if let Some(anchor) = line.strip_prefix("@@") {
                if open.has_lines() {
                    hunks.push(std::mem::take(&mut open));
                }
                open.anchors.extend(read_anchor(anchor));
            } else {
                open.lines.push(self.hunk_line(line)?);
            }
        }
        hunks.extend(Some(open).filter(Hunk::has_lines));
        if hunks.is_empty() && to.is_none() {
            return Err(format!("The update of {path} changes nothing: add lines that start with - or +."));
        }
        Ok(Section::Update { path, to, hunks })
    }

    fn hunk_line(&self, line: &str) -> Result<(Kind, String), String> {
        let mut chars = line.chars();
        match chars.next() {
            Some(' ') => Ok((Kind::Context, chars.as_str().into())),
            Some('-') => Ok((Kind::Delete, chars.as_str().into())),
            Some('+') => Ok((Kind::Insert, chars.as_str().into())),
            // An empty line whose leading space got lost.
            None => Ok((Kind::Context, String::new())),
            Some(_) => Err(self.error(line, "a line of an update starts with a space, - or +; a new hunk with @@")),
        }
    }
}

impl Hunk {
    fn has_lines(&self) -> bool {
        !self.lines.is_empty()
    }
}

/// The line that `@@` names. Line numbers as in other diffs (`@@ -1,3 +1,4 @@`) are ignored.
fn read_anchor(text: &str) -> Option<String> {
    let text = text.strip_prefix(' ').unwrap_or(text).trim_end();
    let numbers = text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let text = if numbers { text.split_once("@@").map_or("", |(_, rest)| rest.trim()) } else { text };
    let text = text.strip_suffix(" @@").unwrap_or(text);
    (!text.trim().is_empty()).then(|| text.to_owned())
}
