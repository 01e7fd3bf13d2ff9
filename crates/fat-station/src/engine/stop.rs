//! Stop strings in a stream of text: what may be shown at once, what must wait, and where it ends.
//! End-of-sequence tokens are the session's matter; this file sees only text.

/// Holds text back while it could still become a stop string.
#[derive(Debug)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
    stopped: bool,
}

/// What a piece of text leads to.
#[derive(Debug, PartialEq, Eq)]
pub enum StopOutcome {
    /// This much may be shown; the rest waits.
    Continue(String),
    /// A stop string came: this is the last text, and the stop string is not in it.
    Stop(String),
}

impl StopMatcher {
    /// A matcher for `stops`; empty strings are left out, as they would stop at once.
    #[must_use]
    pub fn new(stops: &[String]) -> Self {
        let stops = stops
            .iter()
            .filter(|stop| !stop.is_empty())
            .cloned()
            .collect();
        Self {
            stops,
            held: String::new(),
            stopped: false,
        }
    }

    /// Takes the next piece of text.
    pub fn push(&mut self, piece: String) -> StopOutcome {
        if self.held.is_empty() {
            self.held = piece;
        } else {
            self.held.push_str(&piece);
        }
        let first = self
            .stops
            .iter()
            .filter_map(|stop| self.held.find(stop.as_str()))
            .min();
        if let Some(at) = first {
            self.stopped = true;
            self.held.truncate(at);
            return StopOutcome::Stop(std::mem::take(&mut self.held));
        }
        let waiting = self
            .stops
            .iter()
            .map(|stop| longest_tail(&self.held, stop))
            .max()
            .unwrap_or(0);
        let tail = self.held.split_off(self.held.len() - waiting);
        StopOutcome::Continue(std::mem::replace(&mut self.held, tail))
    }

    /// Whether a stop string came.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// The text that waited for a stop string that never came.
    #[must_use]
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Length in bytes of the longest end of `text` that begins `stop`.
fn longest_tail(text: &str, stop: &str) -> usize {
    // Prefixes end on the stop string's character borders, so a tail never splits a character.
    stop.char_indices()
        .map(|(at, _)| at)
        .rev()
        .find(|&length| text.ends_with(&stop[..length]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
        let mut matcher = StopMatcher::new(&stops);
        let mut shown = Vec::new();
        for piece in pieces {
            match matcher.push((*piece).to_owned()) {
                StopOutcome::Continue(text) => shown.push(text),
                StopOutcome::Stop(text) => {
                    shown.push(text);
                    return (shown, true);
                }
            }
        }
        shown.push(matcher.finish());
        (shown, false)
    }

    #[test]
    fn a_stop_across_pieces_never_leaks_its_beginning() {
        let (shown, stopped) = stream(&["beta gamma"], &["alpha be", "ta", " gam", "ma delta"]);
        assert!(stopped);
        assert_eq!(shown, ["alpha ", "", "", ""]);
    }

    #[test]
    fn a_stop_that_never_completes_is_shown_in_the_end() {
        let (shown, stopped) = stream(&["beta gamma"], &["alpha beta", " gam"]);
        assert!(!stopped);
        assert_eq!(shown, ["alpha ", "", "beta gam"]);
    }

    #[test]
    fn a_false_start_is_released_and_the_next_one_found() {
        let (shown, stopped) = stream(&["aab"], &["aa", "ab", "x"]);
        assert!(stopped);
        assert_eq!(shown.concat(), "a");
    }

    #[test]
    fn the_earliest_of_several_stops_wins_and_empty_ones_do_nothing() {
        let (shown, stopped) = stream(&["", "three", "two"], &["one two three"]);
        assert!(stopped);
        assert_eq!(shown.concat(), "one ");
        assert_eq!(
            stream(&[""], &["x"]),
            (vec!["x".into(), String::new()], false)
        );
    }

    #[test]
    fn characters_of_several_bytes_are_never_cut() {
        let (shown, stopped) = stream(&["é🙂"], &["caf", "é", "s é", "🙂!"]);
        assert!(stopped);
        assert_eq!(shown.concat(), "cafés ");
    }
}
