use super::*;
use proptest::prelude::*;

fn apply(old: &str, file: &str, new: &str) -> Option<String> {
    Indents::new(old.split('\n').zip(file.split('\n'))).apply(new)
}

#[test]
fn the_match_shows_the_indentation() {
    for (old, file, new, want) in [
        // Shifted as a whole: in, out, from nothing.
        ("a\n  b", "    a\n      b", "c\n  d\n    e", Some("    c\n      d\n        e")),
        ("    a", "a", "    c\n      d", Some("c\n  d")),
        ("a", "\ta", "c\n\td", Some("\tc\n\t\td")),
        // Already indented like the file.
        ("a\n    b", "    a\n        b", "    c\n        d", Some("    c\n        d")),
        ("a", "    a", "    c\n        d", Some("    c\n        d")),
        ("a\nb", "    a\n        b", "    c\n        d", Some("    c\n        d")),
        // A flat copy of lines at different levels says nothing.
        ("a\nb", "    a\n        b", "c\nd", None),
        ("a\nb\nc", "a\n  b\nc", "x\ny\nz", None),
        ("a\nb\nc", "a\n  b\nc", "x\n  y\nz", Some("x\n  y\nz")),
        ("a\nb\nc", "a\n  b\nc", "x\n   y\nz", None),
        // Neither does one that indents where the file dedents.
        ("  a\nb\n c", "    a\n        b\n            c", "  x\n y", None),
        ("a\n    b", "        a\n    b", "c\n    d", Some("        c\n    d")),
        ("a\n    b", "        a\n    b", "c\n    d\ne", None),
        // Neither the old indentation nor the file's: the meaning is unclear.
        ("a", "        a", "    c", None),
        ("  a", "      a", "c", None),
        ("    a\n        b", "        a\n            b", "        c\n    d", None),
        ("  a\nb", "    a\n  b", "  c", None),
        // Only the first line lost its indentation.
        ("a\n        b", "    a\n        b", "c\n        d", Some("    c\n        d")),
        ("a\n        b", "    a\n        b", "c\n        d\n            e", Some("    c\n        d\n            e")),
        // That, or a different width per level.
        ("a\n    b", "  a\n    b", "c\n    d", Some("  c\n    d")),
        ("a\n    b", "  a\n    b", "c\n    d\n        e", None),
        // A different width or different characters per level.
        ("a\n    b", "a\n  b", "c\n    d\n        e", Some("c\n  d\n    e")),
        ("a\n  b", "a\n    b", "c\n  d\n    e\n      f", Some("c\n    d\n        e\n            f")),
        ("a\n    b", "a\n\tb", "c\n    d\n        e", Some("c\n\td\n\t\te")),
        ("    a\n            b", "\ta\n\t\t\tb", "    c\n        d", Some("\tc\n\t\td")),
        ("        a", "\t\ta", "        c", Some("\t\tc")),
        ("        a", "\t\ta", "        c\n            d", None),
        ("a\n    b", "a\n  b", "c\n  d", Some("c\n  d")),
        ("a\n    b", "a\n  b", "c\n      d", None),
        // No third style of indentation.
        ("a", "\ta", "c\n    d", None),
        // The same indentation: the new text stays as written.
        ("a\n  b", "a\n  b", " c\n\td", Some(" c\n\td")),
        ("a", "    a", "", Some("")),
        ("a\n\n  b", "  a\n\n    b", "c\n\n  d\n", Some("  c\n\n    d\n")),
    ] {
        assert_eq!(apply(old, file, new).as_deref(), want, "{old:?} in {file:?} with {new:?}");
    }
}

/// A block of lines whose levels increase by at most one, as in Python.
fn block() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0usize..4, 1..7).prop_map(|steps| {
        let mut level = 0;
        steps
            .into_iter()
            .enumerate()
            .map(|(at, step)| {
                level = if at == 0 { 0 } else { step.min(level + 1) };
                level
            })
            .collect()
    })
}

fn render(levels: &[usize], shift: usize, unit: &str, name: char) -> String {
    let line = |(number, level): (usize, &usize)| format!("{}{name}{number}", unit.repeat(level + shift));
    levels.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Whatever the model does to the indentation of both texts, the result has the structure of the new text in the
    /// file's own indentation, or there is none.
    #[test]
    fn the_shape_of_the_new_text_is_kept_or_it_is_refused(
        old in block(), new in block(), in_file in 0usize..4, in_old in 0usize..4, in_new in 0usize..4,
        file_unit in prop_oneof![Just("  "), Just("    "), Just("\t")],
        model_unit in prop_oneof![Just("  "), Just("    "), Just("\t")],
    ) {
        let file = render(&old, in_file, file_unit, 'a');
        let old_text = render(&old, in_old, model_unit, 'a');
        let new_text = render(&new, in_new, model_unit, 'n');
        let Some(result) = apply(&old_text, &file, &new_text) else {
            // Texts in one style that are shifted together are always understood.
            prop_assert!(!(file_unit == model_unit && in_new == in_old), "refused");
            return Ok(());
        };
        let verbatim = result == new_text;
        if file_unit == model_unit && (in_new == in_old || in_new == in_file) {
            prop_assert_eq!(&result, &render(&new, in_file, file_unit, 'n'));
        } else if !verbatim {
            // The file's unit where the match shows it, otherwise the model's own.
            let lengths: Vec<isize> = result.lines().map(|line| indent(line).len() as isize).collect();
            let has_unit = |unit: &str| {
                let step = |level: usize| (level as isize - new[0] as isize) * unit.len() as isize;
                lengths.iter().zip(&new).all(|(length, level)| length - lengths[0] == step(*level))
            };
            prop_assert!(has_unit(file_unit) || has_unit(model_unit), "{result}");
            let shown = in_file > 0 || old.iter().any(|level| *level > 0);
            let alike = |line: &str| indent(line).chars().all(|c| file_unit.contains(c));
            prop_assert!(!shown || result.lines().all(alike), "{result}");
        }
    }

    #[test]
    fn a_flat_copy_is_refused_unless_the_new_text_is_indented(old in block(), new in block(), in_file in 1usize..3) {
        if old.iter().all(|level| *level == 0) {
            return Ok(());
        }
        let flat = render(&vec![0; old.len()], 0, "    ", 'a');
        let file = render(&old, in_file, "    ", 'a');
        prop_assert_eq!(apply(&flat, &file, &render(&new, 0, "    ", 'n')), None);
        let right = render(&new, in_file, "    ", 'n');
        prop_assert_eq!(apply(&flat, &file, &right), Some(right.clone()));
    }
}
