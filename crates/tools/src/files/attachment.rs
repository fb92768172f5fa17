//! Content that the model gets as a file rather than as text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::tool::Attachment;

/// The maximum size of an attachment; models refuse more.
pub const MAX_ATTACHMENT_BYTES: usize = 5 * 1024 * 1024;

/// Detects the media type of an image or PDF by its first bytes.
pub fn sniff(content: &[u8]) -> Option<&'static str> {
    match content {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some("application/pdf"),
        _ => None,
    }
}

/// Encodes content as an attachment.
pub(crate) fn attach(mime: &str, filename: Option<String>, content: &[u8]) -> Attachment {
    Attachment { mime: mime.into(), filename, url: format!("data:{mime};base64,{}", STANDARD.encode(content)) }
}

/// Whether content is not text: it contains NUL bytes, or too much that is not UTF-8 or not printable.
pub(crate) fn is_binary(content: &[u8]) -> bool {
    const SAMPLE_BYTES: usize = 8192;
    let head = &content[..content.len().min(SAMPLE_BYTES)];
    if head.contains(&0) {
        return true;
    }
    let text = String::from_utf8_lossy(head);
    let strange = |c: char| {
        c == char::REPLACEMENT_CHARACTER
            || (c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\x1b' | '\x0c' | '\x08'))
    };
    text.chars().filter(|&c| strange(c)).count() * 10 > text.chars().count() * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_and_binary_detection() {
        assert_eq!(sniff(b"\x89PNG\r\n\x1a\nrest"), Some("image/png"));
        assert_eq!(sniff(b"%PDF-1.7"), Some("application/pdf"));
        assert_eq!(sniff(b"hello"), None);
        assert!(is_binary(b"\x7fELF\0\0") && is_binary(&[0xff; 40]));
        assert!(!is_binary("größe\n".as_bytes()) && !is_binary(b"caf\xe9 latin one\n") && !is_binary(b""));
        assert_eq!(attach("image/png", None, b"x").url, "data:image/png;base64,eA==");
    }
}
