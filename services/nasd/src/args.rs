//! Command line of nasd.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use nas_door::DoorOptions;
use nas_store::Reserve;
use nas_store::embed::PoolOptions;

/// The Agent NAS daemon: serves one data folder over NFSv3 and HTTP.
///
/// The first start makes the store and writes a one-time token to DIR/owner.bootstrap, which 'nas owner init' consumes.
/// As root, when the folder is not on btrfs, the store is a btrfs image in the folder; otherwise files are copied, with
/// reflinks where the file system has them. After that nasd gives up every capability. It prints one line,
/// 'nasd ready http=ADDR nfs=ADDR', when it can be used, and logs to standard error (NAS_LOG sets the level).
/// Of an option given twice the last one counts.
#[derive(Debug, Clone, Parser)]
#[command(version, args_override_self = true)]
pub(crate) struct Args {
    /// Folder that holds store, ledger and keys.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Address of the HTTP API.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8480")]
    pub(crate) http: SocketAddr,
    /// Address of NFS and MOUNT. NFS is plain: keep it on loopback or a network you trust.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:2049")]
    pub(crate) nfs: SocketAddr,
    /// A name besides IP addresses and localhost by which the HTTP API is reached; may be given several times.
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Never make a btrfs image; use the folder as it is.
    #[arg(long)]
    no_image: bool,
    /// Size the btrfs image can grow to, in MiB, when it is made.
    #[arg(long, value_name = "MIB", default_value_t = nas_store::embed::IMAGE_BYTES >> 20)]
    image_mib: u64,
    /// Space kept back so that deleting always works, in percent of the pool.
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=50))]
    reserve_percent: u8,
    /// The same, at least this many MiB.
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    reserve_mib: u64,
    /// A branch is committed after this time without a change, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    quiet_ms: u64,
    /// A person's own edits are merged after this time without a change, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 60_000)]
    standing_quiet_ms: u64,
    /// Reads go on for this time after a lease is over, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 60_000)]
    read_grace_ms: u64,
    /// A gate is denied after this time without an answer, in seconds (72 h by default, at most 30 days).
    #[arg(long, value_name = "SECONDS", default_value_t = 259_200, value_parser = clap::value_parser!(u32).range(1..=2_592_000))]
    gate_ttl_seconds: u32,
    /// Space of the ledger set aside for a full disk, in KiB.
    #[arg(long, value_name = "KIB", default_value_t = nas_ledger::ballast::BALLAST_BYTES_DEFAULT >> 10)]
    ballast_kib: u64,
}

impl Args {
    pub(crate) fn pool_options(&self) -> PoolOptions {
        PoolOptions { loop_image: !self.no_image, image_bytes: self.image_mib << 20 }
    }

    pub(crate) fn ledger_options(&self) -> nas_ledger::Options {
        nas_ledger::Options { ballast_bytes: self.ballast_kib << 10 }
    }

    pub(crate) fn store_options(&self) -> nas_store::Options {
        nas_store::Options {
            reserve: Reserve { percent: self.reserve_percent, bytes_min: self.reserve_mib << 20 },
            quiet: Duration::from_millis(self.quiet_ms),
            ..nas_store::Options::default()
        }
    }

    pub(crate) fn door_options(&self, nfs: SocketAddr) -> DoorOptions {
        DoorOptions {
            standing_quiet: Duration::from_millis(self.standing_quiet_ms),
            read_grace_ms: i64::try_from(self.read_grace_ms).unwrap_or(i64::MAX),
            gate_ttl_ms: i64::from(self.gate_ttl_seconds) * 1000,
            ..DoorOptions::new(nfs, self.data.join("owner.bootstrap"))
        }
    }

    pub(crate) fn http_options(&self) -> nas_http::Options {
        nas_http::Options { names: self.name.clone(), ..nas_http::Options::default() }
    }
}
