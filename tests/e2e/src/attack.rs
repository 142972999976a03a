//! What tests of attacks share.

use anyhow::{Result, ensure};
use nas_nfsclient::client::mode;
use nas_nfsclient::nfs3::createhow3;
use nas_nfsclient::{Credential, Error, Status};
use nas_testkit::Scratch;
use nas_types::lease::Action;
use nas_types::verb::{LeaseCreate, RecordInfo, RecordList, RecordVerify};

use crate::{Leased, TestBox, refused};

/// Who cleo is on the client's machine.
pub const CLEO: Credential = Credential::Sys { uid: 1000, gid: 1000 };

/// A box with `/shared/{launch,secret,launch-evil}`.
pub fn start() -> Result<TestBox> {
    start_with(&[])
}

/// The same with more arguments for nasd.
pub fn start_with(more: &[&str]) -> Result<TestBox> {
    let nas = TestBox::start_with(more)?;
    let source = Scratch::new("source");
    source.write("launch/notes.md", "notes\n");
    source.write("launch/dir/inner", "inner\n");
    source.write("secret/key", "hidden\n");
    source.write("launch-evil/file", "hidden too\n");
    nas.import(source.path(), "/shared").map_err(refused)?;
    Ok(nas)
}

/// Alive, no panic, the chain holds.
pub fn sound(nas: &mut TestBox) -> Result<()> {
    ensure!(nas.is_running(), "nasd is gone; its log:\n{}", nas.log());
    ensure!(!nas.log().contains("panic"), "nasd panicked:\n{}", nas.log());
    ensure!(nas.as_owner(&RecordVerify::default()).map_err(refused)?.ok, "the records are broken");
    Ok(())
}

/// The status of a refusal.
///
/// # Panics
/// When it was none.
#[track_caller]
#[allow(clippy::panic, reason = "a helper of tests may panic like the test itself")]
pub fn refusal<T: std::fmt::Debug>(result: nas_nfsclient::Result<T>) -> Status {
    match result {
        Err(Error::Nfs(status)) => status,
        other => panic!("not refused with a status: {other:?}"),
    }
}

/// CREATE of a file that may be there.
#[must_use]
pub fn unchecked() -> createhow3 {
    createhow3::UNCHECKED(mode(0o644))
}

/// A lease of the same branch that sees less.
pub fn narrowed(nas: &TestBox, wide: &Leased, path: &str) -> Result<Leased> {
    let create = LeaseCreate {
        role: None,
        paths: vec![path.to_owned()],
        actions: Action::ALL.to_vec(),
        ttl_seconds: None,
        purpose: None,
        quota_bytes: None,
        tree: None,
    };
    let created = nas.call(Some(&wide.token), &create).map_err(refused)?;
    Ok(Leased { info: created.lease, token: created.token })
}

/// The refusals by `rule` that are in the records.
#[must_use]
pub fn refusals(nas: &TestBox, rule: &str) -> Vec<RecordInfo> {
    let list = RecordList { kind: Some("refusal".to_owned()), limit: Some(1000), ..RecordList::default() };
    let found = nas.as_owner(&list).map(|found| found.records).unwrap_or_default();
    found.into_iter().filter(|record| record.rule.as_deref() == Some(rule)).collect()
}
