//! Merges against `git merge-tree --write-tree`: whatever git stops at we stop at, and where we do not stop the
//! tree is git's. We may only be stricter.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

mod support;

use nas_history::{Edit, History, Merge};
use nas_types::object::{ConflictKind, Oid};
use support::*;

struct Case {
    name: &'static str,
    base: Vec<Edit>,
    ours: Vec<Edit>,
    theirs: Vec<Edit>,
    expect: &'static [(&'static str, ConflictKind)],
}

const LINES: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

fn case(
    name: &'static str,
    base: Vec<Edit>,
    ours: Vec<Edit>,
    theirs: Vec<Edit>,
    expect: &'static [(&'static str, ConflictKind)],
) -> Case {
    Case { name, base, ours, theirs, expect }
}

fn with(old: &str, new: &str) -> String {
    LINES.replace(old, new)
}

#[rustfmt::skip]
fn table() -> Vec<Case> {
    use ConflictKind::*;
    let a = || vec![file("a", LINES), file("d/x", "x\n"), file("d/y", "y\n")];
    vec![
        case("different files", a(), vec![file("d/x", "1\n")], vec![file("d/y", "2\n")], &[]),
        case("only theirs", a(), vec![], vec![remove("d"), file("n", "n\n")], &[]),
        case("only ours", a(), vec![remove("d"), file("n", "n\n")], vec![], &[]),
        case("same change", a(), vec![file("a", "same\n")], vec![file("a", "same\n")], &[]),
        case("lines apart", a(), vec![file("a", with("1\n", "one\n"))], vec![file("a", with("9\n", "nine\n"))], &[]),
        case("same line", a(), vec![file("a", with("5\n", "five\n"))], vec![file("a", with("5\n", "V\n"))], &[("a", Content)]),
        case("neighbouring lines", a(), vec![file("a", with("5\n", "five\n"))], vec![file("a", with("6\n", "six\n"))], &[("a", Content)]),
        case("both append", a(), vec![file("a", with("9\n", "9\nours\n"))], vec![file("a", with("9\n", "9\ntheirs\n"))], &[("a", Content)]),
        case("both add equal", a(), vec![file("n", "n\n")], vec![file("n", "n\n")], &[]),
        case("both add different", a(), vec![file("n", "ours\n")], vec![file("n", "theirs\n")], &[("n", BothAdded)]),
        case("deleted and changed", a(), vec![remove("a")], vec![file("a", "changed\n")], &[("a", ChangedAndDeleted)]),
        case("changed and deleted", a(), vec![file("a", "changed\n")], vec![remove("a")], &[("a", ChangedAndDeleted)]),
        case("both delete", a(), vec![remove("a")], vec![remove("a")], &[]),
        case("directory removed, changed inside", a(), vec![remove("d")], vec![file("d/x", "changed\n")], &[("d/x", ChangedAndDeleted)]),
        case("directory removed, added inside", a(), vec![file("d/n", "n\n")], vec![remove("d")], &[("d/n", ChangedAndDeleted)]),
        case("directory renamed, added inside", a(), vec![rename("d", "e")], vec![file("d/n", "n\n")], &[("d/n", ChangedAndDeleted)]),
        case("directory emptied by moving, added inside", a(), vec![rename("d/x", "e/x"), rename("d/y", "e/y")], vec![file("d/n", "n\n")], &[("d/n", ChangedAndDeleted)]),
        case("directory emptied, added inside", a(), vec![remove("d/x"), remove("d/y")], vec![file("d/n", "n\n")], &[]),
        case("directory removed, less removed", a(), vec![remove("d")], vec![remove("d/x")], &[]),
        case("less removed, directory removed", a(), vec![remove("d/x")], vec![remove("d")], &[]),
        case("renamed and changed", a(), vec![rename("a", "b")], vec![file("a", with("5\n", "five\n"))], &[("a", ChangedAndDeleted)]),
        case("renamed to two names", a(), vec![rename("a", "b")], vec![rename("a", "c")], &[("a", ChangedAndDeleted)]),
        case("renamed with change to two names", a(), vec![remove("a"), file("b", with("5\n", "five\n"))], vec![remove("a"), file("c", with("1\n", "one\n"))], &[("a", ChangedAndDeleted)]),
        case("renamed and deleted", a(), vec![rename("a", "b")], vec![remove("a")], &[("a", ChangedAndDeleted)]),
        case("renamed and deleted, directories left alike", vec![file("f/a", LINES)], vec![rename("f/a", "b")], vec![remove("f/a")], &[("f/a", ChangedAndDeleted)]),
        case("renamed alike", a(), vec![rename("a", "b")], vec![rename("a", "b")], &[]),
        case("two renamed to one name", a(), vec![rename("d/x", "n")], vec![rename("d/y", "n")], &[("n", BothAdded)]),
        case("file and directory", a(), vec![file("n", "n\n")], vec![file("n/x", "x\n")], &[("n", Kinds)]),
        case("file became directory, changed", a(), vec![remove("a"), file("a/x", "x\n")], vec![file("a", "changed\n")], &[("a", Kinds)]),
        case("directory became file, added inside", a(), vec![file("d", "file\n")], vec![file("d/n", "n\n")], &[("d", Kinds)]),
        case("file and symlink", a(), vec![symlink("n", "x")], vec![file("n", "x")], &[("n", Kinds)]),
        case("both change a symlink", vec![symlink("l", "1")], vec![symlink("l", "2")], vec![symlink("l", "3")], &[("l", Content)]),
        case("binary", vec![file("b", b"\0\n1\n2\n3\n4\n5\n6\n")], vec![file("b", b"\0\none\n2\n3\n4\n5\n6\n")], vec![file("b", b"\0\n1\n2\n3\n4\n5\nsix\n")], &[("b", Content)]),
        case("exec bit and content", a(), vec![file_mode("a", LINES, 0o755)], vec![file("a", "new\n")], &[]),
        case("no newline at the end", vec![file("a", "1\n2\n3\n4")], vec![file("a", "one\n2\n3\n4")], vec![file("a", "1\n2\n3\n4\n")], &[]),
        case("line ends of Windows", vec![file("a", "1\r\n2\r\n3\r\n4\r\n")], vec![file("a", "one\r\n2\r\n3\r\n4\r\n")], vec![file("a", "1\r\n2\r\n3\r\n4\n")], &[]),
        case("odd names", vec![file(b"\xff\n", LINES)], vec![file(b"\xff\n", with("1\n", "one\n"))], vec![file(b"\xff\n", with("9\n", "nine\n"))], &[]),
        // Stricter than git from here on.
        case("structured data", vec![file("c.json", LINES)], vec![file("c.json", with("1\n", "one\n"))], vec![file("c.json", with("9\n", "nine\n"))], &[("c.json", Content)]),
        case("structured data, odd case", vec![file("c.YAML", LINES)], vec![file("c.YAML", with("1\n", "one\n"))], vec![file("c.YAML", with("9\n", "nine\n"))], &[("c.YAML", Content)]),
        case("case meets", a(), vec![file("d/Readme", "1\n")], vec![file("d/README", "2\n")], &[("d/README", NameCollision), ("d/Readme", NameCollision)]),
        case("Unicode form meets", a(), vec![file("caf\u{e9}", "1\n")], vec![file("cafe\u{301}", "2\n")], &[("cafe\u{301}", NameCollision), ("caf\u{e9}", NameCollision)]),
        case("case stood side by side", a(), vec![file("n", "1\n")], vec![file("d/q", "1\n"), file("d/Q", "2\n")], &[]),
        case("case of what goes", vec![file("d/q", "q\n"), file("d/z", "z\n")], vec![file("d/z", "zz\n")], vec![rename("d/q", "d/Q")], &[]),
        case("modes apart", a(), vec![file_mode("a", LINES, 0o600)], vec![file_mode("a", LINES, 0o640)], &[("a", Mode)]),
        case("modes of directories apart", a(), vec![dir("d", 0o700)], vec![dir("d", 0o711)], &[("d", Mode)]),
        case("mode of a directory and content", a(), vec![dir("d", 0o700)], vec![file("d/x", "new\n")], &[]),
        case("nested repository", vec![file("r/.git/config", "1\n"), file("r/f", "1\n")], vec![file("r/.git/config", "2\n")], vec![file("r/.git/config", "3\n")], &[("r/.git/config", Content)]),
        case("empty directory removed, added inside", vec![file("a", "a\n"), dir("e", 0o755)], vec![remove("e")], vec![file("e/f", "f\n")], &[("e/f", ChangedAndDeleted)]),
    ]
}

fn merge_base_case(history: &History, case: Case) -> (Oid, Oid, Oid) {
    let base = commit(history, None, case.base);
    (base, commit(history, Some(base), case.ours), commit(history, Some(base), case.theirs))
}

/// `Some(tree)` when git merges cleanly. Exit status 1 is a conflict, anything else an error.
fn git_merge(history: &History, base: Oid, ours: Oid, theirs: Oid) -> Option<String> {
    let args =
        ["merge-tree", "--write-tree", "--merge-base", &base.to_string(), &ours.to_string(), &theirs.to_string()];
    let output = git_output(history.dir(), &args);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&output.stderr));
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

/// Stores a clean merge, checks that its changes are the way from ours to it, and returns its content tree as git prints it.
fn store(history: &History, ours: Oid, theirs: Oid, merged: &nas_history::Merged) -> (Oid, String) {
    let mut writer = history.writer().unwrap();
    let trees = writer.apply_merge(ours, merged).unwrap();
    let oid = commit_trees(&mut writer, &[ours, theirs], trees);
    drop(writer.finish().unwrap());
    assert_eq!(history.diff(Some(ours), oid).unwrap(), merged.changes);
    let tree = trees.content.map_or("4b825dc642cb6eb9a060e54bf8d69288fbee4904".to_owned(), |tree| tree.to_string());
    (oid, tree)
}

/// Goal: the table, each case in both directions.
#[test]
fn table_against_git() {
    let tmp = tempfile::tempdir().unwrap();
    let history = History::open(tmp.path()).unwrap();
    for case in table() {
        let (name, expect) = (case.name, case.expect);
        let (base, ours, theirs) = merge_base_case(&history, case);
        for (ours, theirs) in [(ours, theirs), (theirs, ours)] {
            let git = git_merge(&history, base, ours, theirs);
            match history.merge(base, ours, theirs).unwrap() {
                Merge::Conflicts(conflicts) => {
                    let found: Vec<_> = conflicts.iter().map(|c| (c.path.as_bytes(), c.kind)).collect();
                    let expected: Vec<_> = expect.iter().map(|(path, kind)| (path.as_bytes(), *kind)).collect();
                    assert_eq!(found, expected, "{name}");
                }
                Merge::Clean(merged) => {
                    assert_eq!(expect, [], "{name} must stop");
                    assert_eq!(git, Some(store(&history, ours, theirs, &merged).1), "{name}: git's tree");
                }
            }
        }
    }
    fsck(&history);
}

/// Goal: modes and empty directories merge too, though git knows nothing of them.
#[test]
fn meta_merges() {
    let tmp = tempfile::tempdir().unwrap();
    let history = History::open(tmp.path()).unwrap();
    let case = case(
        "",
        vec![file("a", "1\n"), file("b/c", "1\n"), dir("gone", 0o755)],
        vec![file_mode("a", "1\n", 0o600), dir("b", 0o700)],
        vec![file("a", "2\n"), dir("b/empty", 0o711), remove("gone"), file("r/.git/HEAD", "x")],
        &[],
    );
    let (base, ours, theirs) = merge_base_case(&history, case);
    let Merge::Clean(merged) = history.merge(base, ours, theirs).unwrap() else { panic!("it is clean") };
    let (oid, _) = store(&history, ours, theirs, &merged);
    let mode = |at: &str| history.entry_at(oid, &path(at)).unwrap().map(|entry| entry.mode);
    assert_eq!(mode("a"), Some(0o600));
    assert_eq!(history.entry_at(oid, &path("a")).unwrap().unwrap().oid, Some(nas_history::blob_id(b"2\n").unwrap()));
    assert_eq!((mode("b"), mode("b/empty"), mode("gone")), (Some(0o700), Some(0o711), None));
    assert_eq!(mode("r/.git/HEAD"), Some(0o644));
}

mod random {
    use super::*;
    use proptest::prelude::*;

    fn edits() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
        proptest::collection::vec((0..5u8, 0..12u8, 0..12u8), 0..6)
    }

    fn name(n: u8) -> String {
        ["a", "b", "d/a", "d/b", "d/e/a", "d/e/b", "f/a", "f/b", "g", "d", "f", "d/e"][usize::from(n)].to_owned()
    }

    fn build(steps: &[(u8, u8, u8)]) -> Vec<Edit> {
        let edit = |&(what, at, arg): &(u8, u8, u8)| match what {
            0 | 1 => {
                let mut lines: Vec<String> = (0..12).map(|n| format!("line {n} of a file\n")).collect();
                lines[usize::from(arg)] = format!("changed {what}\n");
                file(name(at), lines.concat())
            }
            2 => remove(name(at)),
            3 if name(arg).starts_with(&name(at)) || name(at).starts_with(&name(arg)) => remove(name(at)),
            3 => rename(name(at), name(arg)),
            _ => file_mode(name(at), format!("other {arg}\n"), if arg % 2 == 0 { 0o755 } else { 0o644 }),
        };
        steps.iter().map(edit).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
        /// Goal: on random sides we never merge what git would not, and never to another tree.
        #[test]
        fn never_laxer_than_git(base in edits(), ours in edits(), theirs in edits()) {
            let tmp = tempfile::tempdir().unwrap();
            let history = History::open(tmp.path()).unwrap();
            let start = [vec![(0, 0, 0), (0, 2, 1), (0, 4, 2), (0, 6, 3)], base].concat();
            let case = case("", build(&start), build(&ours), build(&theirs), &[]);
            let (base, ours, theirs) = merge_base_case(&history, case);
            if let Merge::Clean(merged) = history.merge(base, ours, theirs).unwrap() {
                let (_, tree) = store(&history, ours, theirs, &merged);
                prop_assert_eq!(git_merge(&history, base, ours, theirs), Some(tree));
            }
        }
    }
}
