//! The list of accepted differences: blocks of a reason (`# …`) and the lines that it explains, in which `*` stands for any
//! text.

/// The lines that may differ.
pub struct Accepted {
    patterns: Vec<String>,
}

impl Accepted {
    pub fn parse(text: &str) -> Self {
        let mut patterns = Vec::new();
        let mut has_reason = false;
        for (number, line) in text.lines().enumerate() {
            match line.trim() {
                "" => has_reason = false,
                reason if reason.starts_with('#') => has_reason = true,
                pattern => {
                    assert!(has_reason, "line {}: no reason stands above {pattern:?}", number + 1);
                    patterns.push(pattern.to_owned());
                }
            }
        }
        Self { patterns }
    }

    /// The differences that nobody accepted, and the patterns that fit none.
    pub fn check(&self, differences: &[String]) -> (Vec<String>, Vec<String>) {
        let fits = |pattern: &String, line: &String| api::wildcard(pattern, line);
        let unknown = differences.iter().filter(|line| !self.patterns.iter().any(|pattern| fits(pattern, line)));
        let stale = self.patterns.iter().filter(|pattern| !differences.iter().any(|line| fits(pattern, line)));
        (unknown.cloned().collect(), stale.cloned().collect())
    }
}
