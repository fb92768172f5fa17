use super::*;
use proptest::prelude::*;

fn splice(content: &str, range: Range<usize>, new: &str) -> String {
    let splices = vec![(range, new.to_owned())];
    check_splice(content, &splices);
    NormalisedText::new(content).splice(&splices)
}

#[test]
fn inserted_lines_get_the_endings_of_the_file() {
    for (content, range, new, want) in [
        ("a\r\nb\r\n", 2..3, "x\ny", "a\r\nx\r\ny\r\n"),
        ("a\r\nb\r\n", 1..3, "\nx", "a\r\nx\r\n"),
        ("a\r\nb", 2..3, "x\ny", "a\r\nx\r\ny"),
        ("a\nb\n", 2..3, "x\ny", "a\nx\ny\n"),
        ("\u{feff}a\r\n", 0..1, "x\ny", "\u{feff}x\r\ny\r\n"),
        ("a", 0..1, "x\ny", "x\ny"),
        ("", 0..0, "x\n", "x\n"),
        // Half a line ending is not doubled.
        ("a\r\nb\r\n", 0..1, "x\r", "x\r\nb\r\n"),
        ("a\nb\n", 0..1, "x\r", "x\nb\n"),
    ] {
        assert_eq!(splice(content, range, new), want, "{content:?} {new:?}");
    }
}

#[test]
fn lines_of_a_mixed_file_keep_their_endings() {
    let mixed = "a\r\nb\nc\r\nd\n";
    for (range, new, want) in [
        // A line that replaces another ends like that one.
        (0..8, "A\nB\nC\nD\n", "A\r\nB\nC\r\nD\n"),
        // Moved lines keep their endings; an additional line ends like the one before.
        (0..8, "a\nb\nnew\nc\nd\n", "a\r\nb\nnew\nc\r\nd\n"),
        (0..8, "new\na\nb\nc\nd\n", "new\r\na\r\nb\nc\r\nd\n"),
        (0..8, "b\nd\n", "b\nd\n"),
        (0..8, "a\nc\n", "a\r\nc\r\n"),
        // A fragment of a line ends like its line.
        (4..5, "x\ny", "a\r\nb\nx\r\ny\r\nd\n"),
        (2..3, "x\ny", "a\r\nx\ny\nc\r\nd\n"),
    ] {
        assert_eq!(splice(mixed, range, new), want, "{new:?}");
    }
}

/// Lines with mixed endings.
fn text() -> impl Strategy<Value = String> {
    let line = ("[ab ]{0,3}", prop_oneof![Just("\n"), Just("\r\n")]);
    (prop::collection::vec(line, 0..8), "[ab]{0,2}", any::<bool>()).prop_map(|(lines, last, mark)| {
        let mark = if mark { "\u{feff}" } else { "" };
        lines.into_iter().fold(mark.to_owned(), |text, (line, end)| text + &line + end) + &last
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_splice_keeps_everything_around_it(content in text(), from in 0usize..30, length in 0usize..10, new in "[abc\n]{0,8}") {
        let end = NormalisedText::new(&content).text().len();
        let start = from.min(end);
        splice(&content, start..(start + length).min(end), &new);
    }

    #[test]
    fn no_splice_changes_nothing(content in text()) {
        prop_assert_eq!(NormalisedText::new(&content).splice(&Vec::new()), content);
    }
}
