//! A mount and its procedures.

use std::net::{SocketAddr, ToSocketAddrs};

use nfs3_types::mount::{self, dirpath, mountres3};
use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack, Void};

use crate::{Connection, Credential, Error, Result};

/// A file handle.
pub type Handle = nfs_fh3;

/// A file that was found or made.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its handle.
    pub handle: Handle,
    /// Its attributes, if the server sent them.
    pub attr: Option<fattr3>,
}

/// A connection with a mounted root. Every method is one call.
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    connection: Connection,
    credential: Credential,
    root: Handle,
}

fn ok<T, E>(result: Nfs3Result<T, E>) -> Result<T> {
    match result {
        Nfs3Result::Ok(value) => Ok(value),
        Nfs3Result::Err((status, _)) => Err(Error::Nfs(status)),
    }
}

fn some<T: Pack + Unpack>(option: Nfs3Option<T>) -> Option<T> {
    match option {
        Nfs3Option::Some(value) => Some(value),
        Nfs3Option::None => None,
    }
}

/// A name in a directory.
#[must_use]
pub fn at<'a>(dir: &Handle, name: &'a [u8]) -> diropargs3<'a> {
    diropargs3 { dir: dir.clone(), name: name.into() }
}

/// A handle of these bytes, whatever they are.
#[must_use]
pub fn handle_of(bytes: &[u8]) -> Handle {
    nfs_fh3 { data: Opaque::owned(bytes.to_vec()) }
}

/// Attributes for a new file: this mode and nothing else.
#[must_use]
pub fn mode(mode: u32) -> sattr3 {
    sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() }
}

fn made(obj: post_op_fh3, attr: post_op_attr) -> Result<Found> {
    let handle = some(obj).ok_or_else(|| Error::Reply("it has no handle".to_owned()))?;
    Ok(Found { handle, attr: some(attr) })
}

impl Client {
    /// Connects and mounts `export` (`/<ticket>/path`) as `credential`.
    pub fn mount(address: impl ToSocketAddrs, export: &str, credential: Credential) -> Result<Self> {
        let mut connection = Connection::open(address)?;
        let address = connection.peer()?;
        let args = dirpath(Opaque::borrowed(export.as_bytes()));
        let answer: mountres3<'_> = connection.call(mount::PROGRAM, 1, credential, &args)?;
        match answer {
            mountres3::Ok(ok) => {
                let root = nfs_fh3 { data: Opaque::owned(ok.fhandle.0.into_owned()) };
                Ok(Self { address, connection, credential, root })
            }
            mountres3::Err(status) => Err(Error::Mount(status)),
        }
    }

    /// A client on a new connection that holds `root` already: a mount that was made before.
    pub fn with_root(address: impl ToSocketAddrs, root: Handle, credential: Credential) -> Result<Self> {
        Self::on(Connection::open(address)?, root, credential)
    }

    /// A client on `connection` that holds `root` already.
    pub fn on(connection: Connection, root: Handle, credential: Credential) -> Result<Self> {
        Ok(Self { address: connection.peer()?, connection, credential, root })
    }

    /// The same mount on a new connection.
    pub fn reconnect(&self) -> Result<Self> {
        Self::with_root(self.address, self.root.clone(), self.credential)
    }

    /// The same mount on a new connection as somebody else.
    pub fn reconnect_as(&self, credential: Credential) -> Result<Self> {
        Self::with_root(self.address, self.root.clone(), credential)
    }

    /// UMNT.
    pub fn unmount(&mut self, export: &str) -> Result<()> {
        let args = dirpath(Opaque::borrowed(export.as_bytes()));
        let _: Void = self.connection.call(mount::PROGRAM, 3, self.credential, &args)?;
        Ok(())
    }

    /// The mounted root.
    #[must_use]
    pub fn root(&self) -> Handle {
        self.root.clone()
    }

    /// The connection, to send what no method sends.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// The credential of every call.
    #[must_use]
    pub fn credential(&self) -> Credential {
        self.credential
    }

    /// Any NFS procedure, with its arguments and results as they are on the wire.
    pub fn raw<R: Unpack>(&mut self, procedure: NFS_PROGRAM, args: &impl Pack) -> Result<R> {
        self.connection.call(PROGRAM, procedure as u32, self.credential, args)
    }

    /// Any NFS procedure with a chosen xid: a retransmission when it was used before.
    pub fn raw_with_xid<R: Unpack>(&mut self, xid: u32, procedure: NFS_PROGRAM, args: &impl Pack) -> Result<R> {
        self.connection.call_with_xid(xid, PROGRAM, procedure as u32, self.credential, args)
    }

    /// NULL.
    pub fn null(&mut self) -> Result<()> {
        let _: Void = self.raw(NFS_PROGRAM::NFSPROC3_NULL, &Void)?;
        Ok(())
    }

    /// GETATTR.
    pub fn getattr(&mut self, object: &Handle) -> Result<fattr3> {
        let args = GETATTR3args { object: object.clone() };
        Ok(ok(self.raw::<GETATTR3res>(NFS_PROGRAM::NFSPROC3_GETATTR, &args)?)?.obj_attributes)
    }

    /// SETATTR; `guard` is the ctime the file must have.
    pub fn setattr(&mut self, object: &Handle, new: sattr3, guard: Option<nfstime3>) -> Result<wcc_data> {
        let guard = guard.map_or(Nfs3Option::None, Nfs3Option::Some);
        let args = SETATTR3args { object: object.clone(), new_attributes: new, guard };
        Ok(ok(self.raw::<SETATTR3res>(NFS_PROGRAM::NFSPROC3_SETATTR, &args)?)?.obj_wcc)
    }

    /// SETATTR of the size.
    pub fn truncate(&mut self, file: &Handle, size: u64) -> Result<()> {
        self.setattr(file, sattr3 { size: Nfs3Option::Some(size), ..sattr3::default() }, None)?;
        Ok(())
    }

    /// LOOKUP.
    pub fn lookup(&mut self, dir: &Handle, name: &[u8]) -> Result<Found> {
        let args = LOOKUP3args { what: at(dir, name) };
        let found = ok(self.raw::<LOOKUP3res>(NFS_PROGRAM::NFSPROC3_LOOKUP, &args)?)?;
        Ok(Found { handle: found.object, attr: some(found.obj_attributes) })
    }

    /// ACCESS: which of the `ACCESS3_*` bits in `wanted` are allowed.
    pub fn access(&mut self, object: &Handle, wanted: u32) -> Result<u32> {
        let args = ACCESS3args { object: object.clone(), access: wanted };
        Ok(ok(self.raw::<ACCESS3res>(NFS_PROGRAM::NFSPROC3_ACCESS, &args)?)?.access)
    }

    /// READLINK.
    pub fn readlink(&mut self, link: &Handle) -> Result<Vec<u8>> {
        let args = READLINK3args { symlink: link.clone() };
        let read = ok(self.raw::<READLINK3res<'static>>(NFS_PROGRAM::NFSPROC3_READLINK, &args)?)?;
        Ok(read.data.0.into_owned())
    }

    /// READ: the bytes and whether they reach the end.
    pub fn read(&mut self, file: &Handle, offset: u64, count: u32) -> Result<(Vec<u8>, bool)> {
        let args = READ3args { file: file.clone(), offset, count };
        let read = ok(self.raw::<READ3res<'static>>(NFS_PROGRAM::NFSPROC3_READ, &args)?)?;
        Ok((read.data.into_owned(), read.eof))
    }

    /// WRITE.
    pub fn write(&mut self, file: &Handle, offset: u64, data: &[u8], stable: stable_how) -> Result<WRITE3resok> {
        let count = u32::try_from(data.len()).map_err(|_| Error::Rpc("the data is too long".to_owned()))?;
        let args = WRITE3args { file: file.clone(), offset, count, stable, data: Opaque::borrowed(data) };
        ok(self.raw::<WRITE3res>(NFS_PROGRAM::NFSPROC3_WRITE, &args)?)
    }

    /// CREATE.
    pub fn create(&mut self, dir: &Handle, name: &[u8], how: createhow3) -> Result<Found> {
        let args = CREATE3args { where_: at(dir, name), how };
        let new = ok(self.raw::<CREATE3res>(NFS_PROGRAM::NFSPROC3_CREATE, &args)?)?;
        made(new.obj, new.obj_attributes)
    }

    /// MKDIR.
    pub fn mkdir(&mut self, dir: &Handle, name: &[u8], new: sattr3) -> Result<Found> {
        let args = MKDIR3args { where_: at(dir, name), attributes: new };
        let new = ok(self.raw::<MKDIR3res>(NFS_PROGRAM::NFSPROC3_MKDIR, &args)?)?;
        made(new.obj, new.obj_attributes)
    }

    /// SYMLINK.
    pub fn symlink(&mut self, dir: &Handle, name: &[u8], target: &[u8]) -> Result<Found> {
        let symlink = symlinkdata3 { symlink_attributes: mode(0o777), symlink_data: target.into() };
        let args = SYMLINK3args { where_: at(dir, name), symlink };
        let new = ok(self.raw::<SYMLINK3res>(NFS_PROGRAM::NFSPROC3_SYMLINK, &args)?)?;
        made(new.obj, new.obj_attributes)
    }

    /// MKNOD.
    pub fn mknod(&mut self, dir: &Handle, name: &[u8], what: mknoddata3) -> Result<Found> {
        let args = MKNOD3args { where_: at(dir, name), what };
        let new = ok(self.raw::<MKNOD3res>(NFS_PROGRAM::NFSPROC3_MKNOD, &args)?)?;
        made(new.obj, new.obj_attributes)
    }

    /// REMOVE.
    pub fn remove(&mut self, dir: &Handle, name: &[u8]) -> Result<()> {
        let args = REMOVE3args { object: at(dir, name) };
        ok(self.raw::<REMOVE3res>(NFS_PROGRAM::NFSPROC3_REMOVE, &args)?)?;
        Ok(())
    }

    /// RMDIR.
    pub fn rmdir(&mut self, dir: &Handle, name: &[u8]) -> Result<()> {
        let args = RMDIR3args { object: at(dir, name) };
        ok(self.raw::<RMDIR3res>(NFS_PROGRAM::NFSPROC3_RMDIR, &args)?)?;
        Ok(())
    }

    /// RENAME.
    pub fn rename(&mut self, from: &Handle, name: &[u8], to: &Handle, to_name: &[u8]) -> Result<()> {
        let args = RENAME3args { from: at(from, name), to: at(to, to_name) };
        ok(self.raw::<RENAME3res>(NFS_PROGRAM::NFSPROC3_RENAME, &args)?)?;
        Ok(())
    }

    /// LINK.
    pub fn link(&mut self, file: &Handle, dir: &Handle, name: &[u8]) -> Result<()> {
        let args = LINK3args { file: file.clone(), link: at(dir, name) };
        ok(self.raw::<LINK3res>(NFS_PROGRAM::NFSPROC3_LINK, &args)?)?;
        Ok(())
    }

    /// READDIR: one reply.
    pub fn readdir(&mut self, dir: &Handle, cookie: u64, count: u32) -> Result<(Vec<entry3<'static>>, bool)> {
        let args = READDIR3args { dir: dir.clone(), cookie, cookieverf: cookieverf3::default(), count };
        let list = ok(self.raw::<READDIR3res<'static>>(NFS_PROGRAM::NFSPROC3_READDIR, &args)?)?;
        Ok((list.reply.entries.0, list.reply.eof))
    }

    /// READDIRPLUS: one reply.
    pub fn readdirplus(
        &mut self,
        dir: &Handle,
        cookie: u64,
        dircount: u32,
        maxcount: u32,
    ) -> Result<(Vec<entryplus3<'static>>, bool)> {
        let cookieverf = cookieverf3::default();
        let args = READDIRPLUS3args { dir: dir.clone(), cookie, cookieverf, dircount, maxcount };
        let list = ok(self.raw::<READDIRPLUS3res<'static>>(NFS_PROGRAM::NFSPROC3_READDIRPLUS, &args)?)?;
        Ok((list.reply.entries.0, list.reply.eof))
    }

    /// FSSTAT.
    pub fn fsstat(&mut self) -> Result<FSSTAT3resok> {
        let args = FSSTAT3args { fsroot: self.root() };
        ok(self.raw::<FSSTAT3res>(NFS_PROGRAM::NFSPROC3_FSSTAT, &args)?)
    }

    /// FSINFO.
    pub fn fsinfo(&mut self) -> Result<FSINFO3resok> {
        let args = FSINFO3args { fsroot: self.root() };
        ok(self.raw::<FSINFO3res>(NFS_PROGRAM::NFSPROC3_FSINFO, &args)?)
    }

    /// PATHCONF.
    pub fn pathconf(&mut self) -> Result<PATHCONF3resok> {
        let args = PATHCONF3args { object: self.root() };
        ok(self.raw::<PATHCONF3res>(NFS_PROGRAM::NFSPROC3_PATHCONF, &args)?)
    }

    /// COMMIT of the whole file: the verifier.
    pub fn commit(&mut self, file: &Handle) -> Result<[u8; 8]> {
        let args = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
        Ok(ok(self.raw::<COMMIT3res>(NFS_PROGRAM::NFSPROC3_COMMIT, &args)?)?.verf.0)
    }
}
