//! The kernel that is booted: a distribution's cloud kernel, downloaded but never installed, and its modules.
//!
//! Everything lives in one cache directory under the build's target directory, keyed by the kernel's version, so that
//! `cargo clean` removes it and nothing of it can end up in the repository.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// Meta packages whose first `linux-image-*` dependency is a kernel for virtual machines: Debian's, then Ubuntu's.
pub const META_PACKAGES: [&str; 2] = ["linux-image-cloud-amd64", "linux-image-virtual"];

/// A kernel unpacked in the cache.
#[derive(Debug, Clone)]
pub struct Kernel {
    version: String,
    dir: PathBuf,
}

impl Kernel {
    /// The cached kernel, or the one that apt offers, downloaded and unpacked now.
    ///
    /// Two processes may call this at once: one works, the other waits for it.
    ///
    /// # Errors
    /// Without apt, `dpkg-deb`, a package list or the network.
    pub fn ensure() -> Result<Self, Error> {
        let cache = cache_dir();
        fs::create_dir_all(&cache).map_err(Error::file("cannot create", &cache))?;
        let _lock = lock(&cache)?;
        if let Some(kernel) = Self::newest_in(&cache) {
            return Ok(kernel);
        }
        let image = image_package()?;
        let version = image.trim_start_matches("linux-image-").trim_start_matches("unsigned-").to_owned();
        let partial = cache.join("partial");
        match fs::remove_dir_all(&partial) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::file("cannot remove", &partial)(error));
            }
            _ => {}
        }
        fs::create_dir_all(&partial).map_err(Error::file("cannot create", &partial))?;
        unpack(&image, &partial)?;
        if !modules_of(&partial, &version).exists() {
            // Ubuntu keeps the modules in a package of their own.
            unpack(&format!("linux-modules-{version}"), &partial)?;
        }
        let dir = cache.join(&version);
        fs::rename(&partial, &dir).map_err(Error::file("cannot move the unpacked kernel to", &dir))?;
        Ok(Self { version, dir })
    }

    fn newest_in(cache: &Path) -> Option<Self> {
        let entries = fs::read_dir(cache).ok()?;
        let mut found: Vec<Self> = entries
            .flatten()
            .filter_map(|entry| {
                let version = entry.file_name().into_string().ok()?;
                let kernel = Self { version, dir: entry.path() };
                (kernel.image().exists() && kernel.modules().exists()).then_some(kernel)
            })
            .collect();
        found.sort_by(|a, b| a.version.cmp(&b.version));
        found.pop()
    }

    /// Its version, as `uname -r` says it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The file to boot.
    pub fn image(&self) -> PathBuf {
        self.dir.join("boot").join(format!("vmlinuz-{}", self.version))
    }

    /// Where this kernel's initramfs is kept.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn modules(&self) -> PathBuf {
        modules_of(&self.dir, &self.version)
    }

    /// All modules of this kernel.
    ///
    /// # Errors
    /// If its directory cannot be read.
    pub(crate) fn module_index(&self) -> Result<ModuleIndex, Error> {
        let root = self.modules();
        let mut files = BTreeMap::new();
        collect(&root, &mut files)?;
        let builtin = fs::read_to_string(root.join("modules.builtin")).unwrap_or_default();
        let builtin = builtin.lines().filter_map(module_name).collect();
        Ok(ModuleIndex { kernel: self.version.clone(), files, builtin })
    }
}

/// Where the modules of an unpacked kernel package are: older packages have `/lib`, merged ones `/usr/lib`.
fn modules_of(dir: &Path, version: &str) -> PathBuf {
    let merged = dir.join("usr/lib/modules").join(version);
    if merged.exists() { merged } else { dir.join("lib/modules").join(version) }
}

/// `virtio-rng.ko.xz` → `virtio_rng`: the kernel takes both spellings for one.
fn module_name(path: &str) -> Option<String> {
    let (stem, _) = path.rsplit('/').next()?.split_once(".ko")?;
    Some(stem.replace('-', "_"))
}

fn collect(dir: &Path, into: &mut BTreeMap<String, PathBuf>) -> Result<(), Error> {
    for entry in fs::read_dir(dir).map_err(Error::file("cannot list", dir))? {
        let path = entry.map_err(Error::file("cannot list", dir))?.path();
        if path.is_dir() {
            collect(&path, into)?;
        } else if let Some(name) = path.to_str().and_then(module_name) {
            into.insert(name, path);
        }
    }
    Ok(())
}

/// Which modules a kernel has, by name.
pub(crate) struct ModuleIndex {
    kernel: String,
    files: BTreeMap<String, PathBuf>,
    builtin: Vec<String>,
}

impl ModuleIndex {
    /// Adds `name` and everything it depends on to `loaded`, dependencies first; returns the order in which this one
    /// group is to be loaded. A module that is built into the kernel adds nothing.
    ///
    /// # Errors
    /// [`Error::NoModule`], or a file that cannot be read.
    pub(crate) fn resolve(&self, name: &str, loaded: &mut BTreeMap<String, Vec<u8>>) -> Result<Vec<String>, Error> {
        let mut order = Vec::new();
        self.visit(name, loaded, &mut order)?;
        Ok(order)
    }

    fn visit(&self, name: &str, loaded: &mut BTreeMap<String, Vec<u8>>, order: &mut Vec<String>) -> Result<(), Error> {
        let name = name.replace('-', "_");
        if order.contains(&name) || self.builtin.contains(&name) {
            return Ok(());
        }
        let no_module = || Error::NoModule { kernel: self.kernel.clone(), module: name.clone() };
        let bytes = match loaded.get(&name) {
            Some(bytes) => bytes.clone(),
            None => read_module(self.files.get(&name).ok_or_else(no_module)?)?,
        };
        for dependency in dependencies(&bytes) {
            self.visit(&dependency, loaded, order)?;
        }
        loaded.insert(name.clone(), bytes);
        order.push(name);
        Ok(())
    }
}

/// The module's bytes, decompressed.
fn read_module(path: &Path) -> Result<Vec<u8>, Error> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => output(Command::new("xz").args(["--decompress", "--stdout"]).arg(path)),
        Some("zst") => output(Command::new("zstd").args(["--decompress", "--stdout", "--quiet"]).arg(path)),
        Some("gz") => output(Command::new("gzip").args(["--decompress", "--stdout"]).arg(path)),
        _ => fs::read(path).map_err(Error::file("cannot read", path)),
    }
}

/// What the module says it depends on: the `depends=` string of its `.modinfo` section. The package ships no
/// `modules.dep` (depmod makes it at installation, and this kernel is never installed).
fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(start) = module.windows(KEY.len()).position(|w| w == KEY).map(|at| at + KEY.len()) else {
        return Vec::new();
    };
    let value: Vec<u8> = module[start..].iter().copied().take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&value).split(',').filter(|d| !d.is_empty()).map(str::to_owned).collect()
}

/// The cache: `NAS_GUEST_CACHE`, else `guest-cache` in the build's target directory.
pub(crate) fn cache_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("NAS_GUEST_CACHE") {
        return dir.into();
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    workspace.join(target).join("guest-cache")
}

/// An exclusive lock on the cache, until dropped.
pub(crate) fn lock(cache: &Path) -> Result<File, Error> {
    let path = cache.join("lock");
    let file = File::create(&path).map_err(Error::file("cannot create", &path))?;
    file.lock().map_err(Error::file("cannot lock", &path))?;
    Ok(file)
}

/// The package that holds the newest kernel image.
fn image_package() -> Result<String, Error> {
    for meta in META_PACKAGES {
        let Ok(text) = output(Command::new("apt-cache").args(["depends", meta])) else { continue };
        let text = String::from_utf8_lossy(&text).into_owned();
        let image =
            text.lines().filter_map(|l| l.trim().strip_prefix("Depends: ")).find(|p| p.starts_with("linux-image-"));
        if let Some(image) = image {
            return Ok(image.to_owned());
        }
    }
    Err(Error::NoKernelPackage { candidates: META_PACKAGES.map(str::to_owned).to_vec() })
}

/// Downloads a package into `dir` and unpacks it there; the archive itself is removed.
fn unpack(package: &str, dir: &Path) -> Result<(), Error> {
    output(Command::new("apt-get").args(["download", "--quiet", package]).current_dir(dir))?;
    let entries = fs::read_dir(dir).map_err(Error::file("cannot list", dir))?;
    for path in entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "deb")) {
        output(Command::new("dpkg-deb").arg("--extract").arg(&path).arg(dir))?;
        fs::remove_file(&path).map_err(Error::file("cannot remove", &path))?;
    }
    Ok(())
}

/// Runs a program; its standard output.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(Error::NoProgram { program }),
        Err(error) => return Err(Error::Command { command: format!("{command:?}"), stderr: error.to_string() }),
    };
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Command { command: format!("{command:?}"), stderr })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: names are normalised and the dependency string is found wherever it stands.
    #[test]
    fn reads_names_and_dependencies() {
        assert_eq!(module_name("kernel/drivers/char/hw_random/virtio-rng.ko.xz").as_deref(), Some("virtio_rng"));
        assert_eq!(module_name("modules.order"), None);
        assert_eq!(dependencies(b"license=GPL\0depends=nfs,lockd,sunrpc\0name=nfsv3\0"), ["nfs", "lockd", "sunrpc"]);
        assert!(dependencies(b"x\0depends=\0y").is_empty());
        assert!(dependencies(b"nothing").is_empty());
    }
}
