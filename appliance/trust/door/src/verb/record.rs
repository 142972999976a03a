//! `record/…`: the flight recorder (SPEC REC).

use std::collections::BTreeSet;

use nas_ledger::{Head as LedgerHead, LedgerError, Loss, NewRecord, Record};
use nas_trust_core::degradation::VerbClass;
use nas_types::verb::{
    Head, LossAccepted, RecordAcceptLoss, RecordHead, RecordInfo, RecordList, RecordVerified, RecordVerify, Records,
};

use super::page_rows;
use crate::{Caller, Door, DoorError, DoorVerb};

/// Longest "why", in bytes.
const WHY_BYTES_MAX: usize = 1000;
/// Kind of the records that tell of an accepted loss.
const ACCEPT_LOSS: &str = "record.accept-loss";

impl DoorVerb for RecordList {
    // Also on a sealed box: its owner has to see what is left.
    const CLASS: VerbClass = VerbClass::Status;

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
        let losses = door.losses()?;
        let mut verified = None;
        for anchor in [own, given].into_iter().flatten().map(Some).chain([None]) {
            if anchor.is_none() && verified.is_some() {
                break;
            }
            let report = door.inner.ledger.verify(anchor).map_err(DoorError::Ledger)?;
            let failed = !report.is_ok();
            verified = Some(answer(&report, anchor, &losses));
            if failed {
                break;
            }
        }
        verified.ok_or_else(|| DoorError::State("nothing to verify".to_owned()))
    }
}

impl DoorVerb for RecordAcceptLoss {
    const CLASS: VerbClass = VerbClass::Recover;

    fn run(self, door: &Door, caller: &Caller) -> Result<LossAccepted, DoorError> {
        let owner = caller.owner()?;
        if self.why.as_ref().is_some_and(|why| why.len() > WHY_BYTES_MAX) {
            return Err(DoorError::Invalid { field: "why", reason: format!("at most {WHY_BYTES_MAX} bytes") });
        }
        door.check_passphrase(&self.passphrase)?;
        let inner = &door.inner;
        let nothing = || DoorError::State("nothing is lost: the ledger holds the head that was anchored".to_owned());
        if inner.holds_anchor().map_err(DoorError::Ledger)? {
            return Err(nothing());
        }
        let report = inner.ledger.verify(None).map_err(DoorError::Ledger)?;
        if let Some((seq, fault)) = report.fault {
            return Err(DoorError::State(format!(
                "what is left does not verify at record {seq}: {fault}; only a lost end can be accepted, so restore the ledger"
            )));
        }
        inner.seal();
        door.end_leases(owner)?;
        // Held to the end: a second call finds the first one's line.
        let mut anchor = inner.anchor.lock();
        let heads = anchor.heads().map_err(DoorError::Ledger)?;
        let Some(lost) = anchor.last() else { return Err(nothing()) };
        let time = inner.clocks.wall();
        let written = inner.ledger.write_essential(|tx| {
            let holds = |head: &LedgerHead| {
                Ok::<_, LedgerError>(tx.record(head.seq)?.is_some_and(|record| record.hash == head.hash))
            };
            if holds(&lost)? {
                return Ok(None);
            }
            // A chain that holds a head holds all before it.
            let (mut low, mut high) = (0, heads.len());
            while low < high {
                let middle = low.midpoint(high);
                if holds(&heads[middle])? { low = middle + 1 } else { high = middle }
            }
            let kept = low.checked_sub(1).map_or_else(LedgerHead::default, |at| heads[at]);
            let record = tx.append(&NewRecord {
                principal: Some(owner.to_owned()),
                detail: serde_json::json!({ "kept": shown(kept), "lost": shown(lost), "why": self.why }),
                ..NewRecord::event(ACCEPT_LOSS, time)
            })?;
            Ok::<_, LedgerError>(Some(Loss { time, kept, lost, record }))
        });
        let loss = written.map_err(DoorError::Ledger)?.ok_or_else(nothing)?;
        anchor.accept(&loss).map_err(DoorError::Ledger)?;
        Ok(accepted(&loss))
    }
}

fn answer(report: &nas_ledger::Report, anchor: Option<LedgerHead>, losses: &[LossAccepted]) -> RecordVerified {
    let because = report.fault.as_ref().map(|(_, fault)| fault.to_string());
    let within = |anchor: LedgerHead| losses.iter().find(|loss| (loss.kept.seq..=loss.lost.seq).contains(&anchor.seq));
    let because = match (because, anchor.and_then(within)) {
        (Some(because), Some(loss)) => {
            Some(format!("{because}; the owner accepted the loss of records up to {} at {}", loss.lost.seq, loss.time))
        }
        (because, _) => because,
    };
    RecordVerified {
        ok: report.is_ok(),
        head: shown(report.head),
        days: report.days.len() as u64,
        first_bad: report.fault.as_ref().map(|(seq, _)| *seq),
        because,
        anchor: anchor.map(shown),
        losses: losses.to_vec(),
    }
}

fn accepted(loss: &Loss) -> LossAccepted {
    let Loss { time, kept, lost, record } = *loss;
    LossAccepted { time, kept: shown(kept), lost: shown(lost), record: shown(record) }
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

    /// Ends every lease that is in force: its revocation may be among the records that are lost.
    fn end_leases(&self, by: &str) -> Result<(), DoorError> {
        let usable = self.inner.ledger.read(|reader| reader.leases_usable()).map_err(DoorError::Ledger)?;
        let all: BTreeSet<_> = usable.iter().map(|row| row.id).collect();
        // The others go with them.
        for row in usable.iter().filter(|row| row.parent.is_none_or(|parent| !all.contains(&parent))) {
            self.inner.revoke(row.id, by, Some("records were lost: this lease may have been revoked in them"))?;
        }
        Ok(())
    }

    /// Every accepted loss, oldest first: by the anchor, and by the records in case the anchor was lost too.
    fn losses(&self) -> Result<Vec<LossAccepted>, DoorError> {
        let anchored = self.inner.anchor.lock().losses().map_err(DoorError::Ledger)?;
        let mut losses: Vec<_> = anchored.iter().map(accepted).collect();
        let told = self.inner.ledger.read(|reader| reader.records_before(None, None, Some(ACCEPT_LOSS), u32::MAX));
        for record in told.map_err(DoorError::Ledger)? {
            let head = shown(LedgerHead { seq: record.seq, hash: record.hash });
            let part = |name: &str| serde_json::from_value(record.fields.detail.get(name)?.clone()).ok();
            if let (Some(kept), Some(lost)) = (part("kept"), part("lost"))
                && !losses.iter().any(|loss| loss.record == head)
            {
                losses.push(LossAccepted { time: record.fields.time, kept, lost, record: head });
            }
        }
        losses.sort_by_key(|loss| (loss.time, loss.record.seq));
        Ok(losses)
    }
}
