//! Writes the "new ASCII" cpio format that the kernel unpacks as its first root directory
//! (kernel documentation, `driver-api/early-userspace/buffer-format`). Only what an initramfs needs.

/// An archive in memory.
pub(crate) struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

impl Archive {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), inode: 0 }
    }

    pub(crate) fn directory(&mut self, name: &str) {
        self.entry(name, DIRECTORY | 0o755, &[]);
    }

    pub(crate) fn file(&mut self, name: &str, permissions: u32, contents: &[u8]) {
        self.entry(name, REGULAR | permissions, contents);
    }

    pub(crate) fn symlink(&mut self, name: &str, target: &str) {
        self.entry(name, SYMLINK | 0o777, target.as_bytes());
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.inode = 0;
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.inode += 1;
        let size = u32::try_from(contents.len()).expect("because no file of an initramfs comes near 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("because names are short");
        let links = if mode & DIRECTORY == DIRECTORY { 2 } else { 1 };
        // ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
        let fields = [self.inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(contents);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    /// Goal: an independent reader (busybox) unpacks exactly what was packed.
    #[test]
    fn another_reader_agrees() {
        let mut archive = Archive::new();
        archive.directory("dir");
        archive.file("dir/odd", 0o640, b"12345");
        archive.file("empty", 0o755, b"");
        archive.symlink("link", "dir/odd");
        let bytes = archive.finish();
        let out = tempfile::tempdir().unwrap();
        let mut child = Command::new("busybox")
            .args(["cpio", "-i", "-d"])
            .current_dir(out.path())
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(std::fs::read(out.path().join("dir/odd")).unwrap(), b"12345");
        assert_eq!(std::fs::read(out.path().join("empty")).unwrap(), b"");
        assert_eq!(std::fs::read_link(out.path().join("link")).unwrap().to_str(), Some("dir/odd"));
    }
}
