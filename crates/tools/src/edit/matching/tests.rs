use super::*;
use proptest::prelude::*;

fn replace(content: &str, old: &str, new: &str) -> Result<String, MatchError> {
    find(content, old, new, false).map(|splices| apply(content, &splices))
}

fn replaced(content: &str, old: &str, new: &str) -> String {
    replace(content, old, new).unwrap()
}

#[test]
fn exact_wins_over_everything() {
    assert_eq!(replaced("a b\na  b\n", "a  b", "X"), "a b\nX\n");
    assert_eq!(replaced("  x\nx", "  x", "y"), "y\nx");
}

#[test]
fn several_places_are_an_error_unless_all_are_wanted() {
    assert_eq!(replace("x x", "x", "y"), Err(MatchError::Ambiguous));
    assert_eq!(replace("aaa", "aa", "b"), Err(MatchError::Ambiguous));
    let all = find("x x", "x", "y", true).unwrap();
    assert_eq!(apply("x x", &all), "y y");
    let twice = "  a\n  b\n\ta\n\tb\n";
    assert_eq!(replace(twice, "a\n    b", "c"), Err(MatchError::Ambiguous));
    let all = find(twice, "  a \n  b ", "  c\n  d", true).unwrap();
    assert_eq!(apply(twice, &all), "  c\n  d\n\tc\n\td\n");
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
fn blank_text_fits_nowhere() {
    assert_eq!(replace("a\n\n\nb", "   ", "x"), Err(MatchError::NotFound(None)));
    assert_eq!(replace("a\n\n\nb", "\t\n\t", "x"), Err(MatchError::NotFound(None)));
}

#[test]
fn a_file_of_equal_lines_does_not_take_for_ever() {
    let content = "x\n".repeat(50_000);
    let old = format!("{}y", "x \n".repeat(5_000));
    assert!(replace(&content, &old, "z").is_err());
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
        crate::edit::check_splices(&content, &old, "NEW\nTEXT", all);
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
