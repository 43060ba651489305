//! FNV-1a hashes: short, and the same for ever, which the standard library's hasher does not promise.
//!
//! Constants: <http://www.isthe.com/chongo/tech/comp/fnv/>.

use std::fmt;

/// The hash with 64 bits.
pub fn fnv64(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// The hash with 128 bits of text that is formatted into it.
#[derive(Clone, Copy, Debug)]
pub struct Fnv128(u128);

impl Default for Fnv128 {
    fn default() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Fnv128 {
    /// The hash of everything written so far.
    pub fn finish(self) -> u128 {
        self.0
    }
}

impl fmt::Write for Fnv128 {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        const PRIME: u128 = (1 << 88) + 0x13b;
        for byte in text.bytes() {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(PRIME);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    /// Test vectors of the authors.
    #[test]
    fn hashes_are_those_of_the_authors() {
        assert_eq!(fnv64(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv64(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv64(b"foobar"), 0x8594_4171_f739_67e8);
        let mut hash = Fnv128::default();
        write!(hash, "a").unwrap();
        assert_eq!(hash.finish(), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}
