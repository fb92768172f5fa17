//! A list of accepted differences: blocks of a reason (`# …`) and the lines that it explains, in which `*` matches any
//! text.

/// The lines that may differ.
pub struct AcceptedDifferences {
    patterns: Vec<String>,
}

impl AcceptedDifferences {
    pub fn parse(text: &str) -> Self {
        let mut patterns = Vec::new();
        let mut has_reason = false;
        for (number, line) in text.lines().enumerate() {
            match line.trim() {
                "" => has_reason = false,
                reason if reason.starts_with('#') => has_reason = true,
                pattern => {
                    assert!(has_reason, "line {}: there is no reason above {pattern:?}", number + 1);
                    patterns.push(pattern.to_owned());
                }
            }
        }
        Self { patterns }
    }

    /// The differences that are not accepted, and the patterns that match none.
    pub fn check(&self, differences: &[String]) -> (Vec<String>, Vec<String>) {
        let matches = |pattern: &String, line: &String| api::wildcard(pattern, line);
        let unknown = differences.iter().filter(|line| !self.patterns.iter().any(|pattern| matches(pattern, line)));
        let stale = self.patterns.iter().filter(|pattern| !differences.iter().any(|line| matches(pattern, line)));
        (unknown.cloned().collect(), stale.cloned().collect())
    }
}
