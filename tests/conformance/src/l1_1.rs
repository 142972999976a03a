//! L1.1: a request without a lease is refused and recorded; what a lease does not cover is not there (MOUNT-3, MOUNT-5).

use std::collections::BTreeSet;

use nas_nfsclient::client::handle_of;
use nas_nfsclient::{Error, Status};
use serde_json::{Value, json};

use crate::report::{Verdict, require};
use crate::subject::{Subject, eventually};

pub(crate) fn run(nas: &Subject) -> Verdict {
    let dir = nas.dir("l1_1");
    nas.import(&dir, &[("seen/file", "seen\n"), ("hidden/file", "hidden\n")])?;
    over_http(nas, &dir)?;
    over_nfs(nas, &dir)?;
    hidden_names(nas, &dir)
}

fn over_http(nas: &Subject, dir: &str) -> Verdict {
    let revoked = nas.run_in(dir)?;
    let mark = nas.head()?;
    nas.owner("lease/revoke", &json!({ "lease": revoked.id() }))?;
    let foreign = format!("nas_lease_{}", "a".repeat(52));
    let tokens = [
        ("no token", None),
        ("a malformed token", Some("not a token")),
        ("a made-up token", Some(foreign.as_str())),
        ("a revoked token", Some(revoked.token.as_str())),
    ];
    for (what, token) in tokens {
        for verb in ["branch/show", "tree/list", "mount/ticket"] {
            let body = if verb == "tree/list" { json!({ "path": dir }) } else { json!({}) };
            let refused = nas.call(verb, token, &body).err();
            let right = refused.as_ref().is_some_and(|refused| matches!(refused.status, 401 | 403));
            let found = refused.map_or_else(|| "an answer".to_owned(), |refused| refused.to_string());
            require(right, || format!("{verb} with {what} is refused with HTTP 401 or 403; it got {found}"))?;
        }
    }
    kinds_recorded(nas, 1, "a call without a lease")?;
    nas.refusal_recorded(mark, "a revoked token", |record| record["run"] == revoked.run())
}

/// Refusals without any lease, of so many kinds, are in the records. A box may record only the first of a kind in a
/// minute, so that nobody fills its ledger: what counts is how many rules refused something in the last two.
fn kinds_recorded(nas: &Subject, kinds: usize, what: &str) -> Verdict {
    let found = eventually(|| {
        let records = nas.newest_records()?;
        let newest = records.iter().filter_map(time_of).max();
        let recent = |record: &&Value| {
            let age = newest.zip(time_of(record)).map(|(newest, time)| newest.as_second() - time.as_second());
            age.is_some_and(|age| age <= 120)
        };
        let refusals = records.iter().filter(|record| record["effect"] == "deny" && record["run"].is_null());
        let rules: BTreeSet<_> = refusals.filter(recent).filter_map(|record| record["rule"].as_str()).collect();
        Ok(rules.len() >= kinds)
    })?;
    require(found, || format!("the refusal of {what} is in the records, with its rule (SPEC L1.1); it is not"))
}

fn time_of(record: &Value) -> Option<jiff::Timestamp> {
    record["time"].as_str()?.parse().ok()
}

fn over_nfs(nas: &Subject, dir: &str) -> Verdict {
    let lease = nas.run_in(dir)?;
    let used = nas.export(&lease, dir, "branch")?;
    let mut work = nas.mount_export(&used)?;
    for export in [used.as_str(), "/tkt_made_up/shared", "/shared", "/"] {
        let refused = matches!(nas.mount_export(export), Err(Error::Mount(_)));
        require(refused, || "MNT with a used ticket, a made-up one or none is refused; it was mounted".to_owned())?;
    }
    kinds_recorded(nas, 2, "a mount without a fresh ticket")?;

    let genuine = work.find("seen/file")?.handle.data.as_ref().to_vec();
    for at in 0..genuine.len() {
        let mut forged = genuine.clone();
        forged[at] ^= 1;
        let status = work.read(&handle_of(&forged), 0, 16).err().and_then(|error| error.status());
        let refused = matches!(status, Some(Status::NFS3ERR_BADHANDLE | Status::NFS3ERR_STALE | Status::NFS3ERR_ACCES));
        require(refused, || format!("a handle with one bit changed (byte {at}) is refused; it got {status:?}"))?;
    }
    kinds_recorded(nas, 3, "a forged handle")
}

fn hidden_names(nas: &Subject, dir: &str) -> Verdict {
    let narrow = nas.lease(&[&format!("{dir}/seen/**")], &["read"], 600)?;
    for view in ["branch", "main"] {
        let mut mount = nas.mount(&narrow, dir, view)?;
        let names = mount.list("")?;
        require(names == [b"seen"], || {
            let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
            format!("a listing holds what the lease covers, 'seen' alone; it holds {names:?}")
        })?;
        let status = mount.find("hidden/file").err().and_then(|error| error.status());
        require(status == Some(Status::NFS3ERR_NOENT), || format!("a hidden name is NOENT; it got {status:?}"))?;
    }
    let listed = nas.call("tree/list", Some(&narrow.token), &json!({ "path": dir, "view": "main" }))?;
    require(!listed.to_string().contains("hidden"), || "tree/list shows no hidden name; it does".to_owned())
}
