//! Random changes of good examples.

/// The longest input.
const LONGEST: usize = 64 * 1024;

/// Makes inputs, the same ones for the same seed.
pub struct Mutator {
    random: fastrand::Rng,
    seeds: &'static [&'static [u8]],
    tokens: &'static [&'static str],
}

impl Mutator {
    pub fn new(seed: u64, seeds: &'static [&'static [u8]], tokens: &'static [&'static str]) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), seeds, tokens }
    }

    /// The next input: first every example as it is, then changed ones, now and then pure noise.
    pub fn next(&mut self, index: u64) -> Vec<u8> {
        if let Some(seed) = usize::try_from(index).ok().and_then(|index| self.seeds.get(index)) {
            return seed.to_vec();
        }
        let mut input = if self.random.u8(..) < 8 { self.noise(300) } else { self.example() };
        for _ in 0..self.random.usize(1..=8) {
            self.change(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn example(&mut self) -> Vec<u8> {
        self.seeds[self.random.usize(..self.seeds.len())].to_vec()
    }

    fn noise(&mut self, longest: usize) -> Vec<u8> {
        let length = self.random.usize(..longest);
        (0..length).map(|_| self.random.u8(..)).collect()
    }

    /// A random range of the input, possibly empty.
    fn range(&mut self, input: &[u8]) -> std::ops::Range<usize> {
        let start = self.random.usize(..=input.len());
        let length = if self.random.bool() { self.random.usize(..=8) } else { self.random.usize(..=input.len()) };
        start..(start + length).min(input.len())
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let range = self.range(input);
        match self.random.u8(..9) {
            0 if !range.is_empty() => input[range.start] ^= 1 << self.random.u8(..8),
            1 if !range.is_empty() => input[range.start] = self.random.u8(..),
            2 => drop(input.drain(range)),
            3 => {
                let piece = input[range.clone()].to_vec();
                input.splice(range.start..range.start, piece);
            }
            4 => {
                // Deep nesting and long runs: what recursion and quadratic loops dislike.
                let piece = input[range.start..(range.start + 8).min(input.len())].to_vec();
                let times = self.random.usize(1..2_000);
                input.splice(range.start..range.start, piece.repeat(times).into_iter().take(LONGEST));
            }
            5 => {
                let other = self.example();
                let piece = other[self.range(&other)].to_vec();
                input.splice(range, piece);
            }
            6 => {
                let piece = self.noise(6);
                input.splice(range.start..range.start, piece);
            }
            _ if !self.tokens.is_empty() => {
                let token = self.tokens[self.random.usize(..self.tokens.len())];
                input.splice(range.start..range.start, token.bytes());
            }
            _ => input.push(self.random.u8(..)),
        }
        input.truncate(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_its_inputs_again_and_they_differ() {
        let make = |seed| {
            let mut mutator = Mutator::new(seed, &[b"one two", b"{\"a\": [1]}"], &["[", "\u{2028}"]);
            (0..500).map(|index| mutator.next(index)).collect::<Vec<_>>()
        };
        assert_eq!(make(7), make(7));
        assert_ne!(make(7), make(8));
        assert_eq!(make(7)[1], b"{\"a\": [1]}");
        let different: std::collections::HashSet<_> = make(7).into_iter().collect();
        assert!(different.len() > 400);
        assert!(different.iter().all(|input| input.len() <= LONGEST));
    }
}
