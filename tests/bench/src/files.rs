//! What the trees hold: text of a kilobyte that differs from file to file, a hundred files a directory, and one directory of many files.

use std::fmt::Write as _;
use std::ops::Range;

/// Files of one directory, and directories of one directory.
const FAN: usize = 100;
/// From this number on, all files are in one directory.
pub(crate) const FLAT: usize = FAN * 10_000_000;

/// Path of file `n`, relative to the root of the tree.
pub(crate) fn path(n: usize) -> String {
    if let Some(n) = n.checked_sub(FLAT) {
        return format!("flat/file{n:05}.txt");
    }
    let dir = n / FAN;
    format!("part{:03}/d{:02}/file{:02}.txt", dir / FAN, dir % FAN, n % FAN)
}

/// The directory of file `n`.
pub(crate) fn dir(n: usize) -> String {
    if n >= FLAT {
        return "flat".to_owned();
    }
    let dir = n / FAN;
    format!("part{:03}/d{:02}", dir / FAN, dir % FAN)
}

/// Content of file `n` in its `version`.
pub(crate) fn content(n: usize, version: usize) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "lease", "branch", "record", "gate", "tree", "merge", "run", "file", "owner", "night", "draft", "notes", "why",
        "path", "read", "time",
    ];
    // A small generator: the same files in every run, and no two alike.
    let mut state = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((version as u64) << 40) | 1;
    let mut text = format!("file {n}, version {version}\n");
    while text.len() < 1000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = WORDS[usize::try_from(state >> 60).unwrap_or_default()];
        let _ = write!(text, "{word}{}", if state.is_multiple_of(9) { '\n' } else { ' ' });
        if state.is_multiple_of(5) {
            let _ = write!(text, "{:x} ", state >> 32);
        }
    }
    text.into_bytes()
}

/// Which files change when `changed` of `files` do: spread over the whole tree.
pub(crate) fn spread(files: Range<usize>, changed: usize) -> impl Iterator<Item = usize> {
    let step = (files.len() / changed.max(1)).max(1);
    files.step_by(step).take(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Goal: no two files share a path or a content, and the asked-for number changes.
    #[test]
    fn all_different() {
        let files = || (0..20_000).chain(FLAT..FLAT + 100);
        let paths: BTreeSet<_> = files().map(path).collect();
        assert_eq!(paths.len(), 20_100);
        assert!(files().all(|n| path(n).starts_with(&dir(n))));
        let contents: BTreeSet<_> = (0..500).flat_map(|n| [content(n, 0), content(n, 1)]).collect();
        assert_eq!(contents.len(), 1000);
        assert_eq!(spread(0..100_000, 10_000).count(), 10_000);
        assert_eq!(spread(FLAT..FLAT + 5_000, 1).collect::<Vec<_>>(), [FLAT]);
    }
}
