//! A list that is short mostly.

/// A list whose first two elements need no memory of their own.
#[derive(Debug)]
pub struct Few<T> {
    first: [Option<T>; 2],
    others: Vec<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Few {
            first: [None, None],
            others: Vec::new(),
        }
    }
}

impl<T> Few<T> {
    #[inline]
    pub fn push(&mut self, element: T) {
        match &mut self.first {
            [place @ None, _] | [_, place @ None] => *place = Some(element),
            _ => self.others.push(element),
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first[0].is_none()
    }

    pub fn len(&self) -> usize {
        self.first.iter().flatten().count() + self.others.len()
    }

    #[inline]
    pub fn clear(&mut self) {
        self.first = [None, None];
        self.others.clear();
    }

    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().flatten().chain(&self.others)
    }

    /// Keeps those that please.
    pub fn retain(&mut self, mut pleases: impl FnMut(&T) -> bool) {
        self.others.retain(&mut pleases);
        for place in self.first.iter_mut().rev() {
            if !place.as_ref().is_some_and(&mut pleases) {
                *place = self.others.pop();
            }
        }
        if self.first[0].is_none() {
            self.first.swap(0, 1);
        }
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<
        std::iter::Flatten<std::array::IntoIter<Option<T>, 2>>,
        std::vec::IntoIter<T>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().flatten().chain(self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_and_go() {
        for count in 0..6 {
            for keeps in 0..1_u32 << count {
                let mut few = Few::default();
                for element in 0..count {
                    assert_eq!(few.len(), element);
                    few.push(element);
                }
                few.retain(|&element| keeps >> element & 1 != 0);
                assert_eq!(few.len(), keeps.count_ones() as usize);
                assert_eq!(few.is_empty(), keeps == 0);
                few.push(count);
                let mut left: Vec<_> = few.iter().copied().collect();
                left.sort_unstable();
                let wanted = (0..=count).filter(|&at| at == count || keeps >> at & 1 != 0);
                assert_eq!(left, wanted.collect::<Vec<_>>());
                assert_eq!(few.into_iter().count(), left.len());
            }
        }
        let mut few = Few::default();
        few.push(1);
        few.clear();
        assert!(few.is_empty());
    }
}
