//! Texts of files that a terminal may show.

/// Whether a terminal obeys a character: it changes the terminal's state, or where or in which direction text is written.
pub(crate) fn is_obeyed(letter: char) -> bool {
    let changes_direction = matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    letter.is_control() || changes_direction
}

/// Greatest length of a text that [`shown`] keeps.
const LETTERS_MAX: usize = 1_024;

/// A text without the characters that a terminal obeys, cut to a length that one line may have.
pub(crate) fn shown(text: &str) -> String {
    let letters = text.chars().filter(|letter| !is_obeyed(*letter));
    letters.take(LETTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_no_shown_character() {
        let text = "a\u{1b}[2J\n\u{61c}\u{200f}\u{202e}\u{2028}\u{2066}\u{85}b\u{e9}";
        assert_eq!(shown(text), "a[2Jb\u{e9}");
    }
}
