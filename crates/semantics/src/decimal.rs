//! Short texts of numbers, such as Content-Range, put together from their end: that is the order in
//! which the digits of a number come.
//!
//! What there is no room for is left out: whoever makes one knows how long it may become, and a
//! number has at most [`DIGITS`].

/// The most digits that a number of 64 bits has.
pub const DIGITS: usize = 20;

/// The digits of the numbers below a hundred.
const PAIRS: [[u8; 2]; 100] = build_pairs();

const fn build_pairs() -> [[u8; 2]; 100] {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
}

/// A text of at most `LEN` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Backwards<const LEN: usize> {
    text: [u8; LEN],
    start: usize,
}

impl<const LEN: usize> Backwards<LEN> {
    /// An empty text.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            text: [0; LEN],
            start: LEN,
        }
    }

    /// Puts bytes before what there is.
    #[inline]
    pub fn prepend<const COUNT: usize>(&mut self, bytes: &[u8; COUNT]) {
        let room = self.text.get_mut(..self.start);
        if let Some(place) = room.and_then(|room| room.last_chunk_mut()) {
            *place = *bytes;
            self.start -= COUNT;
        }
    }

    /// Puts a number before what there is.
    #[inline]
    pub fn prepend_number(&mut self, number: u64) {
        // A room that shrinks is checked once for each pair.
        let mut room = self.text.get_mut(..self.start).unwrap_or_default();
        let mut left = number;
        while left >= 10 {
            let Some((rest, place)) = std::mem::take(&mut room).split_last_chunk_mut() else {
                return;
            };
            *place = PAIRS[(left % 100) as usize];
            left /= 100;
            room = rest;
        }
        // The first of an odd count of digits.
        if left > 0 || number == 0 {
            let Some((rest, place)) = std::mem::take(&mut room).split_last_chunk_mut() else {
                return;
            };
            *place = [b'0' + (left % 10) as u8];
            room = rest;
        }
        self.start = room.len();
    }

    /// The text.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.text.get(self.start..).unwrap_or_default()
    }
}

impl<const LEN: usize> Default for Backwards<LEN> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are() {
        let mut numbers = vec![0, u64::MAX];
        let mut power: u64 = 1;
        while let Some(next) = power.checked_mul(10) {
            numbers.extend([power - 1, power, power + 1, power * 3 + power / 7]);
            power = next;
        }
        for number in numbers {
            let mut text = Backwards::<DIGITS>::new();
            text.prepend_number(number);
            assert_eq!(text.as_bytes(), number.to_string().as_bytes());
        }
    }

    #[test]
    fn parts_stand_in_the_order_of_the_text_and_end_at_its_room() {
        let mut text = Backwards::<6>::new();
        text.prepend_number(12);
        text.prepend(b"-");
        text.prepend_number(7);
        assert_eq!(text.as_bytes(), b"7-12");
        text.prepend(b"long");
        text.prepend_number(345);
        assert_eq!(text.as_bytes(), b"7-12");
    }
}
