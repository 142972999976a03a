//! The wire against another implementation of the same RFCs (`nfs3_types`), and against garbage.

use nas_types::fs::{Attr, FileKind, SetTime, Stability, Wcc};
use nas_types::time::FileTime;
use nfs3_types::nfs3::{self, Nfs3Option, Nfs3Result, nfs_fh3, nfstime3, sattr3, set_atime, set_mtime};
use nfs3_types::rpc::{auth_unix, call_body, msg_body, opaque_auth, rpc_msg};
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack};
use proptest::collection::vec;
use proptest::prelude::*;

use super::args::*;
use super::attr::Look;
use super::rpc::{self, Call, Credential, Refusal};
use super::status::{Procedure, Status};
use super::xdr::{Reader, Writer};

fn packed(value: &impl Pack) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.pack(&mut bytes).unwrap();
    bytes
}

fn unpacked<T: Unpack>(bytes: &[u8]) -> T {
    let mut cursor = std::io::Cursor::new(bytes);
    let (value, read) = T::unpack(&mut cursor).unwrap();
    assert_eq!(read, bytes.len(), "the oracle reads all of what we write");
    value
}

fn fh(bytes: &[u8]) -> nfs_fh3 {
    nfs_fh3 { data: Opaque::owned(bytes.to_vec()) }
}

fn place<'a>(dir: &[u8], name: &'a [u8]) -> nfs3::diropargs3<'a> {
    nfs3::diropargs3 { dir: fh(dir), name: name.into() }
}

fn option<T: Pack + Unpack>(value: Option<T>) -> Nfs3Option<T> {
    value.map_or(Nfs3Option::None, Nfs3Option::Some)
}

prop_compose! {
    fn handle()(bytes in vec(any::<u8>(), 0..=64)) -> Vec<u8> { bytes }
}

prop_compose! {
    fn name()(bytes in vec(any::<u8>(), 0..=300)) -> Vec<u8> { bytes }
}

fn set_time() -> impl Strategy<Value = SetTime> {
    prop_oneof![
        Just(SetTime::Keep),
        Just(SetTime::Now),
        (any::<u32>(), 0..1_000_000_000_u32)
            .prop_map(|(secs, nanos)| SetTime::To(FileTime { secs: i64::from(secs), nanos })),
    ]
}

prop_compose! {
    fn new_attr()(
        mode: Option<u32>, uid: Option<u32>, gid: Option<u32>, size: Option<u64>,
        atime in set_time(), mtime in set_time(),
    ) -> NewAttr {
        NewAttr { set: nas_types::fs::SetAttr { mode, size, atime, mtime }, uid, gid }
    }
}

fn wire_time(time: FileTime) -> nfstime3 {
    nfstime3 { seconds: u32::try_from(time.secs).unwrap(), nseconds: time.nanos }
}

fn sattr(new: &NewAttr) -> sattr3 {
    sattr3 {
        mode: option(new.set.mode),
        uid: option(new.uid),
        gid: option(new.gid),
        size: option(new.set.size),
        atime: match new.set.atime {
            SetTime::Keep => set_atime::DONT_CHANGE,
            SetTime::Now => set_atime::SET_TO_SERVER_TIME,
            SetTime::To(time) => set_atime::SET_TO_CLIENT_TIME(wire_time(time)),
        },
        mtime: match new.set.mtime {
            SetTime::Keep => set_mtime::DONT_CHANGE,
            SetTime::Now => set_mtime::SET_TO_SERVER_TIME,
            SetTime::To(time) => set_mtime::SET_TO_CLIENT_TIME(wire_time(time)),
        },
    }
}

proptest! {
    /// Goal: what the oracle encodes, we decode to the same values, for every kind of arguments.
    #[test]
    fn arguments(
        (dir, file) in (handle(), handle()), (one, two) in (name(), name()), new in new_attr(),
        guard: Option<(u32, u32)>, offset: u64, count: u32, data in vec(any::<u8>(), 0..3000), verifier: [u8; 8],
    ) {
        let in_dir = DirOp { dir: &dir, name: &one };

        let bytes = packed(&nfs3::GETATTR3args { object: fh(&file) });
        prop_assert_eq!(OneHandle::parse(Reader::new(&bytes)), Ok(OneHandle { object: &file }));

        let bytes = packed(&nfs3::LOOKUP3args { what: place(&dir, &one) });
        prop_assert_eq!(parse_dir_op(Reader::new(&bytes)), Ok(in_dir));

        let guard = guard.map(|(secs, nanos)| FileTime { secs: i64::from(secs), nanos: nanos % 1_000_000_000 });
        let wire_guard = option(guard.map(wire_time));
        let bytes = packed(&nfs3::SETATTR3args { object: fh(&file), new_attributes: sattr(&new), guard: wire_guard });
        prop_assert_eq!(SetAttrArgs::parse(Reader::new(&bytes)), Ok(SetAttrArgs { object: &file, new, guard }));

        let bytes = packed(&nfs3::ACCESS3args { object: fh(&file), access: count });
        prop_assert_eq!(AccessArgs::parse(Reader::new(&bytes)), Ok(AccessArgs { object: &file, wanted: count }));

        let range = RangeArgs { file: &file, offset, count };
        let bytes = packed(&nfs3::READ3args { file: fh(&file), offset, count });
        prop_assert_eq!(RangeArgs::parse(Reader::new(&bytes)), Ok(range));

        let stable = nfs3::stable_how::DATA_SYNC;
        let data_out = Opaque::borrowed(&data);
        let bytes = packed(&nfs3::WRITE3args { file: fh(&file), offset, count, stable, data: data_out });
        let write = WriteArgs { file: &file, offset, count, stability: Stability::DataSync, data: &data };
        prop_assert_eq!(WriteArgs::parse(Reader::new(&bytes)), Ok(write));

        for (how, mode) in [
            (nfs3::createhow3::UNCHECKED(sattr(&new)), CreateMode::Unchecked(new)),
            (nfs3::createhow3::GUARDED(sattr(&new)), CreateMode::Guarded(new)),
            (nfs3::createhow3::EXCLUSIVE(nfs3::createverf3(verifier)), CreateMode::Exclusive(verifier)),
        ] {
            let bytes = packed(&nfs3::CREATE3args { where_: place(&dir, &one), how });
            prop_assert_eq!(CreateArgs::parse(Reader::new(&bytes)), Ok(CreateArgs { place: in_dir, mode }));
        }

        let bytes = packed(&nfs3::MKDIR3args { where_: place(&dir, &one), attributes: sattr(&new) });
        prop_assert_eq!(MkDirArgs::parse(Reader::new(&bytes)), Ok(MkDirArgs { place: in_dir, new }));

        let symlink = nfs3::symlinkdata3 { symlink_attributes: sattr(&new), symlink_data: two.as_slice().into() };
        let bytes = packed(&nfs3::SYMLINK3args { where_: place(&dir, &one), symlink });
        prop_assert_eq!(SymLinkArgs::parse(Reader::new(&bytes)), Ok(SymLinkArgs { place: in_dir, new, target: &two }));

        let device = || nfs3::devicedata3 { dev_attributes: sattr(&new), spec: nfs3::specdata3::default() };
        for (what, kind) in [
            (nfs3::mknoddata3::NF3FIFO(sattr(&new)), NodeKind::Fifo(new)),
            (nfs3::mknoddata3::NF3SOCK(sattr(&new)), NodeKind::Socket(new)),
            (nfs3::mknoddata3::NF3CHR(device()), NodeKind::Device),
            (nfs3::mknoddata3::NF3BLK(device()), NodeKind::Device),
        ] {
            let bytes = packed(&nfs3::MKNOD3args { where_: place(&dir, &one), what });
            prop_assert_eq!(MkNodArgs::parse(Reader::new(&bytes)), Ok(MkNodArgs { place: in_dir, kind }));
        }

        let to = DirOp { dir: &file, name: &two };
        let bytes = packed(&nfs3::RENAME3args { from: place(&dir, &one), to: place(&file, &two) });
        prop_assert_eq!(RenameArgs::parse(Reader::new(&bytes)), Ok(RenameArgs { from: in_dir, to }));

        let bytes = packed(&nfs3::LINK3args { file: fh(&file), link: place(&dir, &one) });
        prop_assert_eq!(LinkArgs::parse(Reader::new(&bytes)), Ok(LinkArgs { file: &file, place: in_dir }));

        let cookieverf = nfs3::cookieverf3(verifier);
        let bytes = packed(&nfs3::READDIR3args { dir: fh(&dir), cookie: offset, cookieverf, count });
        let listing = ReadDirArgs { dir: &dir, cookie: offset, dircount: count, maxcount: count };
        prop_assert_eq!(ReadDirArgs::parse(Reader::new(&bytes), false), Ok(listing));
        let (dircount, maxcount) = (count, !count);
        let bytes = packed(&nfs3::READDIRPLUS3args { dir: fh(&dir), cookie: offset, cookieverf, dircount, maxcount });
        let listing = ReadDirArgs { maxcount, ..listing };
        prop_assert_eq!(ReadDirArgs::parse(Reader::new(&bytes), true), Ok(listing));
    }

    /// Goal: a call header of the oracle is ours, with its credential, and the arguments begin right after it.
    #[test]
    fn call_headers(
        xid: u32, prog: u32, vers: u32, proc: u32, uid: u32, gid: u32,
        machine in vec(any::<u8>(), 0..=255), gids in vec(any::<u32>(), 0..=16), args in vec(any::<u8>(), 0..50),
    ) {
        prop_assume!(machine.len() + 4 * gids.len() <= 370);
        let auth = auth_unix { stamp: 7, machinename: Opaque::owned(machine), uid, gid, gids };
        let cred = opaque_auth::auth_unix(&auth);
        let body = call_body { rpcvers: 2, prog, vers, proc, cred, verf: opaque_auth::default() };
        let mut record = packed(&rpc_msg { xid, body: msg_body::CALL(body) });
        record.extend_from_slice(&args);
        let call = Call::parse(&record).unwrap();
        prop_assert!(call.speaks_our_rpc());
        prop_assert_eq!((call.xid, call.program, call.version, call.procedure), (xid, prog, vers, proc));
        prop_assert_eq!(call.credential, Credential::Sys { uid, gid });
        prop_assert_eq!(call.args.rest(), &args[..]);
    }

    /// Goal: whatever is cut from, added to or flipped in a valid call, no parser panics, and what parses is made of bytes
    /// of the record: nothing is allocated for a length that lies.
    #[test]
    fn mutated_calls(
        procedure in 0..24_u32, dir in handle(), one in name(), cut in 0..700_usize,
        flips in vec((0..700_usize, any::<u8>()), 0..6), tail in vec(any::<u8>(), 0..40),
    ) {
        let body = call_body {
            rpcvers: 2, prog: rpc::NFS_PROGRAM, vers: 3, proc: procedure,
            cred: opaque_auth::auth_unix(&auth_unix::default()), verf: opaque_auth::default(),
        };
        let mut record = packed(&rpc_msg { xid: 1, body: msg_body::CALL(body) });
        nfs3::CREATE3args { where_: place(&dir, &one), how: nfs3::createhow3::GUARDED(sattr3::default()) }
            .pack(&mut record).unwrap();
        for (at, value) in flips {
            if let Some(byte) = record.get_mut(at) {
                *byte ^= value;
            }
        }
        record.truncate(cut.max(1));
        record.extend_from_slice(&tail);
        if let Ok(call) = Call::parse(&record) {
            parse_everything(call.args);
        }
    }

    /// Goal: no bytes at all panic a parser.
    #[test]
    fn any_bytes(record in vec(any::<u8>(), 0..400)) {
        let _ = Call::parse(&record);
        parse_everything(Reader::new(&record));
    }

    /// Goal: the oracle reads our attributes and statuses as they were meant; times outside 32 bits are clamped.
    #[test]
    fn attributes(
        kind in 0..5_usize, mode: u32, nlink: u32, size: u64, used: u64, fileid: u64,
        secs in any::<i64>(), nanos in 0..1_000_000_000_u32, uid: u32, gid: u32, fsid: u64,
    ) {
        let (kind, wire_kind) = [
            (FileKind::File, nfs3::ftype3::NF3REG),
            (FileKind::Dir, nfs3::ftype3::NF3DIR),
            (FileKind::Symlink, nfs3::ftype3::NF3LNK),
            (FileKind::Fifo, nfs3::ftype3::NF3FIFO),
            (FileKind::Socket, nfs3::ftype3::NF3SOCK),
        ][kind];
        let time = FileTime { secs, nanos };
        let attr = Attr { kind, mode, nlink, size, used, fileid, atime: time, mtime: time, ctime: time };
        let look = Look { uid, gid, fsid };
        let mut bytes = Vec::new();
        let mut out = Writer::new(&mut bytes);
        out.status(Status::Ok);
        out.wcc(&Wcc { before: (&attr).into(), after: attr }, look);
        let Nfs3Result::Ok(read) = unpacked::<nfs3::SETATTR3res>(&bytes) else { panic!("it says it is OK") };
        let (Nfs3Option::Some(before), Nfs3Option::Some(after)) = (read.obj_wcc.before, read.obj_wcc.after) else {
            panic!("both are there")
        };
        prop_assert_eq!(before.size, size);
        prop_assert_eq!(after.type_, wire_kind);
        prop_assert_eq!((after.mode, after.nlink, after.uid, after.gid), (mode, nlink, uid, gid));
        prop_assert_eq!((after.size, after.used, after.fsid, after.fileid), (size, used, fsid, fileid));
        let expected = match u32::try_from(secs) {
            Ok(seconds) => nfstime3 { seconds, nseconds: nanos },
            Err(_) => nfstime3 { seconds: if secs < 0 { 0 } else { u32::MAX }, nseconds: 0 },
        };
        prop_assert_eq!((before.mtime, before.ctime), (expected, expected));
        prop_assert_eq!((after.atime, after.mtime, after.ctime), (expected, expected, expected));
    }
}

fn parse_everything(args: Reader<'_>) {
    let _ = OneHandle::parse(args.clone());
    let _ = parse_dir_op(args.clone());
    let _ = SetAttrArgs::parse(args.clone());
    let _ = AccessArgs::parse(args.clone());
    let _ = RangeArgs::parse(args.clone());
    let _ = WriteArgs::parse(args.clone());
    let _ = CreateArgs::parse(args.clone());
    let _ = MkDirArgs::parse(args.clone());
    let _ = SymLinkArgs::parse(args.clone());
    let _ = MkNodArgs::parse(args.clone());
    let _ = RenameArgs::parse(args.clone());
    let _ = LinkArgs::parse(args.clone());
    let _ = ReadDirArgs::parse(args.clone(), false);
    let _ = ReadDirArgs::parse(args.clone(), true);
    let _ = parse_export_path(args);
}

/// Goal: our refusals are the oracle's, with the record mark of exactly their length.
#[test]
fn refusals() {
    use nfs3_types::rpc::{accept_stat_data, auth_stat, rejected_reply, reply_body};
    let reply = |refusal| {
        let mut bytes = b"what was here before".to_vec();
        rpc::refuse(&mut bytes, 9, refusal);
        let mark = u32::from_be_bytes(*bytes.first_chunk().unwrap());
        assert_eq!(mark, (1 << 31) | u32::try_from(bytes.len() - 4).unwrap());
        let message: rpc_msg<'_, '_> = unpacked(&bytes[4..]);
        assert_eq!(message.xid, 9);
        match message.body {
            msg_body::REPLY(body) => body,
            msg_body::CALL(_) => panic!("it is a reply"),
        }
    };
    let accepted = |refusal| match reply(refusal) {
        reply_body::MSG_ACCEPTED(accepted) => accepted.reply_data,
        reply_body::MSG_DENIED(denied) => panic!("{denied:?}"),
    };
    let denied = |refusal| match reply(refusal) {
        reply_body::MSG_DENIED(denied) => denied,
        reply_body::MSG_ACCEPTED(accepted) => panic!("{accepted:?}"),
    };
    assert!(matches!(accepted(Refusal::ProgramUnavailable), accept_stat_data::PROG_UNAVAIL));
    let mismatch = accepted(Refusal::ProgramMismatch);
    assert!(matches!(mismatch, accept_stat_data::PROG_MISMATCH { low: 3, high: 3 }));
    assert!(matches!(accepted(Refusal::ProcedureUnavailable), accept_stat_data::PROC_UNAVAIL));
    assert!(matches!(accepted(Refusal::GarbageArgs), accept_stat_data::GARBAGE_ARGS));
    assert!(matches!(accepted(Refusal::SystemError), accept_stat_data::SYSTEM_ERR));
    assert!(matches!(denied(Refusal::RpcMismatch), rejected_reply::RPC_MISMATCH { low: 2, high: 2 }));
    let bad = denied(Refusal::BadCredential);
    assert!(matches!(bad, rejected_reply::AUTH_ERROR(auth_stat::AUTH_BADCRED)));
    let rejected = denied(Refusal::RejectedCredential);
    assert!(matches!(rejected, rejected_reply::AUTH_ERROR(auth_stat::AUTH_REJECTEDCRED)));
}

/// Goal: every status has the oracle's number.
#[test]
fn status_numbers() {
    use nfs3::nfsstat3 as Oracle;
    let pairs = [
        (Status::Ok, Oracle::NFS3_OK),
        (Status::Perm, Oracle::NFS3ERR_PERM),
        (Status::NoEnt, Oracle::NFS3ERR_NOENT),
        (Status::Io, Oracle::NFS3ERR_IO),
        (Status::Acces, Oracle::NFS3ERR_ACCES),
        (Status::Exist, Oracle::NFS3ERR_EXIST),
        (Status::XDev, Oracle::NFS3ERR_XDEV),
        (Status::NotDir, Oracle::NFS3ERR_NOTDIR),
        (Status::IsDir, Oracle::NFS3ERR_ISDIR),
        (Status::Inval, Oracle::NFS3ERR_INVAL),
        (Status::FBig, Oracle::NFS3ERR_FBIG),
        (Status::NoSpc, Oracle::NFS3ERR_NOSPC),
        (Status::Rofs, Oracle::NFS3ERR_ROFS),
        (Status::MLink, Oracle::NFS3ERR_MLINK),
        (Status::NameTooLong, Oracle::NFS3ERR_NAMETOOLONG),
        (Status::NotEmpty, Oracle::NFS3ERR_NOTEMPTY),
        (Status::Dquot, Oracle::NFS3ERR_DQUOT),
        (Status::Stale, Oracle::NFS3ERR_STALE),
        (Status::BadHandle, Oracle::NFS3ERR_BADHANDLE),
        (Status::NotSync, Oracle::NFS3ERR_NOT_SYNC),
        (Status::BadCookie, Oracle::NFS3ERR_BAD_COOKIE),
        (Status::NotSupp, Oracle::NFS3ERR_NOTSUPP),
        (Status::TooSmall, Oracle::NFS3ERR_TOOSMALL),
        (Status::BadType, Oracle::NFS3ERR_BADTYPE),
        (Status::Jukebox, Oracle::NFS3ERR_JUKEBOX),
    ];
    for (ours, oracle) in pairs {
        assert_eq!(ours as u32, oracle as u32, "{ours:?}");
    }
    for procedure in Procedure::ALL {
        nfs3::NFS_PROGRAM::try_from(procedure as u32).unwrap();
    }
}

/// Goal: a credential that lies about its lengths is a bad credential, not a bad connection; unknown flavors are told apart.
#[test]
fn credentials() {
    let call = |flavor: u32, body: &[u8]| {
        let mut bytes = Vec::new();
        let mut out = Writer::new(&mut bytes);
        for word in [1, 0, 2, rpc::NFS_PROGRAM, 3, 1, flavor] {
            out.u32(word);
        }
        out.opaque(body);
        out.u32(0);
        out.u32(0);
        Call::parse(&bytes).map(|call| call.credential)
    };
    assert_eq!(call(0, b""), Ok(Credential::None));
    assert_eq!(call(1, b"short"), Ok(Credential::Bad));
    let seventeen_gids = [&[0; 16][..], &17_u32.to_be_bytes(), &[0; 17 * 4]].concat();
    assert_eq!(call(1, &seventeen_gids), Ok(Credential::Bad));
    assert_eq!(call(6, b"gss!"), Ok(Credential::Unknown));
    assert!(call(1, &[0; 401]).is_err(), "RFC 5531 limits the body");
}
