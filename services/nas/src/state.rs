//! What is kept between calls, in a directory of mode 0700, one folder per box:
//! `owner.token`, `leases/<id>` (a token each), `current_lease`, `head.json`, `mounts.json`. All files are 0600.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nas_types::id::LeaseId;
use nas_types::secret::Secret;
use nas_types::verb::Head;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Longest file with a secret that is read.
const SECRET_BYTES_MAX: u64 = 4096;
/// Longest other file that is read.
const STATE_BYTES_MAX: u64 = 1 << 20;

/// The folder of one box.
#[derive(Debug)]
pub(crate) struct State {
    dir: PathBuf,
}

/// A mount that `nas mount` made here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MountedHere {
    /// Where.
    pub(crate) dir: PathBuf,
    /// Under which lease.
    pub(crate) lease: LeaseId,
}

impl State {
    /// The folder for the box at `url`. Nothing is made on disk yet.
    pub(crate) fn of_box(url: &str) -> Result<Self, Failure> {
        let var = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let base = var("NAS_STATE_DIR")
            .or_else(|| var("XDG_STATE_HOME").map(|d| d.join("nas")))
            .or_else(|| var("HOME").map(|d| d.join(".local/state/nas")))
            .ok_or_else(|| Failure::Usage("set NAS_STATE_DIR or HOME: tokens are kept there".to_owned()))?;
        Ok(Self::in_folder(&base, url))
    }

    /// As [`Self::of_box`], below `base`.
    pub(crate) fn in_folder(base: &Path, url: &str) -> Self {
        let host = url.split_once("://").map_or(url, |(_, rest)| rest);
        let name: String =
            host.chars().map(|c| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '_' }).collect();
        // A name of dots alone would leave the folder.
        Self { dir: base.join("boxes").join(format!("at_{name}")) }
    }

    /// The owner's token.
    pub(crate) fn owner_token(&self) -> Result<Option<Secret>, Failure> {
        self.read_token(&self.dir.join("owner.token"))
    }

    /// Keeps the owner's token.
    pub(crate) fn set_owner_token(&self, token: &Secret) -> Result<(), Failure> {
        self.write("owner.token", token.reveal().as_bytes())
    }

    /// Forgets the owner's token.
    pub(crate) fn forget_owner_token(&self) -> Result<(), Failure> {
        remove(&self.dir.join("owner.token"))
    }

    /// The token of a lease.
    pub(crate) fn lease_token(&self, lease: LeaseId) -> Result<Option<Secret>, Failure> {
        self.read_token(&self.dir.join("leases").join(lease.to_string()))
    }

    /// Keeps the token of a lease, and makes it the current one.
    pub(crate) fn add_lease(&self, lease: LeaseId, token: &Secret) -> Result<(), Failure> {
        self.write(&format!("leases/{lease}"), token.reveal().as_bytes())?;
        self.write("current_lease", lease.to_string().as_bytes())
    }

    /// Forgets a lease that is over.
    pub(crate) fn forget_lease(&self, lease: LeaseId) -> Result<(), Failure> {
        remove(&self.dir.join("leases").join(lease.to_string()))?;
        if self.read_text("current_lease")?.as_deref() == Some(lease.to_string().as_str()) {
            remove(&self.dir.join("current_lease"))?;
        }
        Ok(())
    }

    /// The lease to use when none is named: that of the mount `cwd` is in, else the one made last, else the only one.
    pub(crate) fn implied_lease(&self, cwd: Option<&Path>) -> Result<Option<LeaseId>, Failure> {
        if let Some(cwd) = cwd {
            let mounts = self.mounts()?;
            let here = mounts.iter().filter(|m| cwd.starts_with(&m.dir)).max_by_key(|m| m.dir.as_os_str().len());
            if let Some(mount) = here {
                return Ok(Some(mount.lease));
            }
        }
        if let Some(current) = self.read_text("current_lease")?.and_then(|text| text.parse().ok()) {
            return Ok(Some(current));
        }
        let folder = self.dir.join("leases");
        let names = match fs::read_dir(&folder) {
            Ok(names) => names,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Failure::io(format!("reading {}", folder.display()))(e)),
        };
        let leases: Vec<LeaseId> =
            names.flatten().filter_map(|n| n.file_name().to_str().and_then(|n| n.parse().ok())).collect();
        Ok(if let [only] = leases.as_slice() { Some(*only) } else { None })
    }

    /// The last head of the ledger that was seen.
    pub(crate) fn head(&self) -> Result<Option<Head>, Failure> {
        self.read_json("head.json")
    }

    /// Keeps `head` if it is newer than what is kept.
    pub(crate) fn saw_head(&self, head: &Head) -> Result<(), Failure> {
        match self.head()? {
            Some(kept) if kept.seq >= head.seq => Ok(()),
            _ => self.write_json("head.json", head),
        }
    }

    /// Keeps `head` though an older head with a higher count is kept: the owner gave up the records in between.
    pub(crate) fn replace_head(&self, head: &Head) -> Result<(), Failure> {
        self.write_json("head.json", head)
    }

    /// Mounts that were made here.
    pub(crate) fn mounts(&self) -> Result<Vec<MountedHere>, Failure> {
        Ok(self.read_json("mounts.json")?.unwrap_or_default())
    }

    /// Remembers a mount.
    pub(crate) fn add_mount(&self, mount: MountedHere) -> Result<(), Failure> {
        let mut mounts = self.mounts()?;
        mounts.retain(|m| m.dir != mount.dir);
        mounts.push(mount);
        self.write_json("mounts.json", &mounts)
    }

    /// Forgets a mount.
    pub(crate) fn forget_mount(&self, dir: &Path) -> Result<(), Failure> {
        let mut mounts = self.mounts()?;
        let before = mounts.len();
        mounts.retain(|m| m.dir != dir);
        if mounts.len() == before { Ok(()) } else { self.write_json("mounts.json", &mounts) }
    }

    fn read_token(&self, path: &Path) -> Result<Option<Secret>, Failure> {
        if path.exists() { read_secret(path).map(Some) } else { Ok(None) }
    }

    fn read_text(&self, name: &str) -> Result<Option<String>, Failure> {
        let path = self.dir.join(name);
        let mut text = String::new();
        match File::open(&path).and_then(|f| f.take(STATE_BYTES_MAX).read_to_string(&mut text)) {
            Ok(_) => Ok(Some(text)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Failure::io(format!("reading {}", path.display()))(e)),
        }
    }

    fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        let Some(text) = self.read_text(name)? else { return Ok(None) };
        serde_json::from_str(&text).map(Some).map_err(|e| {
            Failure::Local(format!("{} is damaged ({e}); look at it, then remove it", self.dir.join(name).display()))
        })
    }

    fn write_json<T: Serialize>(&self, name: &str, value: &T) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(|e| Failure::Local(format!("cannot write {name}: {e}")))?;
        self.write(name, text.as_bytes())
    }

    /// Replaces a file as a whole.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.dir.join(name);
        let folder = path.parent().unwrap_or(&self.dir);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(Failure::io(format!("making {}", folder.display())))?;
        let fresh = folder.join(format!(".{}.new", std::process::id()));
        let written = write_private(&fresh, bytes).and_then(|()| fs::rename(&fresh, &path));
        written.map_err(|e| {
            // The first error is the one to tell.
            let _ = fs::remove_file(&fresh);
            Failure::io(format!("writing {}", path.display()))(e)
        })
    }
}

fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn remove(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Failure::io(format!("removing {}", path.display()))(e)),
        _ => Ok(()),
    }
}

/// Writes a token to a file that must not exist yet, mode 0600.
pub(crate) fn write_token_out(path: &Path, token: &Secret) -> Result<(), Failure> {
    write_private(path, format!("{}\n", token.reveal()).as_bytes())
        .map_err(Failure::io(format!("writing the token to the new file {}", path.display())))
}

/// A token or passphrase from a file, without its last newline. A file that everybody can read is refused.
pub(crate) fn read_secret(path: &Path) -> Result<Secret, Failure> {
    let doing = || format!("reading {}", path.display());
    let file = File::open(path).map_err(Failure::io(doing()))?;
    let meta = file.metadata().map_err(Failure::io(doing()))?;
    if meta.is_file() && meta.mode() & 0o007 != 0 {
        return Err(Failure::Usage(format!("everybody can read {0}: run 'chmod 600 {0}' first", path.display())));
    }
    if meta.is_file() && meta.mode() & 0o070 != 0 {
        eprintln!("nas: the group can read {0}; 'chmod 600 {0}' keeps it to yourself", path.display());
    }
    let mut text = String::new();
    file.take(SECRET_BYTES_MAX + 1).read_to_string(&mut text).map_err(Failure::io(doing()))?;
    if text.len() as u64 > SECRET_BYTES_MAX {
        return Err(Failure::Usage(format!("{} is too long for a token or passphrase", path.display())));
    }
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(Failure::Usage(format!("{} is empty", path.display())));
    }
    Ok(Secret::new(text.to_owned()))
}
