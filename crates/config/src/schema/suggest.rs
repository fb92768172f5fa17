//! Finds the known word that a mistyped one probably stands for.

/// Longer words are not compared: nobody mistypes them, and it bounds the work.
const MAX_WORD: usize = 64;

/// The candidate nearest to `word`, if it is near enough.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.chars().count() > MAX_WORD {
        return None;
    }
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.chars().count() / 3).max(1))
        // Prefer a candidate of the same length: letters are swapped more often than lost.
        .min_by_key(|(distance, candidate)| (*distance, candidate.len().abs_diff(word.len())))
        .map(|(_, candidate)| candidate)
}

/// The edit distance, with swapped neighbours as one edit, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.to_lowercase().chars().filter(|c| *c != '_' && *c != '-').collect();
    let b: Vec<char> = b.to_lowercase().chars().filter(|c| *c != '_' && *c != '-').collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (last[j - 1] + change).min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before_last[j - 2] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let keys = ["mode", "model", "small_model", "permission", "provider", "mcp"];
        assert_eq!(nearest("modle", keys), Some("model"));
        assert_eq!(nearest("smallModel", keys), Some("small_model"));
        assert_eq!(nearest("permissions", keys), Some("permission"));
        assert_eq!(nearest("mpc", keys), Some("mcp"));
        assert_eq!(nearest("theme", keys), None);
        assert_eq!(nearest("", keys), None);
        assert_eq!(nearest(&"model".repeat(1000), keys), None);
    }

    #[test]
    fn counts_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("", "abc"), 3);
    }
}
