//! The first few of many, without keeping them all.

use std::collections::BinaryHeap;

/// The smallest of the values that it is given, and how many there were.
#[derive(Debug)]
pub struct Best<T> {
    kept: BinaryHeap<T>,
    most: usize,
    seen: usize,
}

impl<T: Ord> Best<T> {
    /// Keeps at most so many.
    pub fn new(most: usize) -> Self {
        Self { kept: BinaryHeap::new(), most, seen: 0 }
    }

    /// Takes a value in.
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

    /// Takes out of those that it kept what does not fit; it counts as if it had never been given.
    pub fn retain(&mut self, fits: impl FnMut(&T) -> bool) {
        let before = self.kept.len();
        self.kept.retain(fits);
        self.seen -= before - self.kept.len();
    }

    /// How many it was given.
    pub fn seen(&self) -> usize {
        self.seen
    }

    /// Those that it kept, in order.
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
        fn what_sorting_all_would_give(values in prop::collection::vec(0u8..50, 0..60), most in 0usize..20) {
            let mut best = Best::new(most);
            values.iter().for_each(|value| best.add(*value));
            let mut sorted = values.clone();
            sorted.sort_unstable();
            sorted.truncate(most);
            prop_assert_eq!(best.seen(), values.len());
            best.retain(|value| value % 2 == 0);
            let left: Vec<u8> = sorted.iter().copied().filter(|value| value % 2 == 0).collect();
            prop_assert_eq!(best.seen(), values.len() - (sorted.len() - left.len()));
            prop_assert_eq!(best.into_sorted(), left);
        }
    }
}
