//! Philox4x32-10, the counter-based generator behind every random number here: a value
//! depends on its key and counter alone, never on what was drawn before.
//!
//! Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11.

const M0: u64 = 0xD251_1F53;
const M1: u64 = 0xCD9E_8D57;
/// What the key grows by each round.
const STEP: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// One block: ten rounds over `counter` under `key`; four words of 32 uniform bits.
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..10 {
        let p0 = M0 * u64::from(c0);
        let p1 = M1 * u64::from(c2);
        (c0, c1, c2, c3) = ((p1 >> 32) as u32 ^ c1 ^ k0, p1 as u32, (p0 >> 32) as u32 ^ c3 ^ k1, p0 as u32);
        k0 = k0.wrapping_add(STEP[0]);
        k1 = k1.wrapping_add(STEP[1]);
    }
    [c0, c1, c2, c3]
}

/// Blocks that [`words`] makes at once: enough to fill vector registers.
const TOGETHER: usize = 16;

/// Words of [`words`].
pub const WORDS: usize = 4 * TOGETHER;

/// The blocks with counters `(first + i, second, 0, 0)` one after the other: what `philox4x32` gives, written so that
/// compilers make vector code of it. Inlined, so that this is the vector code of the caller's instruction set.
#[inline(always)]
pub fn words(first: u32, second: u32, key: [u32; 2]) -> [u32; WORDS] {
    let mut c0: [u32; TOGETHER] = std::array::from_fn(|i| first.wrapping_add(i as u32));
    let (mut c1, mut c2, mut c3) = ([second; TOGETHER], [0; TOGETHER], [0; TOGETHER]);
    let [mut k0, mut k1] = key;
    for _ in 0..10 {
        for i in 0..TOGETHER {
            let p0 = M0 * u64::from(c0[i]);
            let p1 = M1 * u64::from(c2[i]);
            c0[i] = (p1 >> 32) as u32 ^ c1[i] ^ k0;
            c1[i] = p1 as u32;
            c2[i] = (p0 >> 32) as u32 ^ c3[i] ^ k1;
            c3[i] = p0 as u32;
        }
        k0 = k0.wrapping_add(STEP[0]);
        k1 = k1.wrapping_add(STEP[1]);
    }
    let mut out = [0; WORDS];
    for i in 0..TOGETHER {
        (out[4 * i], out[4 * i + 1], out[4 * i + 2], out[4 * i + 3]) = (c0[i], c1[i], c2[i], c3[i]);
    }
    out
}

/// A sequential reader over one key's stream, for code that draws in order.
#[derive(Debug, Clone)]
pub struct Philox {
    key: [u32; 2],
    lane: [u32; 2],
    block: u64,
    words: [u32; 4],
    used: usize,
}

impl Philox {
    /// The stream named by `text`: key and lane are the first 16 bytes of its SHA-256.
    pub fn named(text: &str) -> Self {
        use sha2::Digest;
        let d = sha2::Sha256::digest(text.as_bytes());
        let word = |i: usize| u32::from_le_bytes([d[i], d[i + 1], d[i + 2], d[i + 3]]);
        Philox { key: [word(0), word(4)], lane: [word(8), word(12)], block: 0, words: [0; 4], used: 4 }
    }

    /// The next 32 uniform bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            let counter = [self.block as u32, (self.block >> 32) as u32, self.lane[0], self.lane[1]];
            self.words = philox4x32(counter, self.key);
            self.block += 1;
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }

    /// A uniform integer in `0..n` (high 32 bits of word × n); `n` must be positive.
    pub fn below(&mut self, n: usize) -> usize {
        debug_assert!(n > 0 && n <= u32::MAX as usize);
        ((u64::from(self.next_u32()) * n as u64) >> 32) as usize
    }

    /// A uniform integer in `low..=high`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as usize) as i64
    }

    /// A uniform number in `[0, 1)` with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        let high = u64::from(self.next_u32() >> 5);
        let low = u64::from(self.next_u32() >> 6);
        ((high << 26) | low) as f64 / (1u64 << 53) as f64
    }

    /// A uniform choice from a non-empty slice.
    pub fn choose<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// A uniform permutation in place (Fisher–Yates from the end).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_reference_vectors() {
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32([1, 2, 3, 4], [5, 6]), [0xc0c8_39bc, 0x889c_87c5, 0x6198_6739, 0x2d46_23d0]);
    }

    #[test]
    fn many_blocks_are_the_single_ones() {
        for (first, second, key) in [(0, 0, [0, 0]), (77, 9_999, [5, 6]), (u32::MAX - 3, 3, [u32::MAX, 1])] {
            let single =
                (0..TOGETHER as u32).flat_map(|i| philox4x32([first.wrapping_add(i), second, 0, 0], key));
            assert_eq!(words(first, second, key).to_vec(), single.collect::<Vec<_>>());
        }
    }

    #[test]
    fn named_streams_differ_and_repeat() {
        let draw = |name: &str| {
            let mut p = Philox::named(name);
            (0..9).map(|_| p.next_u32()).collect::<Vec<_>>()
        };
        assert_eq!(draw("a"), draw("a"));
        assert_ne!(draw("a"), draw("b"));
    }

    #[test]
    fn bounds_hold() {
        let mut p = Philox::named("bounds");
        for _ in 0..1000 {
            assert!(p.below(7) < 7);
            assert!((0.0..1.0).contains(&p.unit()));
            assert!((-3..=4).contains(&p.between(-3, 4)));
        }
    }
}
