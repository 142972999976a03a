//! `record/…`: the flight recorder (SPEC REC).

use nas_ledger::{Head as LedgerHead, Record};
use nas_trust_core::degradation::VerbClass;
use nas_types::verb::{Head, RecordHead, RecordInfo, RecordList, RecordVerified, RecordVerify, Records};

use super::page_rows;
use crate::{Caller, Door, DoorError, DoorVerb};

impl DoorVerb for RecordList {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, _caller: &Caller) -> Result<Records, DoorError> {
        let most = page_rows(self.limit)?;
        let before = self.cursor.as_deref().map(str::parse).transpose().map_err(|_| DoorError::Invalid {
            field: "cursor",
            reason: "it is the number of a record, from an earlier answer".to_owned(),
        })?;
        let rows = u32::try_from(most + 1).unwrap_or(u32::MAX);
        let found =
            door.inner.ledger.read(|reader| reader.records_before(before, self.run, self.kind.as_deref(), rows));
        let mut found = found.map_err(DoorError::Ledger)?;
        let more = found.len() > most;
        found.truncate(most);
        let cursor = found.last().filter(|_| more).map(|record| record.seq.to_string());
        Ok(Records { records: found.into_iter().map(info).collect(), cursor })
    }
}

impl DoorVerb for RecordHead {
    const CLASS: VerbClass = VerbClass::Status;

    fn run(self, door: &Door, _caller: &Caller) -> Result<Head, DoorError> {
        door.inner.head().map_err(DoorError::Ledger)
    }
}

impl DoorVerb for RecordVerify {
    const CLASS: VerbClass = VerbClass::Recover;

    fn run(self, door: &Door, _caller: &Caller) -> Result<RecordVerified, DoorError> {
        let given = self.anchor.map(|anchor| {
            LedgerHead::from_hex(anchor.seq, &anchor.hash).ok_or_else(|| DoorError::Invalid {
                field: "anchor",
                reason: "write it as <number>:<64 hexadecimal digits>, as 'nas record head' prints it".to_owned(),
            })
        });
        let given = given.transpose()?;
        // The box's own anchor first; the one from outside is the stronger witness and is told last.
        let own = door.inner.anchor.lock().last();
        let mut verified = None;
        for anchor in [own, given].into_iter().flatten().map(Some).chain([None]) {
            if anchor.is_none() && verified.is_some() {
                break;
            }
            let report = door.inner.ledger.verify(anchor).map_err(DoorError::Ledger)?;
            let failed = !report.is_ok();
            verified = Some(answer(&report, anchor));
            if failed {
                break;
            }
        }
        verified.ok_or_else(|| DoorError::State("nothing to verify".to_owned()))
    }
}

fn answer(report: &nas_ledger::Report, anchor: Option<LedgerHead>) -> RecordVerified {
    RecordVerified {
        ok: report.is_ok(),
        head: shown(report.head),
        days: report.days.len() as u64,
        first_bad: report.fault.as_ref().map(|(seq, _)| *seq),
        because: report.fault.as_ref().map(|(_, fault)| fault.to_string()),
        anchor: anchor.map(shown),
    }
}

fn shown(head: LedgerHead) -> Head {
    Head { seq: head.seq, hash: head.hash_hex() }
}

/// A record as the API shows it.
pub(super) fn info(record: Record) -> RecordInfo {
    let fields = record.fields;
    RecordInfo {
        seq: record.seq,
        time: fields.time,
        kind: match fields.phase {
            nas_ledger::Phase::Event => fields.kind,
            nas_ledger::Phase::Intent => fields.kind + ".intent",
            nas_ledger::Phase::Outcome => fields.kind + ".outcome",
        },
        run: fields.run,
        principal: fields.principal,
        on_behalf_of: fields.on_behalf_of,
        lease: fields.lease,
        purpose: fields.purpose,
        path: fields.path,
        commit: fields.commit,
        read_manifest: fields.read_manifest.map(|hash| blake3::Hash::from_bytes(hash).to_hex().to_string()),
        effect: fields.effect,
        rule: fields.rule,
        detail: fields.detail,
        intent: fields.intent,
        taint_external: fields.taint_external,
        taint_sensitivity: fields.taint_sensitivity,
        format: u32::try_from(nas_ledger::record::RECORD_FORMAT).expect("because formats are small numbers"),
        day: record.day,
        prev_hash: blake3::Hash::from_bytes(record.prev_hash).to_hex().to_string(),
        hash: blake3::Hash::from_bytes(record.hash).to_hex().to_string(),
    }
}

impl Door {
    /// Records about a commit, oldest first.
    pub(super) fn records_of(&self, commit: nas_types::object::Oid) -> Result<Vec<RecordInfo>, DoorError> {
        let found = self.inner.ledger.read(|reader| reader.records_of_commit(commit));
        Ok(found.map_err(DoorError::Ledger)?.into_iter().map(info).collect())
    }
}
