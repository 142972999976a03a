//! `explain/commit` (SPEC REC-4): from a commit to run, lease, gate decision and reads.

use nas_history::HistoryError;
use nas_ledger::GateRow;
use nas_trust_core::degradation::VerbClass;
use nas_trust_core::read_manifest::ManifestEntry;
use nas_types::id::RunId;
use nas_types::object::Oid;
use nas_types::verb::{CommitInfo, ExplainCommit, Explanation, GateDecision, GateExplained, RecordInfo};

use super::gate::{read_before, read_line};
use super::tree;
use crate::caller::Who;
use crate::{Caller, Door, DoorError, DoorVerb, card};

/// Fewest digits that name a commit.
const PREFIX_DIGITS_MIN: usize = 7;
/// Commits of a branch that are named as the source of a merge.
const FROM_MAX: usize = 1000;
/// Said of a commit whose files are gone.
const GONE: &str = "this commit was squashed at a proposal, or its branch was recycled: its files are not kept; what follows \
                    is what was recorded about it";

impl DoorVerb for ExplainCommit {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, caller: &Caller) -> Result<Explanation, DoorError> {
        let oid = door.commit_named(&self.commit)?;
        let unknown = || DoorError::NotFound { what: "commit", name: self.commit.clone() };
        let records = door.records_of(oid)?;
        let (commit, kept) = match door.inner.store.history().commit_info(oid) {
            Ok(commit) => (tree::info(commit), true),
            Err(HistoryError::Missing(_)) => (from_records(oid, &records).ok_or_else(unknown)?, false),
            Err(error) => return Err(card::history_error("reading a commit")(error)),
        };
        let run = trailer(&commit, "Run").and_then(|run| run.parse().ok());
        let lease = trailer(&commit, "Lease").and_then(|lease| lease.parse().ok());
        // A bearer learns of its own run's commits; others do not exist for it.
        if matches!(&caller.0, Who::Lease(own) if Some(own.run.id) != run) {
            return Err(unknown());
        }
        let mut records = records;
        let mut gate = door.inner.ledger.read(|reader| reader.gate_of_merge(oid)).map_err(DoorError::Ledger)?;
        // What had been read when the gate was asked; without one, what the run has read up to now.
        let mut read = match gate.as_ref().and_then(read_before) {
            Some(read) => read,
            None => {
                let lines = run.map_or_else(|| Ok(Vec::new()), |run| door.reads_of(run))?;
                lines.into_iter().map(read_line).collect()
            }
        };
        let mut changes = if kept {
            let parent = commit.parents.first().copied();
            let compared = door.inner.store.history().diff(parent, oid);
            compared.map_err(card::history_error("comparing commits"))?
        } else {
            Vec::new()
        };
        let from = match commit.parents.get(1) {
            Some(merged) if kept => door.commits_from(*merged, gate.as_ref().map(|gate| gate.base))?,
            _ => Vec::new(),
        };
        let lease = lease.and_then(|lease| door.inner.leases.read().get(&lease).cloned());
        // A lease of the run learns of its own paths; what others of the run did elsewhere is theirs.
        if let Who::Lease(own) = &caller.0 {
            changes.retain(|change| own.paths.allows(&change.path));
            read.retain(|line| own.paths.allows(&line.path));
            records.iter_mut().for_each(|record| record.detail = serde_json::Value::Null);
            records.retain(|record| record.path.as_ref().is_none_or(|path| own.paths.allows(path)));
            gate = gate.filter(|gate| door.asked_below(own, gate));
        }
        Ok(Explanation {
            run: run.map(|run| door.run_info_if_known(run)).transpose()?.flatten(),
            lease: lease.map(|lease| door.inner.lease_info(&lease)),
            gate: gate.map(explained),
            read,
            note: (!kept).then(|| GONE.to_owned()),
            changes,
            records,
            from,
            commit,
        })
    }
}

/// What the records still know of a commit that is not kept.
fn from_records(oid: Oid, records: &[RecordInfo]) -> Option<CommitInfo> {
    let first = records.first()?;
    let known = |take: fn(&RecordInfo) -> Option<String>| records.iter().find_map(take);
    let trailers = [
        ("Run", known(|record| record.run.map(|run| run.to_string()))),
        ("Lease", known(|record| record.lease.map(|lease| lease.to_string()))),
        ("Principal", known(|record| record.principal.clone())),
        ("On-Behalf-Of", known(|record| record.on_behalf_of.clone())),
        ("Purpose", known(|record| record.purpose.clone())),
        ("Read-Manifest", known(|record| record.read_manifest.clone())),
    ];
    let detail = |key: &str| first.detail.get(key).and_then(|value| value.as_str());
    Some(CommitInfo {
        commit: oid,
        summary: detail("reason").and_then(|reason| reason.lines().next()).unwrap_or_default().to_owned(),
        time: first.time,
        parents: detail("parent").and_then(|parent| parent.parse().ok()).into_iter().collect(),
        trailers: trailers.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect(),
    })
}

/// The last one counts, as in the history: a message may hold lines that look like trailers.
fn trailer<'a>(commit: &'a CommitInfo, name: &str) -> Option<&'a str> {
    commit.trailers.iter().rev().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
}

fn explained(row: GateRow) -> GateExplained {
    GateExplained {
        gate: row.id,
        digest: row.digest.to_string(),
        why: row.why,
        decision: GateDecision {
            by: row.decided_by.unwrap_or_default(),
            at: row.decided_at.unwrap_or(row.created_at),
            reason: row.reason,
            commit: row.merge_commit,
        },
    }
}

impl Door {
    /// What a run read: from memory while it can read more (the ledger has the last minute only after it), else from the ledger.
    fn reads_of(&self, run: RunId) -> Result<Vec<ManifestEntry>, DoorError> {
        let known = self.inner.runs.read().get(&run).cloned();
        if let Some(known) = known.filter(|known| self.inner.store.branch(&known.branch).is_some()) {
            return Ok(known.manifest.lock().entries().collect());
        }
        self.inner.ledger.read(|reader| reader.read_entries(run)).map_err(DoorError::Ledger)
    }

    /// A commit by its id or the beginning of it.
    pub(super) fn commit_named(&self, text: &str) -> Result<Oid, DoorError> {
        let legal = (PREFIX_DIGITS_MIN..=40).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
        if !legal {
            return Err(DoorError::Invalid {
                field: "commit",
                reason: format!(
                    "a commit id is 40 hexadecimal digits, or at least the first {PREFIX_DIGITS_MIN} of them"
                ),
            });
        }
        // A whole id may also be of a commit that no record is about.
        if let Ok(whole) = text.parse() {
            return Ok(whole);
        }
        let found = self.inner.ledger.read(|reader| reader.commits_named(text, 3)).map_err(DoorError::Ledger)?;
        match found.as_slice() {
            [one] => Ok(*one),
            [] => Err(DoorError::NotFound { what: "commit", name: text.to_owned() }),
            many => Err(DoorError::Invalid {
                field: "commit",
                reason: format!("{} commits begin so: give more digits", many.len()),
            }),
        }
    }

    /// The commits of a branch that went into a merge, oldest first.
    fn commits_from(&self, tip: Oid, base: Option<Oid>) -> Result<Vec<Oid>, DoorError> {
        let log = self.inner.store.history().log(tip, FROM_MAX).map_err(card::history_error("reading the log"))?;
        let mut from: Vec<_> = log.into_iter().map(|commit| commit.oid).take_while(|oid| Some(*oid) != base).collect();
        from.reverse();
        Ok(from)
    }
}
