//! MNT (RFC 1813 §5.2.1): a ticket becomes a mount.

use nas_types::fs::FsError;
use nas_types::path::{PathError, TreePath};

use super::Export;
use crate::handle::HANDLE_BYTES;
use crate::proc::Context;
use crate::wire::args::parse_export_path;
use crate::wire::rpc::Credential;
use crate::wire::status::{MountStatus, Status};
use crate::wire::xdr::{Malformed, Reader, Writer};

/// The only flavor that works: without a user id there is no owner.
const AUTH_SYS: u32 = 1;

fn path_error(error: PathError) -> MountStatus {
    match error {
        PathError::NameTooLong | PathError::PathTooLong => MountStatus::NameTooLong,
        PathError::Empty | PathError::Dots | PathError::Forbidden | PathError::NotAbsolute | PathError::Escape => {
            MountStatus::Inval
        }
    }
}

/// Everything that can be wrong without asking the Door is found first: a ticket is not spent on a typing error.
fn mount(context: &Context<'_>, path: &[u8]) -> Result<[u8; HANDLE_BYTES], MountStatus> {
    let refuse = |rule, status| {
        context.refuse(rule, Status::Acces);
        status
    };
    let Credential::Sys { uid, gid } = context.credential else {
        return Err(refuse("mount.credential", MountStatus::Acces));
    };
    let export = Export::parse(path).ok_or_else(|| refuse("mount.ticket", MountStatus::NoEnt))?;
    let owner = match export.owner {
        None => (uid, gid),
        Some(owner) if uid == 0 || owner == (uid, gid) => owner,
        Some(_) => return Err(refuse("mount.owner", MountStatus::Perm)),
    };
    let path = if matches!(export.path, b"" | b"/") {
        TreePath::root()
    } else {
        TreePath::from_absolute(export.path).map_err(path_error)?
    };
    let mount = context.door.mount(export.ticket, &path, context.peer, owner).map_err(|error: FsError| {
        tracing::info!(peer = %context.peer, path = %path, %error, "a mount was refused");
        MountStatus::from(error)
    })?;
    tracing::info!(peer = %context.peer, path = %path, mount = %mount.id(), "mounted");
    Ok(context.key.seal(mount.id(), mount.root()))
}

pub(super) fn run(context: &Context<'_>, args: Reader<'_>, out: &mut Writer<'_>) -> Result<(), Malformed> {
    let path = parse_export_path(args)?;
    match mount(context, path) {
        Ok(handle) => {
            out.mount_status(MountStatus::Ok);
            out.opaque(&handle);
            out.u32(1);
            out.u32(AUTH_SYS);
        }
        Err(status) => out.mount_status(status),
    }
    Ok(())
}
