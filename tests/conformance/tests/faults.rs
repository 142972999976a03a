//! The suite itself is tested: proxies that each break one rule are each caught by the test meant for it, and a proxy
//! that breaks none is not.

mod proxy;

use nas_conformance::{Subject, run};
use nas_e2e::TestBox;
use nas_nfsclient::nfs3::*;
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack};
use proxy::{Exchange, HttpFault, NfsFault};
use serde_json::{Value, json};

/// What stands between the suite and the box.
enum Fault {
    Http(&'static HttpFault),
    Nfs(NfsFault),
}

const HONEST: HttpFault = HttpFault { before: |_, _| None, after: |_| {} };

/// The report of one test of the suite (all when none is named) through a fault.
fn through(nas: &TestBox, fault: &Fault, only: &[&str]) -> anyhow::Result<nas_conformance::Report> {
    let (http_fault, nfs_fault): (_, NfsFault) = match fault {
        Fault::Http(fault) => (*fault, |_, results| results),
        Fault::Nfs(fault) => (&HONEST, *fault),
    };
    let (http, nfs) = (proxy::http(nas.http(), http_fault), proxy::nfs(nas.nfs(), nfs_fault));
    let subject = Subject::new(proxy::address(http, nfs, nas.owner())).map_err(anyhow::Error::msg)?;
    let only: Vec<_> = only.iter().map(|id| (*id).to_owned()).collect();
    run(&subject, &only).map_err(anyhow::Error::msg)
}

/// Goal: the honest box fails nothing, seen directly or through proxies that change nothing.
#[test]
fn an_honest_box_passes() -> anyhow::Result<()> {
    let nas = TestBox::start()?;
    let report = through(&nas, &Fault::Http(&HONEST), &[])?;
    assert!(!report.failed(), "{}\n{}", report.to_table(), nas.log());
    assert_eq!(report.tests.len(), nas_conformance::TESTS.len());
    Ok(())
}

/// Each fault, the test that is meant for it, and a word of what that test says about it.
const FAULTS: [(&str, &str, &str, Fault); 13] = [
    ("a hidden name is listed", "L1.1", "a listing holds", Fault::Nfs(hidden_name)),
    ("a refusal is not recorded", "L1.1", "is in the records", Fault::Http(&REFUSAL_UNRECORDED)),
    ("a stale approval is accepted", "L1.7", "another digest", Fault::Http(&STALE_APPROVAL)),
    ("a file is left out of the card", "L1.7", "the diff on the card", Fault::Http(&FILE_LEFT_OUT)),
    ("a record is dropped", "L1.6", "is missing", Fault::Http(&RECORD_DROPPED)),
    ("a record is edited", "L1.6", "does not fit its fields", Fault::Http(&RECORD_EDITED)),
    ("a lease lives longer than allowed", "L1.3", "at most", Fault::Http(&LONGER_LEASE)),
    ("a wider child is issued", "L1.2", "beyond its parent", Fault::Http(&WIDER_CHILD)),
    ("a revocation is swallowed", "L1.3", "after revocation", Fault::Http(&REVOCATION_SWALLOWED)),
    ("an expired mount can be written", "L1.3", "after expiry", Fault::Nfs(expired_writable)),
    ("a write to main is accepted", "L0.2", "on main is refused", Fault::Nfs(main_writable)),
    ("an explanation has no lease", "L1.5", "explains its lease", Fault::Http(&NO_LEASE)),
    ("what was deleted is not in the trash", "L0.3", "is in the trash", Fault::Http(&TRASH_EMPTY)),
];

/// Goal: each broken rule is caught by the test meant for it, which says what is wrong.
#[test]
fn every_fault_is_caught() -> anyhow::Result<()> {
    let nas = TestBox::start()?;
    for (what, id, says, fault) in &FAULTS {
        let report = through(&nas, fault, &[id])?;
        assert_eq!(report.tests[*id], "fail", "not caught: {what}\n{}", report.to_table());
        let because = &report.deviations[0].because;
        assert!(because.contains(says), "{what}: caught for another reason: {because}");
        eprintln!("{what}: {id}: {because}");
    }
    Ok(())
}

/// READDIRPLUS results with a name that the lease does not cover.
fn hidden_name(procedure: u32, results: Vec<u8>) -> Vec<u8> {
    if procedure != NFS_PROGRAM::NFSPROC3_READDIRPLUS as u32 {
        return results;
    }
    let Ok((READDIRPLUS3res::Ok(mut list), _)) = READDIRPLUS3res::unpack(&mut results.as_slice()) else {
        return results;
    };
    if let Some(last) = list.reply.entries.0.last() {
        let entry = entryplus3 {
            fileid: last.fileid + 1,
            name: filename3(Opaque::owned(b"hidden".to_vec())),
            cookie: last.cookie,
            name_attributes: Nfs3Option::None,
            name_handle: Nfs3Option::None,
        };
        list.reply.entries.0.push(entry);
    }
    packed(&READDIRPLUS3res::Ok(list))
}

fn expired_writable(procedure: u32, results: Vec<u8>) -> Vec<u8> {
    writable(procedure, results, nfsstat3::NFS3ERR_STALE)
}

fn main_writable(procedure: u32, results: Vec<u8>) -> Vec<u8> {
    writable(procedure, results, nfsstat3::NFS3ERR_ROFS)
}

/// WRITE results that say OK where the box said `refusal`.
fn writable(procedure: u32, results: Vec<u8>, refusal: nfsstat3) -> Vec<u8> {
    if procedure != NFS_PROGRAM::NFSPROC3_WRITE as u32 || !results.starts_with(&(refusal as u32).to_be_bytes()) {
        return results;
    }
    packed(&WRITE3res::Ok(WRITE3resok {
        file_wcc: wcc_data::default(),
        count: 5,
        committed: stable_how::FILE_SYNC,
        verf: writeverf3::default(),
    }))
}

fn packed(results: &impl Pack) -> Vec<u8> {
    let mut bytes = Vec::new();
    results.pack(&mut bytes).expect("because memory takes it");
    bytes
}

/// Changes the answers of one verb that succeed.
fn on(exchange: &mut Exchange<'_>, verb: &str, change: impl FnOnce(&mut Value)) {
    if exchange.verb == verb && exchange.status == 200 {
        change(&mut exchange.answer);
    }
}

fn retain(list: &mut Value, keep: impl Fn(&Value) -> bool) {
    if let Some(list) = list.as_array_mut() {
        list.retain(keep);
    }
}

const REFUSAL_UNRECORDED: HttpFault = HttpFault {
    after: |exchange| {
        on(exchange, "record/list", |page| retain(&mut page["records"], |record| record["effect"] != "deny"))
    },
    ..HONEST
};

const RECORD_DROPPED: HttpFault = HttpFault {
    after: |exchange| {
        on(exchange, "record/list", |page| retain(&mut page["records"], |record| record["kind"] != "merge.outcome"))
    },
    ..HONEST
};

const RECORD_EDITED: HttpFault = HttpFault {
    after: |exchange| {
        on(exchange, "record/list", |page| {
            for record in page["records"].as_array_mut().into_iter().flatten() {
                if record["kind"] == "merge.intent" {
                    record["principal"] = "agent:nobody".into();
                }
            }
        });
    },
    ..HONEST
};

const STALE_APPROVAL: HttpFault = HttpFault {
    after: |exchange| {
        if exchange.verb == "gate/approve" && exchange.status != 200 && exchange.body["passphrase"] != "guessed" {
            exchange.status = 200;
            exchange.answer = json!({ "gate": exchange.body["gate"], "state": "approved", "commit": "0".repeat(40) });
        }
    },
    ..HONEST
};

const FILE_LEFT_OUT: HttpFault = HttpFault {
    after: |exchange| {
        on(exchange, "gate/show", |card| {
            let diff = card["diff"].as_str().unwrap_or_default();
            let kept: Vec<_> = diff.lines().filter(|line| *line != "+2 new" && *line != "-2 old").collect();
            card["diff"] = kept.join("\n").into();
        });
    },
    ..HONEST
};

const LONGER_LEASE: HttpFault = HttpFault {
    before: |verb, body| {
        let longer = verb == "lease/create" && body["ttl_seconds"].as_u64() > Some(24 * 3600);
        let lease =
            json!({ "lease": "lse_x", "created_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-02T00:00:01Z" });
        longer.then(|| json!({ "lease": lease, "token": "nas_lease_x" }))
    },
    ..HONEST
};

const WIDER_CHILD: HttpFault = HttpFault {
    after: |exchange| {
        if exchange.verb == "lease/create" && exchange.status == 403 {
            exchange.status = 200;
            exchange.answer = json!({ "lease": { "lease": "lse_x" }, "token": "nas_lease_x" });
        }
    },
    ..HONEST
};

const REVOCATION_SWALLOWED: HttpFault = HttpFault {
    before: |verb, body| (verb == "lease/revoke").then(|| json!({ "revoked": [body["lease"]], "record": 1 })),
    ..HONEST
};

const NO_LEASE: HttpFault = HttpFault {
    after: |exchange| on(exchange, "explain/commit", |explanation| explanation["lease"] = Value::Null),
    ..HONEST
};

const TRASH_EMPTY: HttpFault = HttpFault {
    after: |exchange| {
        on(exchange, "trash/list", |trash| {
            retain(&mut trash["entries"], |entry| !entry["path"].as_str().unwrap_or_default().ends_with("gone.txt"));
        });
    },
    ..HONEST
};
