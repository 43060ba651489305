//! What a misspelt word was probably meant to be.

/// The known word that differs least from `word`, upper and lower case being the same: by two letters that are missing,
/// added, changed or swapped, or by a quarter of a long word. Of several, the first.
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let length = word.chars().count();
    let most = (length / 4).max(2);
    // Letters that are missing or added count at least. Words are not compared that cannot be meant: one of 256 KB, which
    // an annotation can have, would take seconds.
    let possible = |known: &str| {
        let own = known.chars().count();
        length.abs_diff(own) * 2 < own
    };
    let distance = |known: &str| strsim::osa_distance(&word, &known.to_lowercase());
    known
        .into_iter()
        .filter(|known| possible(known))
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

    /// Comparing them letter by letter would take a minute.
    #[test]
    fn a_long_word_is_not_compared() {
        let long = "balanced".repeat(1 << 15);
        for _ in 0..1000 {
            assert_eq!(closest(&long, ["balanced", "auto"]), None);
        }
    }

    /// Up to two letters of a word of up to eleven, a quarter of a longer one; and less than half of the word that is meant.
    #[test]
    fn a_word_may_differ_by_a_quarter() {
        let cases = [
            ("lxcal-sxbset", "local-subset", true),
            ("lxcxl-sxbset", "local-subset", true),
            ("lxcxl-sxbsxt", "local-subset", false),
            ("lxcxl-sxbs", "local-subs", false),
            ("axtx", "auto", false),
            ("axto", "auto", true),
            ("rexixn", "region", true),
            ("rexxxn", "region", false),
            ("autoautoxx", "autoauto", true),
            ("autoautoxxx", "autoauto", false),
        ];
        for (word, known, meant) in cases {
            assert_eq!(closest(word, [known]), meant.then_some(known), "{word}");
        }
        assert_eq!(closest("loca", ["local", "locas"]), Some("local"), "of several, the first");
    }
}
