//! Random edits against a plain model and against stock git.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

mod support;

use std::collections::BTreeMap;

use nas_history::{Edit, History, HistoryError, Put, Source};
use nas_types::object::{Change, Entry, EntryKind, Oid};
use nas_types::path::TreePath;
use proptest::prelude::*;
use support::*;

/// Every file, symlink and directory by path.
type Model = BTreeMap<TreePath, (EntryKind, u32, Vec<u8>)>;

#[derive(Debug, Clone)]
enum Step {
    File(TreePath, u32, Vec<u8>),
    Symlink(TreePath, Vec<u8>),
    Dir(TreePath, u32),
    Remove(TreePath),
    Move(TreePath, TreePath),
}

impl Step {
    fn edit(&self) -> Edit {
        let bytes = |content: &Vec<u8>| Source::Bytes(content.clone());
        let put = |path: &TreePath, put| Edit::Put { path: path.clone(), put };
        match self {
            Self::File(path, mode, content) => {
                put(path, Put::File { mode: *mode, mtime: None, source: bytes(content) })
            }
            Self::Symlink(path, target) => put(path, Put::Symlink { mtime: None, source: bytes(target) }),
            Self::Dir(path, mode) => put(path, Put::Dir { mode: *mode }),
            Self::Remove(path) => Edit::Remove { path: path.clone() },
            Self::Move(from, to) => Edit::Move { from: from.clone(), to: to.clone() },
        }
    }

    fn is_legal(&self) -> bool {
        match self {
            Self::Move(from, to) => from == to || (!from.is_within(to) && !to.is_within(from)),
            _ => true,
        }
    }

    fn apply(&self, model: &mut Model) {
        match self {
            Self::File(path, mode, content) => put(model, path, (EntryKind::File, *mode, content.clone())),
            Self::Symlink(path, target) => put(model, path, (EntryKind::Symlink, 0o777, target.clone())),
            Self::Dir(path, mode) => match model.get_mut(path) {
                Some((EntryKind::Dir, old, _)) => *old = *mode,
                _ => put(model, path, (EntryKind::Dir, *mode, Vec::new())),
            },
            Self::Remove(path) => drop(take(model, path)),
            Self::Move(from, to) if from == to => {}
            Self::Move(from, to) => {
                let moved = take(model, from);
                take(model, to);
                for (path, entry) in moved {
                    let path = path.rebase(from, to).unwrap();
                    make_parents(model, &path);
                    model.insert(path, entry);
                }
            }
        }
    }
}

fn take(model: &mut Model, path: &TreePath) -> Model {
    let (taken, kept) = std::mem::take(model).into_iter().partition(|(at, _)| at.is_within(path));
    *model = kept;
    taken
}

fn make_parents(model: &mut Model, path: &TreePath) {
    let mut at = path.clone();
    while let Some((parent, _)) = at.split_last().filter(|(parent, _)| !parent.is_root()) {
        if model.get(&parent).is_none_or(|(kind, ..)| *kind != EntryKind::Dir) {
            model.insert(parent.clone(), (EntryKind::Dir, 0o755, Vec::new()));
        }
        at = parent;
    }
}

fn put(model: &mut Model, path: &TreePath, entry: (EntryKind, u32, Vec<u8>)) {
    take(model, path);
    make_parents(model, path);
    model.insert(path.clone(), entry);
}

fn names() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => prop_oneof![Just(b"a".to_vec()), Just(b"b".to_vec()), Just(b"c".to_vec())],
        // Where git's order of trees differs from that of bytes.
        2 => prop_oneof![Just(b"a-b".to_vec()), Just(b"a.b".to_vec()), Just(b"a0".to_vec()), Just(b"A".to_vec())],
        1 => prop_oneof![
            Just(b".git".to_vec()),
            Just(b".GIT ".to_vec()),
            Just(b"git~1".to_vec()),
            Just(b".gitmodules".to_vec()),
            Just(b"\xff\n\"\\".to_vec()),
            Just("caf\u{e9}".into()),
            Just("cafe\u{301}".into()),
            Just(vec![b'x'; 255]),
        ],
    ]
}

fn paths() -> impl Strategy<Value = TreePath> {
    proptest::collection::vec(names(), 1..4).prop_map(|parts| path(parts.join(&b'/')))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let mode = prop_oneof![Just(0o644), Just(0o755), Just(0o600), Just(0o444), Just(0o000), Just(0o1777)];
    let content =
        prop_oneof![Just(Vec::new()), proptest::collection::vec(any::<u8>(), 0..40), Just(vec![b'z'; 70_000])];
    let step = prop_oneof![
        5 => (paths(), mode.clone(), content).prop_map(|(path, mode, content)| Step::File(path, mode, content)),
        1 => (paths(), names()).prop_map(|(path, target)| Step::Symlink(path, target)),
        2 => (paths(), mode).prop_map(|(path, mode)| Step::Dir(path, mode)),
        2 => paths().prop_map(Step::Remove),
        2 => (paths(), paths()).prop_map(|(from, to)| Step::Move(from, to)),
    ];
    proptest::collection::vec(step, 1..25)
}

fn read_all(history: &History, commit: Oid) -> Model {
    let mut found = Model::new();
    let mut visit = |path: &TreePath, entry: &Entry| {
        let content = entry.oid.map(|oid| history.read_blob(oid, 1 << 20)).transpose()?.unwrap_or_default();
        assert_eq!(content.len() as u64, entry.size);
        found.insert(path.clone(), (entry.kind, entry.mode, content));
        Ok::<(), HistoryError>(())
    };
    history.walk(commit, &mut visit).unwrap();
    found
}

fn as_entry((kind, mode, content): &(EntryKind, u32, Vec<u8>)) -> Entry {
    let oid = (*kind != EntryKind::Dir).then(|| nas_history::blob_id(content).unwrap());
    Entry { kind: *kind, mode: *mode, oid, size: content.len() as u64, mtime: None, key_domain: Default::default() }
}

/// The rule of what is listed, written down a second time.
fn expected_diff(old: &Model, new: &Model) -> Vec<Change> {
    let mut changes = Vec::new();
    let all: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    for path in all {
        let (before, after) = (old.get(path).map(as_entry), new.get(path).map(as_entry));
        let is_plain_dir = after.is_some_and(|entry| entry.kind == EntryKind::Dir && entry.mode == 0o755);
        let holds_something = new.keys().any(|other| other != path && other.is_within(path));
        let implied = before.is_none() && is_plain_dir && holds_something;
        if before != after && !implied {
            changes.push(Change { path: path.clone(), old: before, new: after });
        }
    }
    changes
}

/// What stock git must see: every entry none of whose names it refuses.
fn expected_for_git(model: &Model) -> BTreeMap<Vec<u8>, String> {
    let refused = |path: &TreePath| {
        let named = path.components().any(|name| matches!(name, b".git" | b".GIT " | b"git~1"));
        // Git takes `.gitmodules` only as a plain file.
        let modules = model.iter().any(|(at, (kind, ..))| {
            path.is_within(at) && *kind != EntryKind::File && at.as_bytes().ends_with(b".gitmodules")
        });
        named || modules
    };
    let leaves = model.iter().filter(|(path, (kind, ..))| *kind != EntryKind::Dir && !refused(path));
    let line = |(path, (kind, mode, content)): (&TreePath, &(EntryKind, u32, Vec<u8>))| {
        let git_mode = match kind {
            EntryKind::Symlink => "120000",
            _ if mode & 0o100 != 0 => "100755",
            _ => "100644",
        };
        (path.as_bytes().to_vec(), format!("{git_mode} blob {}", nas_history::blob_id(content).unwrap()))
    };
    leaves.map(line).collect()
}

fn seen_by_git(history: &History, commit: Oid) -> BTreeMap<Vec<u8>, String> {
    let listed = git(history.dir(), &["ls-tree", "-r", "-z", &commit.to_string()]);
    let lines = listed.split(|b| *b == 0).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let tab = line.iter().position(|b| *b == b'\t').unwrap();
            (line[tab + 1..].to_vec(), String::from_utf8(line[..tab].to_vec()).unwrap())
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Goal: two commits of random edits hold what the model holds, git agrees, the difference is exact, and
    /// applying the difference gives the very same trees.
    #[test]
    fn commits_match_the_model(first in steps(), second in steps()) {
        let tmp = tempfile::tempdir().unwrap();
        let history = History::open(tmp.path()).unwrap();
        let mut model = Model::new();
        let mut models = Vec::new();
        let mut commits: Vec<Oid> = Vec::new();
        for steps in [first, second] {
            let steps: Vec<_> = steps.into_iter().filter(Step::is_legal).collect();
            steps.iter().for_each(|step| step.apply(&mut model));
            commits.push(commit_main(&history, steps.iter().map(Step::edit).collect()));
            models.push(model.clone());
        }
        for (commit, model) in commits.iter().zip(&models) {
            prop_assert_eq!(&read_all(&history, *commit), model);
            prop_assert_eq!(seen_by_git(&history, *commit), expected_for_git(model));
        }
        fsck(&history);
        prop_assert_eq!(history.diff(None, commits[0]).unwrap(), expected_diff(&Model::new(), &models[0]));
        for (from, to) in [(0, 1), (1, 0)] {
            let changes = history.diff(Some(commits[from]), commits[to]).unwrap();
            prop_assert_eq!(&changes, &expected_diff(&models[from], &models[to]));
            let mut writer = history.writer().unwrap();
            let trees = writer.apply(Some(commits[from]), changes.iter().map(Edit::from_change)).unwrap();
            prop_assert_eq!(trees, history.commit_info(commits[to]).unwrap().trees);
        }
    }

    /// Goal: the same content in any order of edits has the same trees.
    #[test]
    fn trees_do_not_depend_on_history(steps in steps()) {
        let tmp = tempfile::tempdir().unwrap();
        let history = History::open(tmp.path()).unwrap();
        let steps: Vec<_> = steps.into_iter().filter(Step::is_legal).collect();
        let mut model = Model::new();
        steps.iter().for_each(|step| step.apply(&mut model));
        let mut writer = history.writer().unwrap();
        let stepwise = writer.apply(None, steps.iter().map(Step::edit)).unwrap();
        let whole = model.iter().rev().map(|(path, (kind, mode, content))| match kind {
            EntryKind::File => file_mode(path.as_bytes(), content, *mode),
            EntryKind::Symlink => symlink(path.as_bytes(), content),
            EntryKind::Dir => dir(path.as_bytes(), *mode),
        });
        prop_assert_eq!(stepwise, writer.apply(None, whole).unwrap());
    }
}
