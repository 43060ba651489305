//! All randomness of the server. Tokens come from the cryptographic generator of the TLS library; uids and names
//! of objects and the timing of faults need no secrecy and use `fastrand`, so that a simulation can seed them.

use rustls::crypto::ring::default_provider;

/// Characters of generated names: `alphanums` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apimachinery/pkg/util/rand/rand.go>.
/// There are no vowels, so that no words come out.
const NAME_CHARACTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if default_provider().secure_random.fill(&mut bytes).is_err() {
        // The kernel's generator does not fail once it is seeded. Without it, tokens would be
        // guessable.
        std::process::abort();
    }
    bytes
}

/// A number from 0 (inclusive) to 1 (exclusive).
pub(crate) fn fraction() -> f64 {
    fastrand::f64()
}

/// A bearer token of 256 bits, in hexadecimal.
pub(crate) fn token() -> String {
    bytes::<32>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The five characters that follow `generateName`.
pub(crate) fn name_suffix() -> String {
    let character = |_| fastrand::choice(NAME_CHARACTERS).copied().map(char::from);
    (0..5).filter_map(character).collect()
}

/// A UUID of version 4 for `metadata.uid`.
pub(crate) fn uid() -> String {
    let random = fastrand::u128(..).to_ne_bytes();
    uuid::Builder::from_random_bytes(random).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_of_version_four() {
        let uid = uid();
        let lengths: Vec<usize> = uid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{uid}");
        assert_eq!(&uid[14..15], "4");
        assert!("89ab".contains(&uid[19..20]), "{uid}");
    }
}
