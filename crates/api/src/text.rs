//! Makes text from a model, a tool or a peer safe to show.

/// Removes terminal control sequences (CSI, OSC, DCS …), C0 and C1 controls except newline and tab, and bidirectional
/// overrides, which can disguise text.
pub fn strip_control(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.chars().any(is_control) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\u{9b}' => skip_csi(&mut chars),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => skip_string(&mut chars),
            c if is_control(c) => {}
            c => out.push(c),
        }
    }
    out.into()
}

fn is_control(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn skip_escape(chars: &mut Chars<'_>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            skip_csi(chars);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            chars.next();
            skip_string(chars);
        }
        _ => {
            while chars.next_if(|c| ('\u{20}'..='\u{2f}').contains(c)).is_some() {}
            chars.next_if(|c| ('\u{30}'..='\u{7e}').contains(c));
        }
    }
}

fn skip_csi(chars: &mut Chars<'_>) {
    while chars.next_if(|c| ('\u{20}'..='\u{3f}').contains(c)).is_some() {}
    chars.next_if(|c| ('\u{40}'..='\u{7e}').contains(c));
}

/// A control string ends with BEL or ST; an unterminated one ends at the end of the line, so that it cannot swallow the
/// text.
fn skip_string(chars: &mut Chars<'_>) {
    while let Some(&c) = chars.peek() {
        if c == '\n' {
            return;
        }
        chars.next();
        match c {
            '\u{07}' | '\u{9c}' => return,
            '\u{1b}' => {
                chars.next_if_eq(&'\\');
                return;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_text_is_borrowed() {
        assert!(matches!(strip_control("héllo\n\tworld"), std::borrow::Cow::Borrowed(_)));
    }

    #[test]
    fn control_sequences_are_removed_and_text_is_kept() {
        assert_eq!(strip_control("a\x1b[31mred\x1b[0m b"), "ared b");
        assert_eq!(strip_control("a\x1b]0;title\x07b"), "ab");
        assert_eq!(strip_control("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\"), "alink");
        assert_eq!(strip_control("a\x1b(Bb\rc\x08"), "abc");
        assert_eq!(strip_control("a\u{9b}2Jb\u{202e}c"), "abc");
        assert_eq!(strip_control("open \x1b]0;never ends\nnext"), "open \nnext");
    }

    proptest! {
        #[test]
        fn nothing_that_moves_a_terminal_is_left(text in any::<String>()) {
            prop_assert!(!strip_control(&text).chars().any(is_control));
        }
    }
}
