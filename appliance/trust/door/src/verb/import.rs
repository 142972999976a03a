//! `tree/import`: outside files come into main through a branch and a merge like everything else (SPEC BRANCH-1). The
//! passphrase that the owner gives with it is the decision, under a rule of its own.

use std::io::Read;

use nas_ledger::PrincipalKind;
use nas_policy::{Act, Effect, PolicyRequest, Subject, Target};
use nas_store::{CommitReason, Import, Pinned, Prepared};
use nas_trust_core::degradation::VerbClass;
use nas_trust_core::lease_time::LeaseClock;
use nas_trust_core::{ActionSet, PathSet};
use nas_types::id::GateId;
use nas_types::lease::RoleName;
use nas_types::path::TreePath;
use nas_types::time::FileTime;
use nas_types::verb::{TreeImport, TreeImported};

use crate::authority::{Grant, NewRun};
use crate::merge::{Merge, MergeEnd};
use crate::{Caller, Door, DoorError};

/// Reasons named in the answer; more are counted.
const SKIPPED_NAMED_MAX: usize = 100;

/// What was read from the stream.
#[derive(Default)]
struct Received {
    entries: u64,
    bytes: u64,
    skipped: Vec<String>,
    skipped_more: u64,
}

impl Received {
    fn skip(&mut self, why: String) {
        if self.skipped.len() < SKIPPED_NAMED_MAX { self.skipped.push(why) } else { self.skipped_more += 1 }
    }
}

impl Door {
    /// `tree/import`: `body` is the tar stream.
    pub fn tree_import(
        &self,
        caller: &Caller,
        request: TreeImport,
        body: &mut dyn Read,
    ) -> Result<TreeImported, DoorError> {
        self.inner.admits(VerbClass::OpenRun)?;
        let owner = self.owner_only(caller)?.to_owned();
        self.check_passphrase(&request.passphrase)?;
        let subject = Subject::owner(&owner).with_passphrase();
        let decision = self.inner.policy.evaluate(&PolicyRequest::new(subject, Act::Import, Target::Protected));
        if decision.effect != Effect::Allow {
            return Err(crate::denied(&decision));
        }
        let why = request.why.clone().unwrap_or_else(|| format!("Import into {}", request.into));
        let paths = PathSet::from_globs(&[glob_below(&request.into)])
            .map_err(|error| DoorError::Invalid { field: "into", reason: error.to_string() })?;
        let clock = LeaseClock::issue(Some(nas_trust_core::lease_time::LEASE_TTL_MAX_MS), &self.inner.now())
            .map_err(|error| DoorError::Invalid { field: "ttl", reason: error.to_string() })?;
        let run = NewRun {
            role: "import".parse::<RoleName>().expect("because it is a legal role name"),
            principal: owner.clone(),
            kind: PrincipalKind::Human,
            on_behalf_of: None,
            tree: None,
            quota_bytes: u64::MAX,
            grant: Grant { paths, actions: ActionSet::ALL, clock, purpose: Some(why.clone()) },
        };
        let (lease, _token) = self.inner.open_run(run, &decision)?;
        let imported = self.import_on(&lease, &request, &why, &owner, &decision, body);
        // Whatever came of it, the branch has done its work.
        if let Err(error) = self.inner.recycle(&lease.run, "svc:door") {
            tracing::error!(%error, branch = %lease.run.branch, "the branch of an import could not be recycled");
        }
        imported
    }

    fn import_on(
        &self,
        lease: &crate::lease::Lease,
        request: &TreeImport,
        why: &str,
        owner: &str,
        decision: &nas_policy::Decision,
        body: &mut dyn Read,
    ) -> Result<TreeImported, DoorError> {
        let branch = self.branch(&lease.run)?;
        let read = read_tar(&branch, &request.into, body)?;
        let committing = |error| crate::store_error("committing the import", error);
        branch.commit(CommitReason::Import(why.to_owned())).map_err(committing)?;
        let pin = GateId::random();
        let Pinned::Commit(commit) = branch.pin(pin, why).map_err(committing)? else {
            return Err(DoorError::State("nothing to import: main has all of it already".to_owned()));
        };
        let _one_at_a_time = self.inner.merging.lock();
        let merged = self.merge_import(lease, commit, why, owner, decision);
        self.inner.unpin(pin);
        let (commit, record) = merged?;
        let mut skipped = read.skipped;
        if read.skipped_more > 0 {
            skipped.push(format!("and {} more", read.skipped_more));
        }
        Ok(TreeImported { commit, record, entries: read.entries, bytes: read.bytes, skipped })
    }

    fn merge_import(
        &self,
        lease: &crate::lease::Lease,
        pin: nas_types::object::Oid,
        why: &str,
        owner: &str,
        decision: &nas_policy::Decision,
    ) -> Result<(nas_types::object::Oid, u64), DoorError> {
        let prepared = match self.prepare(pin)? {
            Prepared::Clean(prepared) => prepared,
            Prepared::Conflicts(conflicts) => return Err(DoorError::Conflicts(conflicts)),
        };
        let merge = Merge {
            by: "import",
            approver: owner,
            decision,
            provenance: lease.provenance(),
            lease: lease.id,
            message: why.to_owned(),
            detail: serde_json::json!({ "changes": prepared.changes().len() }),
            read_manifest: None,
        };
        match self.inner.merge(&prepared, merge, None)? {
            MergeEnd::Merged { commit, record } => Ok((commit, record.seq)),
            MergeEnd::TooLate => Err(DoorError::LeaseOver("the lease of the import was revoked")),
        }
    }
}

/// The directory `path` with all below it, as a lease names it.
pub(super) fn glob_below(path: &TreePath) -> String {
    if path.is_root() {
        return "/**".to_owned();
    }
    let text = path.to_string().replace('*', "%2A").replace('?', "%3F").replace('[', "%5B").replace('{', "%7B");
    text + "/**"
}

fn read_tar(branch: &nas_store::Branch, into: &TreePath, body: &mut dyn Read) -> Result<Received, DoorError> {
    let broken = |source: std::io::Error| DoorError::Invalid {
        field: "body",
        reason: format!("the stream ended or is no tar archive ({source}): nothing was imported, send it again"),
    };
    let putting = |error| crate::store_error("writing an imported file", error);
    let mut read = Received::default();
    branch
        .import_entry(into, Import::Dir, 0o755, None)
        .or_else(|error| exists_as_dir(branch, into, error))
        .map_err(putting)?;
    let mut archive = tar::Archive::new(body);
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let name = entry.path_bytes().into_owned();
        let Some(path) = path_below(into, &name)? else { continue };
        let mode = entry.header().mode().map_err(broken)? & 0o1777;
        let mtime = mtime(&mut entry).map_err(broken)?;
        let kind = entry.header().entry_type();
        let bytes = match kind {
            tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse => {
                branch.import_entry(&path, Import::File(&mut entry), mode, mtime)
            }
            tar::EntryType::Directory => branch.import_entry(&path, Import::Dir, mode, mtime),
            tar::EntryType::Symlink => match entry.link_name_bytes() {
                Some(target) => {
                    let target = target.into_owned();
                    branch.import_entry(&path, Import::Symlink(&target), 0o777, mtime)
                }
                None => return Err(broken(std::io::Error::other("a symbolic link without a target"))),
            },
            other => {
                read.skip(format!("{path}: {other:?} cannot be kept in a tree"));
                continue;
            }
        };
        read.bytes += bytes.map_err(putting)?;
        read.entries += 1;
    }
    Ok(read)
}

/// When the content of an entry last changed: to the nanosecond where the archive says so (the pax record `mtime`).
fn mtime<R: Read>(entry: &mut tar::Entry<'_, R>) -> std::io::Result<Option<FileTime>> {
    if let Some(extensions) = entry.pax_extensions()? {
        // One that does not parse holds a line feed, so it is about a name.
        for extension in extensions.flatten() {
            if extension.key_bytes() == b"mtime" {
                let time = extension.value().ok().and_then(pax_time);
                let wrong = || std::io::Error::other("a pax record holds no time");
                return time.ok_or_else(wrong).map(Some);
            }
        }
    }
    let secs = entry.header().mtime().ok().and_then(|secs| i64::try_from(secs).ok());
    Ok(secs.map(|secs| FileTime { secs, nanos: 0 }))
}

/// Seconds since 1970 as a decimal number with a sign (POSIX pax, "pax Extended Header File Times"). What is below a nanosecond is dropped.
fn pax_time(text: &str) -> Option<FileTime> {
    let (negative, number) = text.strip_prefix('-').map_or((false, text), |number| (true, number));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let secs: i64 = whole.parse().ok()?;
    let nanos: u32 = format!("{fraction:0<9.9}").parse().ok()?;
    Some(match (negative, nanos) {
        (false, nanos) => FileTime { secs, nanos },
        (true, 0) => FileTime { secs: -secs, nanos },
        (true, nanos) => FileTime { secs: -secs - 1, nanos: 1_000_000_000 - nanos },
    })
}

/// The directory to import into may be there already.
fn exists_as_dir(
    branch: &nas_store::Branch,
    into: &TreePath,
    error: nas_store::StoreError,
) -> Result<u64, nas_store::StoreError> {
    match branch.live().locate_path(into) {
        Ok(at) if at.attr.kind == nas_types::fs::FileKind::Dir => Ok(0),
        Ok(_) | Err(_) => Err(error),
    }
}

/// Where an entry of the archive goes. `.` components are forgiven; what would leave the directory is refused.
fn path_below(into: &TreePath, name: &[u8]) -> Result<Option<TreePath>, DoorError> {
    let mut bytes = into.as_bytes().to_vec();
    let mut named = false;
    for part in name.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".") {
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(part);
        named = true;
    }
    if name.starts_with(b"/") {
        let name = String::from_utf8_lossy(name).into_owned();
        return Err(DoorError::Invalid {
            field: "body",
            reason: format!("'{name}' is an absolute path: archive relative ones"),
        });
    }
    let path = TreePath::from_relative(&bytes).map_err(|why| DoorError::Invalid {
        field: "body",
        reason: format!("'{}' is no legal path: {why}", String::from_utf8_lossy(name)),
    })?;
    Ok(named.then_some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no name in an archive leads out of the directory it is imported into.
    #[test]
    fn names_stay_below() {
        let into = TreePath::parse("/shared/x").unwrap();
        let below = |name: &[u8]| path_below(&into, name).map(|path| path.map(|path| path.to_string()));
        assert_eq!(below(b"./a//b/").unwrap().as_deref(), Some("/shared/x/a/b"));
        assert_eq!(below(b"./").unwrap(), None);
        for bad in [&b"../a"[..], b"a/../../b", b"/etc/passwd", b"a\0b"] {
            assert!(below(bad).is_err());
        }
    }

    /// Goal: times of an archive keep every nanosecond, also before 1970, and what is no time is not taken for one.
    #[test]
    fn pax_times() {
        for (text, secs, nanos) in [
            ("0", 0, 0),
            ("1764541380.250000001", 1_764_541_380, 250_000_001),
            ("7.5", 7, 500_000_000),
            ("7.0000000019", 7, 1),
            ("7.", 7, 0),
            ("-2", -2, 0),
            ("-1.25", -2, 750_000_000),
            ("-0.000000001", -1, 999_999_999),
        ] {
            assert_eq!(pax_time(text), Some(FileTime { secs, nanos }), "{text}");
        }
        assert!(pax_time("-9223372036854775807.5").is_some());
        for bad in ["", "-", ".5", "--1", "+1", "1.-5", "1.5.5", "1e9", "9223372036854775808", " 1"] {
            assert_eq!(pax_time(bad), None, "{bad}");
        }
    }
}
