//! The first few of many values, without keeping all of them.

use std::collections::BinaryHeap;

/// Keeps the smallest of the added values, and counts all of them.
#[derive(Debug)]
pub struct TopN<T> {
    kept: BinaryHeap<T>,
    most: usize,
    seen: usize,
}

impl<T: Ord> TopN<T> {
    /// Keeps at most `most` values.
    pub fn new(most: usize) -> Self {
        Self { kept: BinaryHeap::new(), most, seen: 0 }
    }

    /// Adds a value.
    pub fn add(&mut self, value: T) {
        self.seen += 1;
        if self.kept.len() < self.most {
            self.kept.push(value);
        } else if let Some(mut last) = self.kept.peek_mut()
            && value < *last
        {
            *last = value;
        }
    }

    /// Removes kept values that do not satisfy `keep`; they no longer count.
    pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        let before = self.kept.len();
        self.kept.retain(keep);
        self.seen -= before - self.kept.len();
    }

    /// How many values were added.
    pub fn seen(&self) -> usize {
        self.seen
    }

    /// The kept values, sorted.
    pub fn into_sorted(self) -> Vec<T> {
        self.kept.into_sorted_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_equals_sorting_all_values(values in prop::collection::vec(0u8..50, 0..60), most in 0usize..20) {
            let mut top = TopN::new(most);
            values.iter().for_each(|value| top.add(*value));
            let mut sorted = values.clone();
            sorted.sort_unstable();
            sorted.truncate(most);
            prop_assert_eq!(top.seen(), values.len());
            top.retain(|value| value % 2 == 0);
            let left: Vec<u8> = sorted.iter().copied().filter(|value| value % 2 == 0).collect();
            prop_assert_eq!(top.seen(), values.len() - (sorted.len() - left.len()));
            prop_assert_eq!(top.into_sorted(), left);
        }
    }
}
