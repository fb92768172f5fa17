//! Media types of files. Agent runtimes show text to the model only as `text/plain`, whatever kind of text it is.

use std::path::Path;

/// Text of any kind.
pub(super) const TEXT: &str = "text/plain";
/// How prompts name a directory.
pub(super) const DIRECTORY: &str = "application/x-directory";
const UNKNOWN: &str = "application/octet-stream";

/// How much of a file is looked at to tell text from bytes.
const SNIFFED: usize = 8192;

/// The first bytes of files, and their media types.
const MAGIC: [(&[u8], &str); 6] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
];

/// The ends of names, and their media types, of files that are no text.
const ENDINGS: [(&str, &str); 12] = [
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("bmp", "image/bmp"),
    ("pdf", "application/pdf"),
    ("zip", "application/zip"),
    ("gz", "application/gzip"),
    ("mp3", "audio/mpeg"),
    ("wav", "audio/wav"),
    ("mp4", "video/mp4"),
];

/// Media types besides `text/*` whose content is text.
const TEXTUAL: [&str; 10] = [
    "application/json",
    "application/xml",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
    "application/javascript",
    "application/typescript",
    "application/sql",
    "application/x-sh",
    "application/x-ndjson",
];

/// The media type for a prompt: as it was named, else guessed by the content, then by the name.
pub(super) fn of(named: Option<&str>, filename: Option<&str>, content: &[u8]) -> String {
    let named = named.and_then(|named| named.split(';').next()).map(|named| named.trim().to_ascii_lowercase());
    match named.filter(|named| is_well_formed(named) && named != UNKNOWN) {
        Some(named) if is_textual(&named) => TEXT.to_owned(),
        Some(named) => named,
        None => guess(filename, content).to_owned(),
    }
}

fn guess(filename: Option<&str>, content: &[u8]) -> &'static str {
    if let Some((_, media_type)) = MAGIC.iter().find(|(magic, _)| content.starts_with(magic)) {
        return media_type;
    }
    if content.starts_with(b"RIFF") && content.get(8..12) == Some(b"WEBP") {
        return "image/webp";
    }
    let ending = filename.and_then(|name| Path::new(name).extension()).map(|it| it.to_string_lossy().to_lowercase());
    if let Some((_, media_type)) = ENDINGS.iter().find(|(known, _)| ending.as_deref() == Some(*known)) {
        return media_type;
    }
    if is_text(content) { TEXT } else { UNKNOWN }
}

fn is_well_formed(media_type: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.len() <= 100
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
    };
    media_type.split_once('/').is_some_and(|(kind, name)| is_name(kind) && is_name(name))
}

fn is_textual(media_type: &str) -> bool {
    let suffix = [("+json"), ("+xml"), ("+yaml")].iter().any(|suffix| media_type.ends_with(suffix));
    // An image that is written as text is shown as an image.
    media_type.starts_with("text/") || TEXTUAL.contains(&media_type) || (suffix && !media_type.starts_with("image/"))
}

fn is_text(content: &[u8]) -> bool {
    let start = &content[..content.len().min(SNIFFED)];
    if start.contains(&0) {
        return false;
    }
    match std::str::from_utf8(start) {
        Ok(_) => true,
        // A character may be cut at the end of what is looked at.
        Err(error) => error.error_len().is_none() && start.len() == SNIFFED,
    }
}
