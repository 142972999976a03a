//! L1.3: after expiry the mount is read-only; revocation takes effect within the declared time (LEASE-1, LEASE-3, MOUNT-5).

use nas_nfsclient::nfs3::stable_how;
use nas_nfsclient::{Client, Handle, Status};
use serde_json::json;

use crate::report::{Miss, Verdict, require};
use crate::subject::{ALL, Subject, eventually};

/// The longest life of a lease (LEASE-1).
const TTL_SECONDS_MAX: u64 = 24 * 3600;

pub(crate) fn run(nas: &Subject) -> Verdict {
    let dir = nas.dir("l1_3");
    nas.import(&dir, &[("file", "content\n")])?;
    longest(nas, &dir)?;
    expiry(nas, &dir)?;
    revocation(nas, &dir)
}

/// A lease cannot be had for longer than 24 hours: it is refused, or cut.
fn longest(nas: &Subject, dir: &str) -> Verdict {
    for ttl in [TTL_SECONDS_MAX + 1, 10 * TTL_SECONDS_MAX] {
        let Ok(lease) = nas.lease(&[&format!("{dir}/**")], &["read"], ttl) else { continue };
        let time = |name: &str| lease.info[name].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let life = time("expires_at").zip(time("created_at")).map(|(end, start)| end.as_second() - start.as_second());
        let right = life.and_then(|life| u64::try_from(life).ok()).is_some_and(|life| life <= TTL_SECONDS_MAX);
        require(right, || format!("a lease lives for {TTL_SECONDS_MAX} s at most; one was issued for {life:?}"))?;
    }
    Ok(())
}

fn expiry(nas: &Subject, dir: &str) -> Verdict {
    let lease = nas.lease(&[&format!("{dir}/**")], &ALL, 3)?;
    let child = nas.child(&lease, &[&format!("{dir}/**")], &ALL, 3600)?;
    let mut mounts = Vec::new();
    for lease in [&lease, &child] {
        let mut mount = nas.mount(lease, dir, "branch")?;
        let file = mount.find("file")?.handle;
        mounts.push((mount, file));
    }
    for lease in [&lease, &child] {
        let over = eventually(|| Ok(nas.call("branch/show", Some(&lease.token), &json!({})).is_err()))?;
        require(over, || "a lease of 3 s, and its child, end; one still works after 30 s".to_owned())?;
    }
    for (mount, file) in &mut mounts {
        for attempt in 1..=3 {
            let status = write(mount, file);
            let refused = matches!(status, Some(Status::NFS3ERR_STALE | Status::NFS3ERR_ROFS));
            require(refused, || format!("WRITE number {attempt} after expiry is STALE or ROFS; it got {status:?}"))?;
        }
        let status = mount.remove(&mount.root(), b"file").err().and_then(|error| error.status());
        let refused = matches!(status, Some(Status::NFS3ERR_STALE | Status::NFS3ERR_ROFS));
        require(refused, || format!("REMOVE after expiry is STALE or ROFS; it got {status:?}"))?;
    }
    Ok(())
}

fn revocation(nas: &Subject, dir: &str) -> Verdict {
    let lease = nas.run_in(dir)?;
    let child = nas.child(&lease, &[&format!("{dir}/**")], &ALL, 300)?;
    let mut mounts = Vec::new();
    for lease in [&lease, &child] {
        let mut mount = nas.mount(lease, dir, "branch")?;
        let file = mount.find("file")?.handle;
        mounts.push((mount, file));
    }
    nas.owner("lease/revoke", &json!({ "lease": lease.id(), "why": "conformance" }))?;
    // The declared time is none: the answer to the revocation is the moment from which it holds.
    for (mount, file) in &mut mounts {
        let status = write(mount, file);
        let refused = matches!(status, Some(Status::NFS3ERR_STALE | Status::NFS3ERR_ROFS | Status::NFS3ERR_ACCES));
        require(refused, || format!("WRITE after revocation is refused; it got {status:?}"))?;
    }
    for lease in [&lease, &child] {
        let answered = nas.call("branch/show", Some(&lease.token), &json!({})).is_ok();
        require(!answered, || "a revoked lease, and its child, open nothing over HTTP; one did".to_owned())?;
    }
    Ok::<(), Miss>(())
}

/// The status of a WRITE; none when it was accepted.
fn write(mount: &mut Client, file: &Handle) -> Option<Status> {
    mount.write(file, 0, b"late\n", stable_how::FILE_SYNC).err().and_then(|error| error.status())
}
