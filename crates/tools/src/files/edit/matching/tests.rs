use super::*;
use proptest::prelude::*;

fn replace(content: &str, old: &str, new: &str) -> Result<String, MatchError> {
    super::super::replace(content, old, new, false)
}

fn replaced_everywhere(content: &str, old: &str, new: &str) -> String {
    super::super::replace(content, old, new, true).unwrap()
}

fn replaced(content: &str, old: &str, new: &str) -> String {
    replace(content, old, new).unwrap()
}

#[test]
fn an_exact_match_is_preferred() {
    assert_eq!(replaced("a b\na  b\n", "a  b", "X"), "a b\nX\n");
    assert_eq!(replaced("  x\nx", "  x", "y"), "y\nx");
}

#[test]
fn several_places_are_an_error_unless_all_are_wanted() {
    assert_eq!(replace("x x", "x", "y"), Err(MatchError::Ambiguous));
    assert_eq!(replace("aaa", "aa", "b"), Err(MatchError::Ambiguous));
    assert_eq!(replaced_everywhere("x x", "x", "y"), "y y");
    let twice = "  a\n  b\n\ta\n\tb\n";
    assert_eq!(replace(twice, "a\n    b", "c"), Err(MatchError::Ambiguous));
    assert_eq!(replaced_everywhere(twice, "  a \n  b ", "  c\n  d"), "  c\n  d\n\tc\n\td\n");
}

#[test]
fn line_endings_follow_the_file() {
    assert_eq!(replaced("a\r\nb\r\nc\r\n", "a\nb", "x\ny"), "x\r\ny\r\nc\r\n");
    assert_eq!(replaced("a\r\nb\r\n", "b", "x\ny"), "a\r\nx\r\ny\r\n");
    assert_eq!(replaced("a\nb\n", "a\r\nb", "x\r\ny"), "x\ny\n");
    assert_eq!(replaced("\u{feff}a\r\nb", "a\nb", "c\nd"), "\u{feff}c\r\nd");
    assert_eq!(replaced("mixed\nb\r\nc\r\n", "b", "x\ny"), "mixed\nx\r\ny\r\nc\r\n");
}

#[test]
fn a_shift_of_indentation_shifts_the_new_text() {
    let content = "fn f() {\n        if x {\n            y();\n        }\n}\n";
    let old = "    if x {\n        y();\n    }";
    let new = "    if x {\n        z();\n\n        y();\n    }";
    let want = "fn f() {\n        if x {\n            z();\n\n            y();\n        }\n}\n";
    assert_eq!(replaced(content, old, new), want);
    assert_eq!(replaced("\tif x:\n\t\ty\n", "if x:\n\ty", "if z:\n\ty"), "\tif z:\n\t\ty\n");
}

#[test]
fn a_missing_first_indentation_is_kept() {
    let content = "{\n    a\n      b\n}\n";
    assert_eq!(replaced(content, "a\n        b", "c"), "{\n    c\n}\n");
}

#[test]
fn spaces_at_line_ends_and_between_words_are_forgiven() {
    assert_eq!(replaced("a  \nb\t\n", "a\nb\n", "c\n"), "c\n");
    assert_eq!(replaced("let  x =  1;\n", "let x = 1;", "let x = 2;"), "let x = 2;\n");
    assert_eq!(replaced("a \nb", "a\nb\n", "c\n"), "c", "no line ending is added at the end of the file");
}

#[test]
fn double_escapes_are_undone() {
    assert_eq!(replaced("a\n\t\"b\"\n", "a\\n\\t\\\"b\\\"", "c\\nd"), "c\nd\n");
    let code = "print(\"a\\n\")";
    assert_eq!(replaced(code, "\"a\\n\"", "\"b\\n\""), "print(\"b\\n\")", "exact first: a real escape stays");
}

#[test]
fn a_block_is_found_by_its_ends_if_the_inside_is_nearly_the_same() {
    let inside = "    let the_total = compute_the_total(items);\n    print(the_total);\n";
    let content = format!("fn a() {{\n{inside}}}\n\nfn b() {{\n    other();\n    thing();\n}}\n");
    let old = format!("fn a() {{\n{}}}", inside.replace("the_total);", "the_totl);"));
    assert!(replaced(&content, &old, "fn a() {}").starts_with("fn a() {}\n\nfn b"));
    assert!(matches!(replace(&content, "fn a() {\n    x();\n    y();\n}", "z"), Err(MatchError::NotFound(Some(1)))));
    assert!(find(&content, &old, "z", true).is_err(), "never for several places");
}

#[test]
fn blank_text_matches_nowhere() {
    assert_eq!(replace("a\n\n\nb", "   ", "x"), Err(MatchError::NotFound(None)));
    assert_eq!(replace("a\n\n\nb", "\t\n\t", "x"), Err(MatchError::NotFound(None)));
}

#[test]
fn a_file_of_equal_lines_is_searched_in_bounded_time() {
    let content = "x\n".repeat(50_000);
    let old = format!("{}y", "x \n".repeat(5_000));
    assert!(replace(&content, &old, "z").is_err());
}

#[test]
fn the_place_that_visibly_matches_is_edited() {
    for (content, old, new, want) in [
        ("a\r\nb\r\n", "\nb", "\nc", Ok("a\r\nc\r\n")),
        ("a\r\n\r\nb\r\n", "\n\nb\n", "\nb\n", Ok("a\r\nb\r\n")),
        ("a\r\nb\r\n", "a\n", "", Ok("b\r\n")),
        ("a\r\nb", "\nb", "", Ok("a")),
        ("a\r\nb", "b", "b\n", Ok("a\r\nb\r\n")),
        ("a\nb\n", "a\r\nb\r\n", "c\r\n", Ok("c\n")),
        // Cut from a file by a program that splits lines at the line feed only.
        ("a\r\nb\r\n", "a\r", "c\r", Ok("c\r\nb\r\n")),
        ("a\nb\n", "a\r", "c\r", Ok("c\nb\n")),
        // The first line ends differently from the lines that are meant.
        ("x\na\r\nb\r\ny\n", "a\nb", "c\nd", Ok("x\nc\r\nd\r\ny\n")),
        ("x\r\na\nb\ny\r\n", "a\nb", "c\nd", Ok("x\r\nc\nd\ny\r\n")),
        // Both places look the same.
        ("a\nb\r\na\r\nb\r\n", "a\nb", "c", Err(MatchError::Ambiguous)),
        ("\u{feff}a\r\n", "\u{feff}a", "\u{feff}b", Ok("\u{feff}b\r\n")),
        // A carriage return that does not end a line is an ordinary character.
        ("a\rb\n", "a\rb", "c\rd", Ok("c\rd\n")),
    ] {
        assert_eq!(replace(content, old, new), want.map(str::to_owned), "{content:?} {old:?} {new:?}");
    }
}

#[test]
fn the_same_indentation_is_preferred() {
    assert_eq!(replaced("\ta\n    a\n", "    a  ", "    b"), "\ta\n    b\n");
    assert_eq!(replace("\ta\n  a\n", "    a", "    b"), Err(MatchError::Ambiguous));
}

#[test]
fn a_python_block_is_indented_once_or_not_at_all() {
    let file = "class A:\n    def f(self):\n        if x:\n            return 1\n";
    let edited = |body: &str| Ok(format!("class A:\n{body}"));
    for (old, new, want) in [
        (
            "def f(self):\n    if x:\n        return 1\n",
            "def f(self):\n    return 2\n",
            edited("    def f(self):\n        return 2\n"),
        ),
        (
            "def f(self):\n    if x:\n        return 1\n",
            "    def f(self):\n        return 2\n",
            edited("    def f(self):\n        return 2\n"),
        ),
        (
            "  def f(self):\n    if x:\n      return 1\n",
            "  def f(self):\n    return 2\n",
            edited("    def f(self):\n        return 2\n"),
        ),
        (
            "\tdef f(self):\n\t\tif x:\n\t\t\treturn 1\n",
            "\tdef f(self):\n\t\treturn 2\n",
            edited("    def f(self):\n        return 2\n"),
        ),
        (
            "def f(self):\nif x:\nreturn 1\n",
            "    def f(self):\n        return 2\n",
            edited("    def f(self):\n        return 2\n"),
        ),
        ("def f(self):\nif x:\nreturn 1\n", "def f(self):\nreturn 2\n", Err(MatchError::Indentation(2))),
        ("  def f(self):\nif x:\n return 1\n", "  def f(self):\n return 2\n", Err(MatchError::Indentation(2))),
        (
            "def f(self):\n    if x:\n        return 1\n",
            "  def f(self):\n    return 2\n",
            Err(MatchError::Indentation(2)),
        ),
        (
            "def  f(self):\n    if  x:\n        return 1\n",
            "def f(self):\n    return 2\n",
            edited("    def f(self):\n        return 2\n"),
        ),
    ] {
        assert_eq!(replace(file, old, new), want, "{old:?} {new:?}");
    }
}

/// Lines that look like a program, an edit of them, and how much of the old text the model gets wrong.
fn edit() -> impl Strategy<Value = (String, String, String)> {
    let lines = prop::collection::vec("( {4}|\t| {8})?[abc]{0,2}( [ab])? ?", 1..10);
    (lines, any::<bool>(), any::<prop::sample::Index>(), any::<prop::sample::Index>(), "([abc ]{0,3}\n?){0,4}", 0..5u8)
        .prop_map(|(lines, ended, from, to, new, wrong)| {
            let content = lines.join("\n") + if ended { "\n" } else { "" };
            let (from, to) = (from.index(content.len() + 1), to.index(content.len() + 1));
            let old = &content[from.min(to)..from.max(to)];
            let each = |change: fn(&str) -> String| old.split('\n').map(change).collect::<Vec<_>>().join("\n");
            let old = match wrong {
                0 => each(|line| line.trim_start().to_owned()),
                1 => each(|line| line.trim_end().to_owned()),
                2 => each(|line| format!("  {line}")),
                _ => old.to_owned(),
            };
            (content, old, new)
        })
}

fn crlf(text: &str) -> String {
    text.replace('\n', "\r\n")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn an_edit_of_a_crlf_file_is_the_edit_of_the_lf_file((content, old, new) in edit(), all: bool) {
        prop_assume!(!old.is_empty() && content.contains('\n'));
        let edit = |content: &str, old: &str, new: &str| super::super::replace(content, old, new, all);
        let want = edit(&content, &old, &new);
        let want_crlf = want.as_deref().map(crlf).map_err(|error| format!("{error:?}"));
        for (old, new) in [(old.clone(), new.clone()), (crlf(&old), new.clone()), (crlf(&old), crlf(&new))] {
            prop_assert_eq!(&edit(&content, &old, &new), &want);
            let got = edit(&crlf(&content), &old, &new).map_err(|error| format!("{error:?}"));
            prop_assert_eq!(&got, &want_crlf);
            let marked = edit(&format!("\u{feff}{}", crlf(&content)), &old, &new).map_err(|error| format!("{error:?}"));
            prop_assert_eq!(marked, want_crlf.clone().map(|text| format!("\u{feff}{text}")));
        }
    }

    #[test]
    fn lines_outside_an_edit_keep_their_bytes(
        ends in prop::collection::vec(any::<bool>(), 2..12), at in any::<prop::sample::Index>(), count in 1usize..3,
        new in "([xyz]{1,3}\n?){0,4}", newline: bool
    ) {
        let line = |number: usize, crlf: bool| format!("line {number}{}", if crlf { "\r\n" } else { "\n" });
        let lines: Vec<String> = ends.iter().enumerate().map(|(number, end)| line(number, *end)).collect();
        let from = at.index(ends.len());
        let to = (from + count).min(ends.len());
        let mut old: String = (from..to).map(|number| line(number, false)).collect();
        if !newline {
            old.pop();
        }
        prop_assume!(old != new && lines.concat().replace("\r\n", "\n").matches(&old).count() == 1);
        let result = replaced(&lines.concat(), &old, &new);
        let tail = if newline { lines[to..].concat() } else { lines[to - 1..].concat()[format!("line {}", to - 1).len()..].to_owned() };
        prop_assert!(result.starts_with(&lines[..from].concat()) && result.ends_with(&tail), "{result:?}");
        prop_assert!(!result.contains("\r\r") && result.matches('\r').count() == result.matches("\r\n").count(), "{result:?}");
        let middle = &result[lines[..from].concat().len()..result.len() - tail.len()];
        prop_assert_eq!(middle.replace("\r\n", "\n"), new);
    }
}

proptest! {
    #[test]
    fn a_unique_exact_match_is_plain_replacement(
        before in "[a-c \n]{0,30}", old in "[d-f][d-f \n]{0,10}", after in "[a-c \n]{0,30}", new in "[a-z \n]{0,20}"
    ) {
        let content = format!("{before}{old}{after}");
        prop_assume!(content.match_indices(&old).count() == 1);
        prop_assert_eq!(replaced(&content, &old, &new), format!("{before}{new}{after}"));
    }

    #[test]
    fn nothing_outside_the_match_changes(
        content in "([ \t]{0,3}[ab]{0,2} ?\r?\n?){0,12}", old in "([ \t]{0,3}[ab]{0,2} ?\n?){1,4}", all: bool
    ) {
        prop_assume!(!old.is_empty());
        crate::files::edit::check_edit(&content, &old, "NEW\nTEXT", all);
    }

    #[test]
    fn a_shifted_block_is_found(lines in prop::collection::vec("[a-z]{1,6}", 1..5), shift in 1usize..6) {
        let content: String = lines.iter().map(|l| format!("{}{l}\n", " ".repeat(shift))).collect();
        let old = lines.join("\n");
        prop_assume!(lines.len() > 1);
        let want = format!("{}new\n", " ".repeat(shift));
        prop_assert_eq!(replaced(&content, &old, "new"), want);
    }
}
