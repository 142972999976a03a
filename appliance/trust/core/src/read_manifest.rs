//! The read manifest of a run (SPEC REC-2): which paths at which commit, which ranges, which content; never content, never each call.
//!
//! Bounded: over [`RANGES_MAX`] ranges a file counts as read in whole, over [`ENTRIES_MAX`] files further ones are only counted. Both err on the
//! side of "has read".

use std::collections::{BTreeMap, BTreeSet};

use nas_types::object::Oid;
use nas_types::path::TreePath;

/// Most separate ranges kept of one file.
pub const RANGES_MAX: usize = 64;
/// Most entries of one run.
pub const ENTRIES_MAX: usize = 100_000;

const DIGEST_CONTEXT: &str = "agent-nas 2026-11 read manifest v1";

/// Which version of a file was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Version {
    /// The commit the view stood on; `None` before the first.
    pub commit: Option<Oid>,
    /// Content id in that commit; `None` for what the run wrote itself and has not committed.
    pub content: Option<Oid>,
}

/// Which bytes were read.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ranges {
    /// The whole file.
    Whole,
    /// Half-open byte ranges `[start, end)`, sorted, neither touching nor overlapping.
    Parts(Vec<(u64, u64)>),
}

impl Ranges {
    /// Adds `[start, end)`. Returns whether it says something new.
    fn add(&mut self, start: u64, end: u64) -> bool {
        let Self::Parts(parts) = self else { return false };
        if start >= end {
            return false;
        }
        // The usual case: reading on, or reading the same again.
        if let Some(last) = parts.last_mut()
            && (last.0..=last.1).contains(&start)
        {
            let grows = end > last.1;
            last.1 = last.1.max(end);
            return grows;
        }
        let from = parts.partition_point(|p| p.1 < start);
        if parts.get(from).is_some_and(|p| p.0 <= start && end <= p.1) {
            return false;
        }
        let upto = parts.partition_point(|p| p.0 <= end);
        let merged = parts[from..upto].iter().fold((start, end), |m, p| (m.0.min(p.0), m.1.max(p.1)));
        parts.splice(from..upto, [merged]);
        if parts.len() > RANGES_MAX {
            *self = Self::Whole;
        }
        true
    }
}

/// One line of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ManifestEntry {
    /// Which file.
    pub path: TreePath,
    /// Which version.
    #[serde(flatten)]
    pub version: Version,
    /// Which bytes.
    pub ranges: Ranges,
}

/// What a run has read so far. Equal when it lists the same reads, whether stored or not.
#[derive(Debug, Clone, Default)]
pub struct ReadManifest {
    files: BTreeMap<TreePath, Vec<(Version, Ranges)>>,
    entries: usize,
    unlisted: u64,
    /// Files with lines that changed since [`take_changed`](Self::take_changed).
    changed: BTreeSet<TreePath>,
}

impl ReadManifest {
    /// Notes that `length` bytes at `offset` were read. Allocates only for what is new.
    pub fn note(&mut self, path: &TreePath, version: Version, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        self.touch(path, version, |ranges| ranges.add(offset, end));
    }

    /// Notes that a file was read in whole.
    pub fn note_whole(&mut self, path: &TreePath, version: Version) {
        self.touch(path, version, |ranges| std::mem::replace(ranges, Ranges::Whole) != Ranges::Whole);
    }

    /// The lines that changed since the last call: what is still to be stored.
    pub fn take_changed(&mut self) -> Vec<ManifestEntry> {
        let changed = std::mem::take(&mut self.changed);
        let lines = |path: TreePath| {
            let versions = self.files.get(&path).map(Vec::as_slice).unwrap_or_default();
            let line = |(version, ranges): &(Version, Ranges)| ManifestEntry {
                path: path.clone(),
                version: *version,
                ranges: ranges.clone(),
            };
            versions.iter().map(line).collect::<Vec<_>>()
        };
        changed.into_iter().flat_map(lines).collect()
    }

    /// Gives back lines that could not be stored, so that the next [`take_changed`](Self::take_changed) has them again.
    pub fn untake(&mut self, lines: Vec<ManifestEntry>) {
        self.changed.extend(lines.into_iter().map(|line| line.path));
    }

    /// Takes a stored line back in (after a restart). It counts as stored.
    pub fn restore(&mut self, entry: ManifestEntry) {
        let ManifestEntry { path, version, ranges } = entry;
        let was_changed = self.changed.contains(&path);
        self.touch(&path, version, |have| match ranges {
            Ranges::Whole => std::mem::replace(have, Ranges::Whole) != Ranges::Whole,
            Ranges::Parts(parts) => parts.into_iter().fold(false, |new, (start, end)| have.add(start, end) || new),
        });
        if !was_changed {
            self.changed.remove(&path);
        }
    }

    /// Takes back the count of a stored manifest (after a restart).
    pub fn restore_unlisted(&mut self, reads: u64) {
        self.unlisted = self.unlisted.saturating_add(reads);
    }

    /// Applies `change` to the ranges of a file's version, made when it is new. Allocates only for what is new.
    fn touch(&mut self, path: &TreePath, version: Version, change: impl FnOnce(&mut Ranges) -> bool) {
        if let Some((_, ranges)) =
            self.files.get_mut(path).and_then(|all| all.iter_mut().find(|(have, _)| *have == version))
        {
            if change(ranges) && !self.changed.contains(path) {
                self.changed.insert(path.clone());
            }
            return;
        }
        if self.entries >= ENTRIES_MAX {
            self.unlisted = self.unlisted.saturating_add(1);
            return;
        }
        self.entries += 1;
        let mut ranges = Ranges::Parts(Vec::new());
        change(&mut ranges);
        let versions = self.files.entry(path.clone()).or_default();
        let at = versions.partition_point(|(have, _)| *have < version);
        versions.insert(at, (version, ranges));
        self.changed.insert(path.clone());
    }

    /// The lines, by path and version.
    pub fn entries(&self) -> impl Iterator<Item = ManifestEntry> + '_ {
        self.files.iter().flat_map(|(path, versions)| {
            versions.iter().map(|(version, ranges)| ManifestEntry {
                path: path.clone(),
                version: *version,
                ranges: ranges.clone(),
            })
        })
    }

    /// Number of lines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Nothing was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Number of different files.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Reads of files beyond [`ENTRIES_MAX`]. Not 0: the list is not complete, and says so.
    #[must_use]
    pub fn unlisted(&self) -> u64 {
        self.unlisted
    }

    /// Digest over all lines: what a commit's `Read-Manifest:` trailer and a gate card name.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key(DIGEST_CONTEXT);
        let put_oid = |hasher: &mut blake3::Hasher, oid: &Option<Oid>| {
            match oid {
                Some(oid) => hasher.update(&[1]).update(&oid.0),
                None => hasher.update(&[0]),
            };
        };
        hasher.update(&(self.entries as u64).to_le_bytes());
        hasher.update(&self.unlisted.to_le_bytes());
        for (path, versions) in &self.files {
            for (version, ranges) in versions {
                hasher.update(&(path.as_bytes().len() as u64).to_le_bytes()).update(path.as_bytes());
                put_oid(&mut hasher, &version.commit);
                put_oid(&mut hasher, &version.content);
                match ranges {
                    Ranges::Whole => {
                        hasher.update(&[1]);
                    }
                    Ranges::Parts(parts) => {
                        hasher.update(&[0]).update(&(parts.len() as u64).to_le_bytes());
                        for (start, end) in parts {
                            hasher.update(&start.to_le_bytes()).update(&end.to_le_bytes());
                        }
                    }
                }
            }
        }
        *hasher.finalize().as_bytes()
    }
}

impl PartialEq for ReadManifest {
    fn eq(&self, other: &Self) -> bool {
        self.files == other.files && self.unlisted == other.unlisted
    }
}

impl Eq for ReadManifest {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn p(text: &str) -> TreePath {
        TreePath::parse(text).unwrap()
    }
    fn v(n: u8) -> Version {
        Version { commit: Some(Oid([n; 20])), content: Some(Oid([n; 20])) }
    }

    proptest! {
        /// Goal: the ranges are exactly the bytes that were read, merged, or the whole file.
        #[test]
        fn ranges_as_bits(reads in prop::collection::vec((0u64..2000, 0u64..20), 1..200)) {
            let mut m = ReadManifest::default();
            let mut bits = vec![false; 2020];
            for (offset, length) in &reads {
                m.note(&p("/f"), v(1), *offset, *length);
                for at in *offset..offset + length { bits[usize::try_from(at).unwrap()] = true; }
            }
            let entry = m.entries().next().unwrap();
            match &entry.ranges {
                Ranges::Whole => {
                    // Only when there really were many separate ranges at some moment.
                    prop_assert!(reads.len() > RANGES_MAX);
                }
                Ranges::Parts(parts) => {
                    prop_assert!(parts.len() <= RANGES_MAX);
                    prop_assert!(parts.windows(2).all(|w| w[0].1 < w[1].0));
                    for (at, want) in bits.iter().enumerate() {
                        let at = at as u64;
                        prop_assert_eq!(parts.iter().any(|(s, e)| (*s..*e).contains(&at)), *want);
                    }
                }
            }
            // Storing and restoring keeps content and digest.
            let mut again = ReadManifest::default();
            for entry in m.entries() {
                let line = serde_json::to_string(&entry).unwrap();
                again.restore(serde_json::from_str(&line).unwrap());
            }
            prop_assert_eq!(again.digest(), m.digest());
            prop_assert!(again.take_changed().is_empty());
        }
    }

    /// Goal: too many ranges become the whole file, never fewer bytes than were read.
    #[test]
    fn many_ranges_become_whole() {
        let mut m = ReadManifest::default();
        for n in 0..=RANGES_MAX as u64 {
            m.note(&p("/f"), v(1), n * 10, 1);
        }
        assert_eq!(m.entries().next().unwrap().ranges, Ranges::Whole);
    }

    /// Goal: storing only what changed, at any moments, stores everything; reading the same again changes nothing.
    #[test]
    fn changed_lines() {
        let mut m = ReadManifest::default();
        let mut stored = std::collections::BTreeMap::new();
        for n in 0..500u64 {
            m.note(&p(&format!("/{}", n % 7)), v(u8::try_from(n % 3).unwrap()), n * 13 % 101, n % 5);
            if n % 11 == 0 {
                stored.extend(m.take_changed().into_iter().map(|e| ((e.path.clone(), e.version), e)));
            }
        }
        let lost = m.take_changed();
        assert!(!lost.is_empty());
        m.untake(lost);
        stored.extend(m.take_changed().into_iter().map(|e| ((e.path.clone(), e.version), e)));
        assert_eq!(stored.into_values().collect::<Vec<_>>(), m.entries().collect::<Vec<_>>());
        m.note(&p("/0"), v(0), 13, 1);
        let settled = m.take_changed().len();
        m.note(&p("/0"), v(0), 13, 1);
        assert!(settled <= 3 && m.take_changed().is_empty());
    }

    /// Goal: versions are kept apart, and the digest changes with each part.
    #[test]
    fn digest_depends_on_all() {
        let mut m = ReadManifest::default();
        let mut seen = vec![m.digest()];
        let mut step = |m: &ReadManifest| {
            assert!(!seen.contains(&m.digest()));
            seen.push(m.digest());
        };
        m.note(&p("/f"), v(1), 0, 10);
        step(&m);
        m.note(&p("/f"), v(2), 0, 10);
        step(&m);
        m.note(&p("/f"), Version { commit: Some(Oid([1; 20])), content: None }, 0, 10);
        step(&m);
        m.note(&p("/g"), v(1), 0, 10);
        step(&m);
        m.note(&p("/g"), v(1), 10, 1);
        step(&m);
        m.note_whole(&p("/g"), v(1));
        step(&m);
        m.restore_unlisted(1);
        step(&m);
        assert_eq!((m.len(), m.files(), m.unlisted()), (4, 2, 1));
    }
}
