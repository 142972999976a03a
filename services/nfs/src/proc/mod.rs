//! The procedures of NFSv3, one file each: arguments in, one or two calls of the Door, results out.
//!
//! None of them decides anything: what is allowed, and what happens, is the Door's. All may block.

mod access;
mod commit;
mod create;
mod fsinfo;
mod fsstat;
mod getattr;
mod link;
mod lookup;
mod mkdir;
mod mknod;
mod pathconf;
mod read;
mod readdir;
mod readdirplus;
mod readlink;
mod remove;
mod rename;
mod rmdir;
mod setattr;
mod symlink;
mod write;

mod listing;

use std::net::IpAddr;
use std::sync::Arc;

use nas_door::{Door, Mounted};
use nas_types::fs::{FsError, Made, Node, NodeRef, SetAttr, Wcc};

use crate::handle::{HANDLE_BYTES, HandleKey};
use crate::wire::args::NewAttr;
use crate::wire::attr::Look;
use crate::wire::rpc::Credential;
use crate::wire::status::{Procedure, Status};
use crate::wire::xdr::{Malformed, Reader, Writer};

/// What a procedure has to know beside its arguments.
pub(crate) struct Context<'a> {
    pub(crate) door: &'a Door,
    pub(crate) key: &'a HandleKey,
    pub(crate) peer: IpAddr,
    pub(crate) credential: Credential,
}

/// An opened handle: a file of a mount that this caller may speak for.
pub(crate) struct Target<'a> {
    key: &'a HandleKey,
    pub(crate) mount: Arc<Mounted>,
    pub(crate) node: NodeRef,
}

impl<'a> Context<'a> {
    /// Opens a handle.
    ///
    /// The caller must be the mount's owner or root. A kernel client sends its own users' ids, so this keeps other users
    /// of the client's machine out of the mount, as its own permission checks do; it must let root through because the
    /// mounting root itself asks for FSINFO and GETATTR. It is no more than that: AUTH_SYS is a claim. Authority is the
    /// handle, which cannot be guessed and works from one address only.
    pub(crate) fn open(&self, handle: &[u8]) -> Result<Target<'a>, Status> {
        let (id, node) = self.key.open(handle).map_err(|error| self.refuse(error.rule(), Status::BadHandle))?;
        let mount = match self.door.mounted(id, self.peer) {
            Ok(mount) => mount,
            Err(FsError::BadRef) => return Err(self.refuse("handle.peer", Status::BadHandle)),
            Err(error) => return Err(error.into()),
        };
        match self.credential {
            Credential::Sys { uid, .. } if uid == 0 || uid == mount.owner().0 => {}
            Credential::Sys { .. } | Credential::None | Credential::Bad | Credential::Unknown => {
                return Err(self.refuse("credential.uid", Status::Acces));
            }
        }
        Ok(Target { key: self.key, mount, node })
    }

    /// Opens two handles, which must be of one mount.
    pub(crate) fn open_two(&self, one: &[u8], other: &[u8]) -> Result<(Target<'a>, NodeRef), Status> {
        let (one, other) = (self.open(one)?, self.open(other)?);
        if one.mount.id() == other.mount.id() { Ok((one, other.node)) } else { Err(Status::XDev) }
    }

    /// Has a refusal recorded that no lease can be found for (SPEC L1.1).
    pub(crate) fn refuse(&self, rule: &'static str, status: Status) -> Status {
        self.door.refuse_unauthenticated("nfs", rule, self.peer);
        status
    }
}

impl Target<'_> {
    pub(crate) fn look(&self) -> Look {
        let (uid, gid) = self.mount.owner();
        Look { uid, gid, fsid: self.mount.fsid() }
    }

    /// The handle of another file of the same mount.
    pub(crate) fn seal(&self, node: &Node) -> [u8; HANDLE_BYTES] {
        self.key.seal(self.mount.id(), node.node)
    }

    /// What a `sattr3` asks for. Owner and group may be set to what they are, as `tar` and `cp -p` do, to nothing else.
    pub(crate) fn settable(&self, new: &NewAttr) -> Result<SetAttr, Status> {
        let (uid, gid) = self.mount.owner();
        if new.uid.is_some_and(|new| new != uid) || new.gid.is_some_and(|new| new != gid) {
            return Err(FsError::NotPermitted.into());
        }
        Ok(new.set)
    }
}

/// Results of CREATE, MKDIR, SYMLINK and MKNOD.
fn put_made(out: &mut Writer<'_>, procedure: Procedure, result: Result<(Target<'_>, Made), Status>) {
    match result {
        Ok((dir, made)) => {
            out.status(Status::Ok);
            out.handle(&dir.seal(&made.node));
            out.attr(&made.node.attr, dir.look());
            out.wcc(&made.dir, dir.look());
        }
        Err(status) => {
            out.status(status.fit(procedure));
            out.no_wcc();
        }
    }
}

/// Results that are one `wcc_data`: SETATTR, REMOVE, RMDIR.
fn put_wcc(out: &mut Writer<'_>, procedure: Procedure, result: Result<(Target<'_>, Wcc), Status>) {
    match result {
        Ok((target, wcc)) => {
            out.status(Status::Ok);
            out.wcc(&wcc, target.look());
        }
        Err(status) => {
            out.status(status.fit(procedure));
            out.no_wcc();
        }
    }
}

/// Runs a procedure: decodes `args`, acts, and appends its results to `out`.
pub(crate) fn run(
    context: &Context<'_>,
    procedure: Procedure,
    args: Reader<'_>,
    out: &mut Writer<'_>,
) -> Result<(), Malformed> {
    match procedure {
        Procedure::Null => Ok(()),
        Procedure::GetAttr => getattr::run(context, args, out),
        Procedure::SetAttr => setattr::run(context, args, out),
        Procedure::Lookup => lookup::run(context, args, out),
        Procedure::Access => access::run(context, args, out),
        Procedure::ReadLink => readlink::run(context, args, out),
        Procedure::Read => read::run(context, args, out),
        Procedure::Write => write::run(context, args, out),
        Procedure::Create => create::run(context, args, out),
        Procedure::MkDir => mkdir::run(context, args, out),
        Procedure::SymLink => symlink::run(context, args, out),
        Procedure::MkNod => mknod::run(context, args, out),
        Procedure::Remove => remove::run(context, args, out),
        Procedure::RmDir => rmdir::run(context, args, out),
        Procedure::Rename => rename::run(context, args, out),
        Procedure::Link => link::run(context, args, out),
        Procedure::ReadDir => readdir::run(context, args, out),
        Procedure::ReadDirPlus => readdirplus::run(context, args, out),
        Procedure::FsStat => fsstat::run(context, args, out),
        Procedure::FsInfo => fsinfo::run(context, args, out),
        Procedure::PathConf => pathconf::run(context, args, out),
        Procedure::Commit => commit::run(context, args, out),
    }
}
