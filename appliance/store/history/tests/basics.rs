//! Opening, committing, reading back, refs; each against stock git.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

mod support;

use nas_history::{DiffLimits, Edit, Expect, FileDiff, History, HistoryError, Put, Source};
use nas_types::object::{EntryKind, Oid};
use nas_types::path::TreePath;
use support::*;

/// Goal: a first commit of everything awkward is sound for stock git and comes back whole.
#[test]
fn odd_names_survive_and_git_is_content() {
    let tmp = tempfile::tempdir().unwrap();
    let history = History::open(&tmp.path().join("repo")).unwrap();
    let long = "x".repeat(255);
    let names: Vec<Vec<u8>> = vec![
        b"plain".to_vec(),
        b"\xff\xfe".to_vec(),
        "caf\u{e9}".into(),
        "cafe\u{301}".into(),
        b"line\nbreak".to_vec(),
        long.clone().into_bytes(),
        b"README".to_vec(),
        b"readme".to_vec(),
        b".gitignore".to_vec(),
        b".gitattributes".to_vec(),
        b".git".to_vec(),
        b".GIT".to_vec(),
        b"git~1".to_vec(),
        b"a\\.git".to_vec(),
        ".g\u{200c}it".into(),
        b"%41".to_vec(),
    ];
    let edits = names.iter().map(|name| file_mode([b"d/", name.as_slice()].concat(), name, 0o640)).collect();
    let oid = commit_main(&history, edits);
    fsck(&history);
    let listed = history.list_dir(oid, &path("d")).unwrap().unwrap();
    let mut expected = names.clone();
    expected.sort();
    assert_eq!(listed.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), expected);
    for (name, entry) in listed {
        assert_eq!((entry.kind, entry.mode, entry.size), (EntryKind::File, 0o640, name.len() as u64));
        assert_eq!(history.read_blob(entry.oid.unwrap(), 1000).unwrap(), name);
    }
    let tree = git(history.dir(), &["ls-tree", "-r", "-z", "--name-only", "main"]);
    let seen: Vec<_> = tree.split(|b| *b == 0).filter(|name| !name.is_empty()).collect();
    assert_eq!(seen.len(), names.len() - 5, "the five look-alikes of .git stay out of the content tree");
    assert!(!seen.iter().any(|name| name.to_ascii_lowercase().ends_with(b".git")));
}

/// Goal: a nested repository keeps its contents, deep and with modes, though stock git never sees it.
#[test]
fn nested_repository_survives() {
    let tmp = tempfile::tempdir().unwrap();
    let history = History::open(tmp.path()).unwrap();
    let oid = commit_main(
        &history,
        vec![
            file("sub/.git/HEAD", "ref: refs/heads/main\n"),
            file_mode("sub/.git/hooks/pre-commit", "#!/bin/sh\n", 0o755),
            dir("sub/.git/objects/info", 0o755),
            file_mode("sub/.git/config", "[core]\n", 0o600),
            symlink("sub/.git/link", "../x"),
            file("sub/code", "x"),
        ],
    );
    fsck(&history);
    let entry = |at: &str| history.entry_at(oid, &path(at)).unwrap().map(|entry| (entry.kind, entry.mode));
    assert_eq!(entry("sub/.git/hooks/pre-commit"), Some((EntryKind::File, 0o755)));
    assert_eq!(entry("sub/.git/config"), Some((EntryKind::File, 0o600)));
    assert_eq!(entry("sub/.git/objects/info"), Some((EntryKind::Dir, 0o755)));
    assert_eq!(entry("sub/.git/link"), Some((EntryKind::Symlink, 0o777)));
    assert_eq!(git(history.dir(), &["ls-tree", "-r", "--name-only", "main"]), b"sub/code\n");
    // Removing and moving work on hidden entries as on any other.
    let oid = commit_main(&history, vec![rename("sub/.git", "kept"), remove("kept/config")]);
    fsck(&history);
    assert_eq!(history.entry_at(oid, &path("sub/.git")).unwrap(), None);
    assert_eq!(
        git(history.dir(), &["ls-tree", "-r", "--name-only", "main"]),
        b"kept/HEAD\nkept/hooks/pre-commit\nkept/link\nsub/code\n"
    );
}

/// Goal: large content streams in and out, and a source that lies leaves nothing behind.
#[test]
fn large_content_streams() {
    let tmp = tempfile::tempdir().unwrap();
    let history = History::open(tmp.path()).unwrap();
    let content: Vec<u8> = (0..9_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let on_disk = tmp.path().join("large");
    std::fs::write(&on_disk, &content).unwrap();
    let open = |size| Source::File { file: std::fs::File::open(&on_disk).unwrap(), size };
    let mut writer = history.writer().unwrap();
    for wrong in [content.len() as u64 - 1, content.len() as u64 + 1, 10] {
        let put = Put::File { mode: 0o644, mtime: None, source: open(wrong) };
        let result = writer.apply(None, [Edit::Put { path: path("large"), put }]);
        assert!(matches!(result, Err(HistoryError::SourceSize { expected, .. }) if expected == wrong));
    }
    assert_eq!(writer.objects(), 0);
    let put = |name, source| Edit::Put { path: path(name), put: Put::File { mode: 0o644, mtime: None, source } };
    let edits = [put("a", open(content.len() as u64)), put("b", Source::Bytes(content.clone())), file("c", "small")];
    let trees = writer.apply(None, edits).unwrap();
    let oid = commit_trees(&mut writer, &[], trees);
    drop(writer.finish().unwrap());
    history.set_ref(MAIN, Some(oid), Expect::Absent).unwrap();
    fsck(&history);
    let entry = history.entry_at(oid, &path("a")).unwrap().unwrap();
    let mut copied = Vec::new();
    assert_eq!(history.copy_blob(entry.oid.unwrap(), &mut copied).unwrap(), content.len() as u64);
    assert!(copied == content);
    assert_eq!(history.entry_at(oid, &path("b")).unwrap().unwrap().oid, entry.oid);
    assert!(matches!(history.read_blob(entry.oid.unwrap(), 1000), Err(HistoryError::TooLarge { .. })));
}

/// Goal: commits carry who, why and under which authority, and git reads the trailers as we do (SPEC GIT-1).
#[test]
fn trailers_as_git_reads_them() {
    let tmp = tempfile::tempdir().unwrap();
    let history = History::open(tmp.path()).unwrap();
    let oid = commit_main(&history, vec![file("a", "1")]);
    let info = history.commit_info(oid).unwrap();
    for key in ["Run", "Lease", "Principal", "On-Behalf-Of", "Purpose", "Meta"] {
        let seen =
            git(history.dir(), &["log", "-1", &format!("--format=%(trailers:key={key},valueonly,separator=)"), "main"]);
        assert_eq!(String::from_utf8(seen).unwrap().trim(), info.trailer(key).unwrap(), "{key}");
    }
    assert_eq!(info.message, "test");
}

/// Goal: a ref moves only from where it was expected, and its meta goes with it.
#[test]
fn refs_compare_and_swap() {
    let tmp = tempfile::tempdir().unwrap();
    let history = History::open(tmp.path()).unwrap();
    let first = commit(&history, None, vec![file("a", "1")]);
    let second = commit(&history, Some(first), vec![file_mode("a", "2", 0o600)]);
    let name = "refs/heads/cleo/run_23456789abcd";
    history.set_ref(name, Some(first), Expect::Absent).unwrap();
    for expect in [Expect::Absent, Expect::At(second)] {
        assert!(matches!(history.set_ref(name, Some(second), expect), Err(HistoryError::RefMoved { .. })));
    }
    assert_eq!(history.get_ref(name).unwrap(), Some(first));
    history.set_ref(name, Some(second), Expect::At(first)).unwrap();
    let meta = history.get_ref("refs/nas/meta/cleo/run_23456789abcd").unwrap();
    assert_eq!(meta, history.commit_info(second).unwrap().meta_commit);
    fsck(&history);
    assert!(matches!(history.set_ref(name, Some(Oid([9; 20])), Expect::Any), Err(HistoryError::Missing(_))));
    // Also one that stock git packed meanwhile.
    git(history.dir(), &["pack-refs", "--all"]);
    assert_eq!(history.get_ref(name).unwrap(), Some(second));
    history.set_ref(name, None, Expect::At(second)).unwrap();
    assert_eq!(history.list_refs("refs/").unwrap().len(), 0);
    assert_eq!(git(history.dir(), &["for-each-ref"]), b"");
    drop(history);
    let again = History::open(tmp.path()).unwrap();
    assert_eq!(again.get_ref(name).unwrap(), None);
}

/// Goal: impossible edits are refused; harmless ones do what their text says.
#[test]
fn edits_of_the_root_and_into_itself() {
    let tmp = tempfile::tempdir().unwrap();
    let history = History::open(tmp.path()).unwrap();
    let base = commit(&history, None, vec![file("a/b/c", "1"), file("z", "2")]);
    let mut writer = history.writer().unwrap();
    for bad in
        [rename("a", "a/b/x"), rename("a/b", "a"), rename("", "x"), rename("a", ""), dir("", 0o700), file("", "")]
    {
        assert!(matches!(writer.apply(Some(base), [bad]), Err(HistoryError::Edit { .. })));
    }
    let same =
        writer.apply(Some(base), [rename("a", "a"), remove("none/x"), remove("z/x"), rename("none", "gone")]).unwrap();
    assert_eq!(same, history.commit_info(base).unwrap().trees);
    let nothing = writer.apply(Some(base), [Edit::Remove { path: TreePath::root() }]).unwrap();
    assert_eq!(nothing, nas_history::Trees::default());
    assert!(matches!(
        writer.apply(
            None,
            [Edit::Put {
                path: path("x"),
                put: Put::File { mode: 0o644, mtime: None, source: Source::Existing(base) }
            }]
        ),
        Err(HistoryError::WrongKind { .. })
    ));
}

/// Goal: a gate card gets every line, or is told plainly why not.
#[test]
fn diffs_for_people() {
    let tmp = tempfile::tempdir().unwrap();
    let history = History::open(tmp.path()).unwrap();
    let first = vec![
        file("bin", b"a\0"),
        file("gone", "x\n"),
        file("mode", "m\n"),
        file("text", "1\n2\n"),
        symlink("link", "old"),
    ];
    let first = commit(&history, None, first);
    let big = "line\n".repeat(1000);
    let second = vec![
        file("bin", b"b\0"),
        remove("gone"),
        file_mode("mode", "m\n", 0o755),
        file("text", "1\ntwo\n"),
        symlink("link", "new"),
        file("zbig", &big),
    ];
    let second = commit(&history, Some(first), second);
    let limits = DiffLimits { file_bytes_max: 4999, text_bytes_max: 1000 };
    let changes = history.diff(Some(first), second).unwrap();
    let shown: Vec<_> = changes.iter().map(|change| history.unified_diff(change, limits).unwrap()).collect();
    let text = |text: &str, added, removed| FileDiff::Text { text: text.to_owned(), added, removed };
    let expected = [
        FileDiff::Binary,
        text("deleted file mode 0644\n--- /gone\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n", 0, 1),
        text(
            "--- /link\n+++ /link\n@@ -1,1 +1,1 @@\n-old\n\\ No newline at end of file\n+new\n\\ No newline at end of file\n",
            1,
            1,
        ),
        text("mode 0644 becomes 0755\n", 0, 0),
        text("--- /text\n+++ /text\n@@ -1,2 +1,2 @@\n 1\n-2\n+two\n", 1, 1),
        FileDiff::TooLarge { what: "bytes of the file", found: 5000, max: 4999 },
    ];
    assert_eq!(shown, expected);
    let roomier = DiffLimits { file_bytes_max: 5000, text_bytes_max: 1000 };
    let too_long = history.unified_diff(&changes[5], roomier).unwrap();
    assert!(matches!(too_long, FileDiff::TooLarge { what: "bytes of the diff", max: 1000, .. }));
}
