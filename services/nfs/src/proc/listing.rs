//! What READDIR and READDIRPLUS share: entries until the reply is full.
//!
//! Cookies are the Door's, 1 and 2 stand for `.` and `..`. They stay good when the directory changes, so the cookie
//! verifier is always zero and never compared: a client that reads a directory while it deletes from it goes on.

use nas_types::fs::{Attr, DirEntry, Node};

use super::{Context, Target};
use crate::handle::HANDLE_BYTES;
use crate::limits::READDIR_BYTES_MAX;
use crate::wire::args::ReadDirArgs;
use crate::wire::attr::{FATTR_BYTES, Look};
use crate::wire::status::{Procedure, Status};
use crate::wire::xdr::{Writer, padded};

const COOKIE_DOT: u64 = 1;
const COOKIE_DOT_DOT: u64 = 2;
/// After the entries: "no more entries" and eof.
const TAIL_BYTES: usize = 8;
/// Before the entries: directory attributes and cookie verifier. The status is not counted (RFC 1813 §3.3.16, `count`).
const HEAD_BYTES: usize = 4 + FATTR_BYTES + 8;
/// An entry with a name of usual length, to guess how many fit.
const USUAL_NAME_BYTES: usize = 16;

/// Bytes of file id, name and cookie: what `dircount` counts.
const fn name_bytes(name: usize) -> usize {
    8 + 4 + padded(name) + 8
}

/// Bytes of attributes and handle of an entry.
fn plus_bytes(node: Option<&Node>) -> usize {
    match node {
        Some(_) => 4 + FATTR_BYTES + 4 + 4 + padded(HANDLE_BYTES),
        None => 4 + 4,
    }
}

/// Room that is left in a reply.
struct Room {
    names: usize,
    all: usize,
}

impl Room {
    /// Takes the room of an entry, if it is there.
    fn take(&mut self, name: usize, plus: Option<usize>) -> bool {
        let all = 4 + name_bytes(name) + plus.unwrap_or(0);
        let fits = name_bytes(name) <= self.names && all <= self.all;
        if fits {
            self.names -= name_bytes(name);
            self.all -= all;
        }
        fits
    }

    /// How many entries of usual size fit, at least one.
    fn entries(&self, plus: bool) -> usize {
        let each = 4 + name_bytes(USUAL_NAME_BYTES) + if plus { 4 + FATTR_BYTES + 8 + padded(HANDLE_BYTES) } else { 0 };
        (self.all / each).min(self.names / name_bytes(USUAL_NAME_BYTES)) + 1
    }
}

/// Entries of one reply.
struct Entries {
    attr: Attr,
    entries: Vec<DirEntry>,
    eof: bool,
}

/// `.` and `..`, as far as they come after `cookie`.
fn dots(dir: &Target<'_>, cookie: u64, attr: &Attr) -> Result<Vec<DirEntry>, Status> {
    let mut dots = Vec::with_capacity(2);
    if cookie < COOKIE_DOT {
        let node = Some(Node { node: dir.node, attr: *attr });
        dots.push(DirEntry { name: b".".to_vec(), fileid: attr.fileid, cookie: COOKIE_DOT, node });
    }
    if cookie < COOKIE_DOT_DOT {
        let fileid = dir.mount.parent_fileid(dir.node)?;
        dots.push(DirEntry { name: b"..".to_vec(), fileid, cookie: COOKIE_DOT_DOT, node: None });
    }
    Ok(dots)
}

/// Reads entries after `args.cookie` until the reply is full or the directory ends.
fn collect(dir: &Target<'_>, args: &ReadDirArgs<'_>, plus: bool) -> Result<Entries, Status> {
    // `names` counts the whole of a READDIR, so its overhead has to be left out of it there too.
    let all = (args.maxcount.min(READDIR_BYTES_MAX) as usize).saturating_sub(HEAD_BYTES + TAIL_BYTES);
    let names = if plus { (args.dircount as usize).max(name_bytes(USUAL_NAME_BYTES)) } else { all };
    let mut room = Room { names, all };
    let mut cookie = args.cookie;
    let mut entries = Vec::new();
    loop {
        let after = if cookie <= COOKIE_DOT_DOT { 0 } else { cookie };
        let (listing, attr) = dir.mount.readdir(dir.node, after, room.entries(plus), plus)?;
        let dots = if cookie < COOKIE_DOT_DOT { dots(dir, cookie, &attr)? } else { Vec::new() };
        let progress = !dots.is_empty() || !listing.entries.is_empty();
        for entry in dots.into_iter().chain(listing.entries) {
            if !room.take(entry.name.len(), plus.then(|| plus_bytes(entry.node.as_ref()))) {
                if entries.is_empty() {
                    return Err(Status::TooSmall);
                }
                return Ok(Entries { attr, entries, eof: false });
            }
            cookie = entry.cookie;
            entries.push(entry);
        }
        // A listing without entries that is not the end would ask for itself for ever.
        if listing.eof || !progress {
            return Ok(Entries { attr, entries, eof: listing.eof });
        }
    }
}

fn put_entry(out: &mut Writer<'_>, dir: &Target<'_>, entry: &DirEntry, plus: bool, look: Look) {
    out.bool(true);
    out.u64(entry.fileid);
    out.opaque(&entry.name);
    out.u64(entry.cookie);
    if plus {
        match &entry.node {
            Some(node) => {
                out.attr(&node.attr, look);
                out.handle(&dir.seal(node));
            }
            None => {
                out.no_attr();
                out.bool(false);
            }
        }
    }
}

pub(super) fn run(context: &Context<'_>, args: &ReadDirArgs<'_>, plus: bool, out: &mut Writer<'_>) {
    let result = context.open(args.dir).and_then(|dir| {
        let entries = collect(&dir, args, plus)?;
        Ok((dir, entries))
    });
    match result {
        Ok((dir, listed)) => {
            let look = dir.look();
            out.status(Status::Ok);
            out.attr(&listed.attr, look);
            out.u64(0);
            for entry in &listed.entries {
                put_entry(out, &dir, entry, plus, look);
            }
            out.bool(false);
            out.bool(listed.eof);
        }
        Err(status) => {
            out.status(status.fit(if plus { Procedure::ReadDirPlus } else { Procedure::ReadDir }));
            out.no_attr();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the room of an entry is what its encoding takes, and both bounds cut.
    #[test]
    fn room_is_counted_exactly() {
        let mut room = Room { names: 1000, all: 4 + name_bytes(5) };
        assert!(room.take(5, None));
        assert_eq!(room.all, 0);
        assert!(!room.take(1, None));
        let mut room = Room { names: name_bytes(5), all: 1000 };
        assert!(room.take(5, Some(plus_bytes(None))));
        assert!(!room.take(1, Some(plus_bytes(None))), "dircount is spent");

        let mut bytes = Vec::new();
        let mut out = Writer::new(&mut bytes);
        out.bool(true);
        out.u64(1);
        out.opaque(b"abcde");
        out.u64(3);
        assert_eq!(out.len(), 4 + name_bytes(5));
    }
}
