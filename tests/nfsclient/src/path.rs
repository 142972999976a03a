//! The mount by path. A path is components joined by `/`, from the mounted root; symbolic links are not followed.

use nfs3_types::nfs3::*;

use crate::client::mode;
use crate::{Client, Error, Found, Handle, Result, Status};

/// Bytes of one READ or WRITE.
const TRANSFER_BYTES: usize = 256 << 10;
/// Bytes of one READDIRPLUS reply.
const LISTING_BYTES: u32 = 64 << 10;

/// A file that a walk found.
#[derive(Debug, Clone)]
pub struct Walked {
    /// Path from the mounted root, without a leading `/`.
    pub path: Vec<u8>,
    /// Its handle.
    pub handle: Handle,
    /// Its attributes.
    pub attr: fattr3,
}

fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty())
}

fn split(path: &[u8]) -> Result<(Vec<&[u8]>, &[u8])> {
    let mut parts: Vec<_> = parts(path).collect();
    let name = parts.pop().ok_or(Error::Nfs(Status::NFS3ERR_INVAL))?;
    Ok((parts, name))
}

impl Client {
    /// Finds a path.
    pub fn find(&mut self, path: impl AsRef<[u8]>) -> Result<Found> {
        let mut found = Found { handle: self.root(), attr: None };
        for part in parts(path.as_ref()) {
            found = self.lookup(&found.handle, part)?;
        }
        Ok(found)
    }

    fn find_dir_of<'p>(&mut self, path: &'p [u8]) -> Result<(Handle, &'p [u8])> {
        let (dirs, name) = split(path)?;
        let mut dir = self.root();
        for part in dirs {
            dir = self.lookup(&dir, part)?.handle;
        }
        Ok((dir, name))
    }

    /// Makes a directory and those above it, where they are not there.
    pub fn make_dirs(&mut self, path: impl AsRef<[u8]>) -> Result<Handle> {
        let mut dir = self.root();
        for part in parts(path.as_ref()) {
            dir = match self.lookup(&dir, part) {
                Ok(found) => found.handle,
                Err(Error::Nfs(Status::NFS3ERR_NOENT)) => self.mkdir(&dir, part, mode(0o755))?.handle,
                Err(error) => return Err(error),
            };
        }
        Ok(dir)
    }

    /// Writes a whole file as a program does: open with O_CREAT and O_TRUNC, unstable writes, COMMIT, and everything
    /// again when the verifier says that the server lost them.
    pub fn write_file(&mut self, path: impl AsRef<[u8]>, content: &[u8]) -> Result<Handle> {
        let (dir, name) = self.find_dir_of(path.as_ref())?;
        let new = sattr3 { size: Nfs3Option::Some(0), ..mode(0o644) };
        let file = self.create(&dir, name, createhow3::UNCHECKED(new))?.handle;
        loop {
            let mut verifiers = Vec::new();
            let mut at = 0;
            while at < content.len() {
                let end = content.len().min(at + TRANSFER_BYTES);
                let written = self.write(&file, at as u64, &content[at..end], stable_how::UNSTABLE)?;
                if written.count == 0 {
                    return Err(Error::Reply("a WRITE wrote nothing".to_owned()));
                }
                verifiers.push(written.verf.0);
                at += written.count as usize;
            }
            let verifier = self.commit(&file)?;
            if verifiers.iter().all(|written| *written == verifier) {
                return Ok(file);
            }
        }
    }

    /// Reads a whole file.
    pub fn read_file(&mut self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let file = self.find(path)?.handle;
        self.read_all(&file)
    }

    /// Reads a whole file by its handle.
    pub fn read_all(&mut self, file: &Handle) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        loop {
            let count = u32::try_from(TRANSFER_BYTES).expect("because the constant is small");
            let (bytes, eof) = self.read(file, content.len() as u64, count)?;
            if bytes.is_empty() && !eof {
                return Err(Error::Reply("a READ read nothing before the end".to_owned()));
            }
            content.extend_from_slice(&bytes);
            if eof {
                return Ok(content);
            }
        }
    }

    /// All names of a directory, `.` and `..` left out, in the server's order.
    pub fn list(&mut self, path: impl AsRef<[u8]>) -> Result<Vec<Vec<u8>>> {
        let dir = self.find(path)?.handle;
        Ok(self.entries(&dir)?.into_iter().map(|entry| entry.name.0.into_owned()).collect())
    }

    /// All entries of a directory, `.` and `..` left out, with handles and attributes.
    pub fn entries(&mut self, dir: &Handle) -> Result<Vec<entryplus3<'static>>> {
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let (entries, eof) = self.readdirplus(dir, cookie, LISTING_BYTES, LISTING_BYTES)?;
            match entries.last() {
                Some(last) => cookie = last.cookie,
                None if eof => {}
                None => return Err(Error::Reply("a READDIRPLUS gave nothing before the end".to_owned())),
            }
            all.extend(entries.into_iter().filter(|entry| !matches!(entry.name.as_ref(), b"." | b"..")));
            if eof {
                return Ok(all);
            }
        }
    }

    /// Everything below `path`, parents first, sorted by name within each directory.
    pub fn walk(&mut self, path: impl AsRef<[u8]>) -> Result<Vec<Walked>> {
        let start = self.find(path)?.handle;
        let (mut found, mut dirs) = (Vec::new(), vec![(Vec::new(), start)]);
        while let Some((prefix, dir)) = dirs.pop() {
            let mut entries = self.entries(&dir)?;
            entries.sort_by(|a, b| a.name.as_ref().cmp(b.name.as_ref()));
            for entry in entries {
                let mut path: Vec<u8> = prefix.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(entry.name.as_ref());
                // The server may leave them out of a listing; then they are asked for.
                let (handle, attr) = match (entry.name_handle, entry.name_attributes) {
                    (Nfs3Option::Some(handle), Nfs3Option::Some(attr)) => (handle, attr),
                    _ => {
                        let handle = self.lookup(&dir, entry.name.as_ref())?.handle;
                        let attr = self.getattr(&handle)?;
                        (handle, attr)
                    }
                };
                if matches!(attr.type_, ftype3::NF3DIR) {
                    dirs.push((path.clone(), handle.clone()));
                }
                found.push(Walked { path, handle, attr });
            }
        }
        Ok(found)
    }

    /// Removes a file by path.
    pub fn remove_path(&mut self, path: impl AsRef<[u8]>) -> Result<()> {
        let (dir, name) = self.find_dir_of(path.as_ref())?;
        self.remove(&dir, name)
    }

    /// Removes an empty directory by path.
    pub fn rmdir_path(&mut self, path: impl AsRef<[u8]>) -> Result<()> {
        let (dir, name) = self.find_dir_of(path.as_ref())?;
        self.rmdir(&dir, name)
    }

    /// Renames by path.
    pub fn rename_path(&mut self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        let (from_dir, from_name) = self.find_dir_of(from.as_ref())?;
        let (to_dir, to_name) = self.find_dir_of(to.as_ref())?;
        self.rename(&from_dir, from_name, &to_dir, to_name)
    }
}
