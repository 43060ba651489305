//! What a misspelt word was probably meant to be.

/// The known word that differs least from `word`, upper and lower case being the same: by two letters that are missing,
/// added, changed or swapped, or by a quarter of a long word. Of several, the first.
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let most = (word.chars().count() / 4).max(2);
    let distance = |known: &str| strsim::osa_distance(&word, &known.to_lowercase());
    known
        .into_iter()
        .map(|known| (distance(known), known))
        // Little is left of a short word that differs in two letters.
        .filter(|(distance, known)| *distance <= most && distance * 2 < known.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_different_word_is_meant() {
        let known = ["auto", "balanced", "local-shared", "local-subset", "Region"];
        let cases = [
            ("balancd", Some("balanced")),
            ("Balanced", Some("balanced")),
            ("blaanced", Some("balanced")),
            ("regoin", Some("Region")),
            ("local-shard", Some("local-shared")),
            ("aut", Some("auto")),
            ("au", None),
            ("", None),
            ("something-else", None),
        ];
        for (word, expected) in cases {
            assert_eq!(closest(word, known), expected, "{word}");
        }
    }
}
