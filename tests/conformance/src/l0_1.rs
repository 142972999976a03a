//! L0.1: editing in a run branch leaves protected main unchanged.

use crate::report::{Verdict, require};
use crate::subject::Subject;

pub(crate) fn run(nas: &Subject) -> Verdict {
    let dir = nas.dir("l0_1");
    nas.import(&dir, &[("notes.md", "old\n"), ("drop.md", "drop\n")])?;
    let lease = nas.run_in(&dir)?;
    let mut work = nas.mount(&lease, &dir, "branch")?;
    work.write_file("notes.md", b"new\n")?;
    work.write_file("added.md", b"added\n")?;
    work.remove_path("drop.md")?;
    let branch = work.read_file("notes.md")?;
    require(branch == b"new\n", || "the branch holds what was written to it; it does not".to_owned())?;
    unchanged(nas, &dir, "while the branch is edited")?;
    // Committing is not merging, and asking is not merging either (BRANCH-1).
    nas.call("branch/commit", Some(&lease.token), &serde_json::json!({}))?;
    unchanged(nas, &dir, "after a commit on the branch")?;
    nas.propose(&lease)?;
    unchanged(nas, &dir, "after a proposal that nobody decided")
}

fn unchanged(nas: &Subject, dir: &str, when: &str) -> Verdict {
    // A reader of its own, so that no cache of the writer answers.
    let reader = nas.lease(&[&format!("{dir}/**")], &["read"], 600)?;
    let mut main = nas.mount(&reader, dir, "main")?;
    let mut names = main.list("")?;
    names.sort();
    let found = (names, main.read_file("notes.md").ok(), main.read_file("drop.md").ok());
    let expected = (vec![b"drop.md".to_vec(), b"notes.md".to_vec()], Some(b"old\n".to_vec()), Some(b"drop\n".to_vec()));
    require(found == expected, || format!("main is as it was {when}; its names, or its contents, changed"))
}
