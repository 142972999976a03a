//! What travels into the guest: files for `/job`, and programs with the libraries they need, as a tar on its first disk.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::kernel::output;

/// Things to ship.
#[derive(Debug, Default)]
pub(crate) struct Job {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) programs: Vec<PathBuf>,
}

impl Job {
    /// Writes the disk image that the agent unpacks over its root directory.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Error> {
        let file = File::create(path).map_err(Error::file("cannot create", path))?;
        let mut tar = tar::Builder::new(file);
        tar.mode(tar::HeaderMode::Deterministic);
        // The guest's tar knows nothing of holes.
        tar.sparse(false);
        let mut libraries = BTreeSet::new();
        for source in &self.files {
            let name = source.file_name().unwrap_or(source.as_os_str());
            let inside = Path::new("job").join(name);
            let added = if source.is_dir() {
                tar.append_dir_all(&inside, source)
            } else {
                tar.append_path_with_name(source, &inside)
            };
            added.map_err(Error::file("cannot ship", source))?;
        }
        for source in &self.programs {
            let name = source.file_name().unwrap_or(source.as_os_str());
            let inside = Path::new("usr/bin").join(name);
            tar.append_path_with_name(source, inside).map_err(Error::file("cannot ship", source))?;
            libraries.extend(libraries_of(source)?);
        }
        for library in &libraries {
            let inside = library.strip_prefix("/").unwrap_or(library);
            let mut file = File::open(library).map_err(Error::file("cannot read", library))?;
            tar.append_file(inside, &mut file).map_err(Error::file("cannot ship", library))?;
        }
        let mut file = tar.into_inner().map_err(Error::file("cannot write", path))?;
        // A disk consists of whole sectors, and the kernel wants at least one.
        let length = file.seek(SeekFrom::End(0)).map_err(Error::file("cannot measure", path))?;
        file.set_len(length.next_multiple_of(4096)).map_err(Error::file("cannot extend", path))
    }
}

/// The shared libraries of a program, by the absolute paths under which its loader will look for them.
fn libraries_of(program: &Path) -> Result<Vec<PathBuf>, Error> {
    let bytes = fs::read(program).map_err(Error::file("cannot read", program))?;
    if !bytes.starts_with(b"\x7fELF") {
        return Ok(Vec::new());
    }
    // ldd fails for a static program, and says so; then there is nothing to ship.
    let text = output(Command::new("ldd").arg(program)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let paths = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}
