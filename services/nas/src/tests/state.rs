//! What is kept, and who can read it.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use nas_types::id::LeaseId;
use nas_types::secret::Secret;
use nas_types::verb::Head;

use crate::state::{MountedHere, State, read_secret, write_token_out};

const URL: &str = "http://127.0.0.1:8480";

fn secret(text: &str) -> Secret {
    Secret::new(text.to_owned())
}

fn check_private(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            assert_eq!(meta.mode() & 0o777, 0o700, "{path:?}");
            check_private(&path);
        } else {
            assert_eq!(meta.mode() & 0o777, 0o600, "{path:?}");
        }
    }
}

/// Goal: only the user can read what is kept, and each box has its own.
#[test]
fn tokens_are_private_and_per_box() {
    let base = tempfile::tempdir().unwrap();
    let state = State::in_folder(base.path(), URL);
    let other = State::in_folder(base.path(), "http://nas.local");
    let lease = LeaseId::random();
    state.set_owner_token(&secret("owner")).unwrap();
    state.set_owner_token(&secret("owner again")).unwrap();
    state.add_lease(lease, &secret("lease")).unwrap();
    state.saw_head(&Head { seq: 1, hash: "aa".to_owned() }).unwrap();
    check_private(base.path());
    assert_eq!(state.owner_token().unwrap().unwrap().reveal(), "owner again");
    assert_eq!(state.lease_token(lease).unwrap().unwrap().reveal(), "lease");
    assert!(other.owner_token().unwrap().is_none());
    state.forget_owner_token().unwrap();
    state.forget_owner_token().unwrap();
    assert!(state.owner_token().unwrap().is_none());
}

/// Goal: with no lease named, the one of the mount around us is used, then the newest, then the only one.
#[test]
fn which_lease_is_meant() {
    let base = tempfile::tempdir().unwrap();
    let state = State::in_folder(base.path(), URL);
    let [first, second, inner] = [LeaseId::random(), LeaseId::random(), LeaseId::random()];
    assert_eq!(state.implied_lease(None).unwrap(), None);
    for lease in [first, second, inner] {
        state.add_lease(lease, &secret("t")).unwrap();
    }
    state.add_lease(second, &secret("t")).unwrap();
    state.add_mount(MountedHere { dir: "/w".into(), lease: first }).unwrap();
    state.add_mount(MountedHere { dir: "/w/inner".into(), lease: inner }).unwrap();
    let at = |dir: &str| state.implied_lease(Some(Path::new(dir))).unwrap();
    assert_eq!(at("/w/sub"), Some(first));
    assert_eq!(at("/w/inner/sub"), Some(inner));
    assert_eq!(at("/w-evil"), Some(second));
    state.forget_mount(Path::new("/w/inner")).unwrap();
    assert_eq!(at("/w/inner/sub"), Some(first));
    state.forget_lease(second).unwrap();
    assert_eq!(at("/"), None, "two are left, neither is current");
    state.forget_lease(inner).unwrap();
    assert_eq!(at("/"), Some(first), "the only one");
}

/// Goal: a head once seen is only replaced by a later one, else a cut chain could make us forget (SPEC REC-3).
#[test]
fn heads_only_grow() {
    let base = tempfile::tempdir().unwrap();
    let state = State::in_folder(base.path(), URL);
    let head = |seq, hash: &str| Head { seq, hash: hash.to_owned() };
    for seen in [head(5, "aa"), head(4, "bb"), head(5, "cc")] {
        state.saw_head(&seen).unwrap();
    }
    assert_eq!(state.head().unwrap(), Some(head(5, "aa")));
    state.saw_head(&head(6, "dd")).unwrap();
    assert_eq!(state.head().unwrap(), Some(head(6, "dd")));
}

#[test]
fn files_that_others_can_read_are_refused() {
    let base = tempfile::tempdir().unwrap();
    let file = base.path().join("token");
    write_token_out(&file, &secret("abc")).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    assert_eq!(read_secret(&file).unwrap().reveal(), "abc");
    assert!(write_token_out(&file, &secret("abc")).is_err(), "a file that is there is not overwritten");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).unwrap();
    let refused = read_secret(&file).unwrap_err();
    assert!(refused.to_string().contains("chmod 600") && refused.exit_code() == 2, "{refused}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&file, "\n").unwrap();
    assert!(read_secret(&file).is_err());
}
