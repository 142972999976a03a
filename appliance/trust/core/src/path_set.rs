//! The paths of a lease (SPEC LEASE `paths[globs]`, DESIGN §4): subtrees and exact paths, nothing else, so that a
//! check is a few binary searches without allocation and one lease can be compared with another as a set.

use std::cmp::Ordering;
use std::fmt::Write as _;

use nas_types::path::{PathError, TreePath, write_escaped};

/// Most globs of one lease.
pub const PATHS_MAX: usize = 256;

/// Why a text is no path of a lease.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathSetError {
    /// A glob other than a trailing `/**`.
    #[error(
        "'{glob}': a lease names '/dir/**' (a directory with all that is in it) or one exact path; \
         other wildcards are not supported, write %2A, %3F, %5B or %7B for a literal '*', '?', '[' or '{{'"
    )]
    Wildcard {
        /// The text given.
        glob: String,
    },
    /// Not a path.
    #[error("'{glob}' is not a path of a tree: {why}")]
    Path {
        /// The text given.
        glob: String,
        /// What is wrong with it.
        why: PathError,
    },
    /// No path at all.
    #[error("a lease needs at least one path")]
    Empty,
    /// Over [`PATHS_MAX`].
    #[error("a lease has at most {PATHS_MAX} paths, {count} were given")]
    TooMany {
        /// How many were given.
        count: usize,
    },
}

/// What a run may know of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Visibility {
    /// In the lease.
    Full,
    /// A directory on the way to something in the lease: it shows only the names that lead there.
    Ancestor,
    /// Not to be seen: `ENOENT`, absent from listings (SPEC MOUNT-3, MOUNT-5).
    Hidden,
}

/// A set of paths. Kept minimal (no element lies within a subtree of the set), so equal sets are equal values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathSet {
    /// Whole subtrees, their root included; sorted by bytes.
    subtrees: Vec<TreePath>,
    /// Exact paths; sorted by bytes.
    exact: Vec<TreePath>,
}

impl PathSet {
    /// Compiles the globs of a lease: `/dir/**` is the directory and everything in it, `/dir/file` that path only.
    pub fn from_globs<S: AsRef<str>>(globs: &[S]) -> Result<Self, PathSetError> {
        if globs.is_empty() {
            return Err(PathSetError::Empty);
        }
        if globs.len() > PATHS_MAX {
            return Err(PathSetError::TooMany { count: globs.len() });
        }
        let (mut subtrees, mut exact) = (Vec::new(), Vec::new());
        for glob in globs {
            let glob = glob.as_ref();
            let (base, into) = match glob.strip_suffix("/**") {
                Some("") => ("/", &mut subtrees),
                Some(base) => (base, &mut subtrees),
                None => (glob, &mut exact),
            };
            let shown = || glob.chars().take(256).collect::<String>();
            if base.contains(['*', '?', '[', '{']) {
                return Err(PathSetError::Wildcard { glob: shown() });
            }
            // `TreePath` forgives a trailing '/', but `/a//**` would then mean `/a/**`: refuse what looks like a typo.
            if base.len() > 1 && base.ends_with('/') {
                return Err(PathSetError::Path { glob: shown(), why: PathError::Empty });
            }
            let path = if base == "/" { Ok(TreePath::root()) } else { TreePath::parse(base) };
            into.push(path.map_err(|why| PathSetError::Path { glob: shown(), why })?);
        }
        Ok(Self::minimal(subtrees, exact))
    }

    /// The whole tree.
    #[must_use]
    pub fn everything() -> Self {
        Self { subtrees: vec![TreePath::root()], exact: Vec::new() }
    }

    fn minimal(mut subtrees: Vec<TreePath>, mut exact: Vec<TreePath>) -> Self {
        // Shorter first, so that what is already covered is dropped.
        subtrees.sort_unstable_by(|a, b| a.as_bytes().len().cmp(&b.as_bytes().len()).then_with(|| a.cmp(b)));
        let mut kept = Self::default();
        for path in subtrees {
            if !kept.covers_bytes(path.as_bytes()) {
                let at = kept.subtrees.partition_point(|e| *e < path);
                kept.subtrees.insert(at, path);
            }
        }
        exact.retain(|path| !kept.covers_bytes(path.as_bytes()));
        exact.sort_unstable();
        exact.dedup();
        kept.exact = exact;
        kept
    }

    /// The globs this set was made of, in minimal form; [`from_globs`](Self::from_globs) gives the same set back.
    #[must_use]
    pub fn to_globs(&self) -> Vec<String> {
        let subtree = |p: &TreePath| if p.is_root() { "/**".to_owned() } else { glob_text(p) + "/**" };
        self.subtrees.iter().map(subtree).chain(self.exact.iter().map(glob_text)).collect()
    }

    /// Is `path` in the set?
    #[must_use]
    pub fn allows(&self, path: &TreePath) -> bool {
        self.allows_bytes(path.as_bytes())
    }

    /// [`allows`](Self::allows) for the bytes of a legal relative path (components joined by `/`, root empty).
    #[must_use]
    pub fn allows_bytes(&self, path: &[u8]) -> bool {
        self.covers_bytes(path) || find(&self.exact, path)
    }

    /// Is `path` in the set together with everything that is or may come below it? (For renaming a directory.)
    #[must_use]
    pub fn covers(&self, path: &TreePath) -> bool {
        self.covers_bytes(path.as_bytes())
    }

    /// [`covers`](Self::covers) for the bytes of a legal relative path.
    #[must_use]
    pub fn covers_bytes(&self, path: &[u8]) -> bool {
        if self.subtrees.is_empty() {
            return false;
        }
        // The root, each ancestor, and the path itself.
        find(&self.subtrees, b"")
            || (0..path.len()).filter(|at| path[*at] == b'/').any(|at| find(&self.subtrees, &path[..at]))
            || find(&self.subtrees, path)
    }

    /// What a run may know of `path`.
    #[must_use]
    pub fn visibility(&self, path: &TreePath) -> Visibility {
        self.visibility_bytes(path.as_bytes())
    }

    /// [`visibility`](Self::visibility) for the bytes of a legal relative path.
    #[must_use]
    pub fn visibility_bytes(&self, path: &[u8]) -> Visibility {
        if self.allows_bytes(path) {
            Visibility::Full
        } else if leads_below(&self.subtrees, path, None) || leads_below(&self.exact, path, None) {
            Visibility::Ancestor
        } else {
            Visibility::Hidden
        }
    }

    /// Does the listing of `dir` show `name`? (Full or partly.) Both are legal bytes.
    #[must_use]
    pub fn child_visible(&self, dir: &[u8], name: &[u8]) -> bool {
        // Once `dir` is in no subtree, only elements at or below the child can make it visible.
        let at_or_below = |set: &[TreePath]| find_child(set, dir, name) || leads_below(set, dir, Some(name));
        self.covers_bytes(dir) || at_or_below(&self.subtrees) || at_or_below(&self.exact)
    }

    /// Is every path of `self` a path of `other`? (SPEC LEASE-2.)
    #[must_use]
    pub fn is_subset_of(&self, other: &Self) -> bool {
        self.subtrees.iter().all(|p| other.covers(p)) && self.exact.iter().all(|p| other.allows(p))
    }

    /// The subtrees, sorted.
    #[must_use]
    pub fn subtrees(&self) -> &[TreePath] {
        &self.subtrees
    }

    /// The exact paths outside the subtrees, sorted.
    #[must_use]
    pub fn exact(&self) -> &[TreePath] {
        &self.exact
    }
}

/// Is `path` an element of the sorted `set`?
fn find(set: &[TreePath], path: &[u8]) -> bool {
    set.binary_search_by(|e| e.as_bytes().cmp(path)).is_ok()
}

/// The bytes of `dir/name`, or of `dir` without a name, lazily.
fn joined<'a>(dir: &'a [u8], name: Option<&'a [u8]>) -> impl Iterator<Item = u8> + 'a {
    let slash: &[u8] = if dir.is_empty() || name.is_none() { b"" } else { b"/" };
    dir.iter().chain(slash).chain(name.unwrap_or_default()).copied()
}

/// Is `dir/name` an element of the sorted `set`?
fn find_child(set: &[TreePath], dir: &[u8], name: &[u8]) -> bool {
    set.binary_search_by(|e| e.as_bytes().iter().copied().cmp(joined(dir, Some(name)))).is_ok()
}

/// Does an element of the sorted `set` lie strictly below `dir/name` (or `dir`)?
fn leads_below(set: &[TreePath], dir: &[u8], name: Option<&[u8]>) -> bool {
    if dir.is_empty() && name.is_none() {
        return set.iter().any(|e| !e.is_root());
    }
    // All elements that start with the prefix `path/` are neighbours in byte order, beginning where `path/` would be.
    let prefix = || joined(dir, name).chain(*b"/");
    let at = set.partition_point(|e| e.as_bytes().iter().copied().cmp(prefix()) == Ordering::Less);
    set.get(at).is_some_and(|e| {
        let mut bytes = e.as_bytes().iter().copied();
        prefix().all(|want| bytes.next() == Some(want))
    })
}

fn glob_text(path: &TreePath) -> String {
    let mut text = String::from("/");
    write_escaped(path.as_bytes(), &mut text).expect("because writing to a String cannot fail");
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | '{') {
            write!(out, "%{:02X}", u32::from(c)).expect("because writing to a String cannot fail");
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(globs: &[&str]) -> PathSet {
        PathSet::from_globs(globs).unwrap()
    }
    fn p(text: &str) -> TreePath {
        TreePath::parse(text).unwrap()
    }

    /// Goal: the lease of the overnight run allows its directory and hides the look-alike next to it.
    #[test]
    fn subtree_and_look_alike() {
        let s = set(&["/shared/launch/**", "/agents/cleo/AGENTS.md"]);
        assert!(s.allows(&p("/shared/launch")));
        assert!(s.allows(&p("/shared/launch/a/b")));
        assert!(!s.allows(&p("/shared/launch-evil/a")));
        assert_eq!(s.visibility(&p("/shared/launch-evil")), Visibility::Hidden);
        assert_eq!(s.visibility(&p("/shared")), Visibility::Ancestor);
        assert_eq!(s.visibility(&TreePath::root()), Visibility::Ancestor);
        assert_eq!(s.visibility(&p("/agents/cleo/AGENTS.md")), Visibility::Full);
        assert_eq!(s.visibility(&p("/agents/cleo/AGENTS.md/x")), Visibility::Hidden);
        assert!(s.child_visible(b"", b"shared") && s.child_visible(b"shared", b"launch"));
        assert!(!s.child_visible(b"shared", b"launch-evil") && !s.child_visible(b"", b"humans"));
        assert!(s.child_visible(b"shared/launch/x", b"anything"));
    }

    /// Goal: SPEC LEASE-2 compares sets, not texts.
    #[test]
    fn subsets() {
        assert!(set(&["/a/b/**"]).is_subset_of(&set(&["/a/**"])));
        assert!(!set(&["/a/**"]).is_subset_of(&set(&["/a/b/**"])));
        assert!(!set(&["/a/**"]).is_subset_of(&set(&["/a"])));
        assert!(set(&["/a"]).is_subset_of(&set(&["/a/**"])));
        assert!(!set(&["/ab/**"]).is_subset_of(&set(&["/a/**"])));
        assert!(set(&["/a/**", "/b"]).is_subset_of(&PathSet::everything()));
    }

    /// Goal: every other glob is refused with a text that says what to write instead.
    #[test]
    fn other_globs_are_refused() {
        for bad in ["/a/*", "/a/**/b", "/a*", "/a/?", "/[ab]", "/{a,b}", "/**/x", "/a**", "**", "/a/***"] {
            let error = PathSet::from_globs(&[bad]).unwrap_err();
            assert!(matches!(error, PathSetError::Wildcard { .. } | PathSetError::Path { .. }), "{bad}");
        }
        assert!(PathSet::from_globs(&["/a/*"]).unwrap_err().to_string().contains("/dir/**"));
        for bad in ["a/**", "/a/../b", "/a//**", "", "/a//b", "/a/"] {
            assert!(matches!(PathSet::from_globs(&[bad]), Err(PathSetError::Path { .. })), "{bad}");
        }
        assert_eq!(PathSet::from_globs::<&str>(&[]), Err(PathSetError::Empty));
        assert!(matches!(PathSet::from_globs(&vec!["/a"; 257]), Err(PathSetError::TooMany { count: 257 })));
    }

    /// Goal: a literal wildcard character can be named and survives the ledger's text form.
    #[test]
    fn literal_wildcards() {
        let s = set(&["/app/%5Bid%5D.tsx", "/x%2A/**"]);
        assert!(s.allows(&p("/app/[id].tsx")) && s.allows(&p("/x*/y")));
        assert_eq!(PathSet::from_globs(&s.to_globs()), Ok(s));
    }

    /// A small universe with neighbours that sort around '/': `-` and `.` before it, `0` after it.
    fn path_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec!["a", "a-", "a.", "a0", "b"]), 0..4)
            .prop_map(|parts| parts.join("/").into_bytes())
    }
    type Raw = Vec<(Vec<u8>, bool)>;
    fn raw() -> impl Strategy<Value = Raw> {
        prop::collection::vec((path_bytes(), any::<bool>()), 1..6)
    }
    fn globs(raw: &Raw) -> Vec<String> {
        let text = |p: &[u8]| String::from_utf8(p.to_vec()).unwrap();
        let glob = |(p, tree): &(Vec<u8>, bool)| match (p.is_empty(), tree) {
            (true, true) => "/**".to_owned(),
            (_, true) => format!("/{}/**", text(p)),
            (_, false) => format!("/{}", text(p)),
        };
        raw.iter().map(glob).collect()
    }
    /// The obvious definition, by components.
    fn brute_allows(raw: &Raw, path: &[u8]) -> bool {
        let path = TreePath::from_relative(path).unwrap();
        raw.iter().any(|(p, tree)| {
            let p = TreePath::from_relative(p).unwrap();
            if *tree { path.is_within(&p) } else { path == p }
        })
    }
    /// All paths of up to four components: one more than a glob here has, so a subtree differs from an exact path.
    fn universe() -> Vec<Vec<u8>> {
        let mut all = vec![Vec::new()];
        let mut from = 0;
        for _ in 0..4 {
            let upto = all.len();
            for at in from..upto {
                for name in ["a", "a-", "a.", "a0", "b"] {
                    let mut next: Vec<u8> = all[at].clone();
                    if !next.is_empty() {
                        next.push(b'/');
                    }
                    next.extend_from_slice(name.as_bytes());
                    all.push(next);
                }
            }
            from = upto;
        }
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        /// Goal: the compiled set is the brute-force set, for allowing, visibility, listings and text.
        #[test]
        fn same_as_brute_force(raw in raw(), paths in prop::collection::vec(path_bytes(), 1..8)) {
            let s = PathSet::from_globs(&globs(&raw)).unwrap();
            prop_assert_eq!(&PathSet::from_globs(&s.to_globs()).unwrap(), &s);
            let all = universe();
            for path in &paths {
                let allowed = brute_allows(&raw, path);
                prop_assert_eq!(s.allows_bytes(path), allowed);
                let tree = TreePath::from_relative(path).unwrap();
                let below: Vec<_> = all.iter()
                    .filter(|q| TreePath::from_relative(q).unwrap().is_within(&tree))
                    .collect();
                let leads = below.iter().any(|q| brute_allows(&raw, q));
                let want = if allowed { Visibility::Full } else if leads { Visibility::Ancestor } else { Visibility::Hidden };
                prop_assert_eq!(s.visibility_bytes(path), want);
                prop_assert_eq!(s.covers_bytes(path), below.iter().all(|q| brute_allows(&raw, q)));
                if let Some((dir, name)) = tree.split_last() {
                    prop_assert_eq!(s.child_visible(dir.as_bytes(), name.as_bytes()), want != Visibility::Hidden);
                }
            }
        }

        /// Goal: subset means subset of allowed paths.
        #[test]
        fn subset_as_brute_force(a in raw(), b in raw()) {
            let (sa, sb) = (PathSet::from_globs(&globs(&a)).unwrap(), PathSet::from_globs(&globs(&b)).unwrap());
            let want = universe().iter().all(|q| !brute_allows(&a, q) || brute_allows(&b, q));
            prop_assert_eq!(sa.is_subset_of(&sb), want);
        }
    }
}
