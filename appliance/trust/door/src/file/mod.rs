//! One mount: a view under a lease (SPEC MOUNT-1), and the file verbs a gateway may call on it. All of them block: call
//! them from a pool.
//!
//! Every verb goes the same way: [`Mounted::reading`] or [`Mounted::changing`] asks whether the lease gives any
//! authority now, [`Mounted::at`] finds where the file is and what the lease may know of it, the verb decides on
//! that path, and hands the very same `Located` to the store, which does nothing if a rename came between.
//!
//! Files: [`find`] (LOOKUP, READDIR), [`attr`] (GETATTR, SETATTR, ACCESS, FSSTAT), [`content`] (READ, WRITE, COMMIT,
//! READLINK), [`names`] (CREATE, MKDIR, …, REMOVE, RENAME, LINK), [`overlay`] (virtual entries of `/.nas/`).

mod attr;
mod content;
mod find;
mod names;
mod overlay;

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lru::LruCache;
use nas_store::{Branch, Generation, LiveDir, Located};
use nas_trust_core::Visibility;
use nas_trust_core::read_manifest::Version;
use nas_types::fs::{FileKind, FsError, NodeId, NodeRef};
use nas_types::id::{LeaseId, MountId};
use nas_types::lease::{Action, View};
use nas_types::object::Oid;
use nas_types::path::{Name, PathError, TreePath};
use parking_lot::Mutex;

use crate::inner::Inner;
use crate::lease::{Lease, Standing};

/// Handles per mount that were told once that the lease is over.
const TOLD_STALE_MAX: NonZeroUsize = NonZeroUsize::new(4096).expect("because 4096 is not 0");
/// Files per mount whose committed version is remembered for the read manifest.
const VERSIONS_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("because 1024 is not 0");
/// What a mount shows.
pub(crate) enum Place {
    /// A branch.
    Branch(Arc<Branch>),
    /// An unprotected tree.
    Tree(Arc<LiveDir>),
    /// A commit: it never changes.
    Commit(Oid, Arc<LiveDir>),
    /// Main, whatever generation is current.
    Main,
}

/// The files of a view, held for one operation.
enum Files {
    /// The branch.
    Branch(Arc<Branch>),
    /// The tree, or the commit.
    Tree(Arc<LiveDir>),
    /// The generation of main that was current when the operation began.
    Main(Arc<Generation>),
}

impl Files {
    fn live(&self) -> &LiveDir {
        match self {
            Self::Branch(branch) => branch.live(),
            Self::Tree(live) => live,
            Self::Main(generation) => generation.live(),
        }
    }
}

/// How often a verb looks again when renames keep coming between finding a file and acting on it.
const ATTEMPTS_MAX: u32 = 8;

/// What a mount is, as the ledger keeps it.
#[derive(Debug, Clone)]
pub(crate) struct MountFacts {
    pub(crate) id: MountId,
    pub(crate) view: View,
    pub(crate) commit: Option<Oid>,
    pub(crate) root_path: TreePath,
    pub(crate) peer: IpAddr,
    pub(crate) owner: (u32, u32),
    pub(crate) read_only: bool,
}

/// A mount. Every operation checks the lease (time, revocation, paths, actions) itself.
pub struct Mounted {
    pub(crate) inner: Arc<Inner>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) facts: MountFacts,
    pub(crate) place: Place,
    root: NodeRef,
    ended: AtomicBool,
    told_stale: Mutex<LruCache<NodeId, ()>>,
    versions: Mutex<LruCache<NodeId, (Oid, Version)>>,
}

impl Mounted {
    /// Opens the view. NotFound: the root of the mount is hidden or gone. NotDir: it is no directory.
    pub(crate) fn open(inner: Arc<Inner>, lease: Arc<Lease>, facts: MountFacts) -> Result<Arc<Self>, FsError> {
        let place = match (facts.view, &lease.run.tree) {
            (_, None) if let Some(commit) = facts.commit => {
                let view = inner.store.view(commit).map_err(|error| view_failed(commit, &error))?;
                Place::Commit(commit, view)
            }
            (View::Branch, None) => Place::Branch(inner.store.branch(&lease.run.branch).ok_or(FsError::Stale)?),
            (View::Branch, Some(tree)) => Place::Tree(inner.store.tree(tree).ok_or(FsError::Stale)?),
            (View::Main, None) => Place::Main,
            // The paths of this lease are those of another tree.
            (View::Main, Some(_)) => return Err(FsError::Access),
        };
        if lease.paths.visibility(&facts.root_path) == Visibility::Hidden {
            return Err(FsError::NotFound);
        }
        let mut mounted = Self {
            inner,
            lease,
            facts,
            place,
            root: NodeRef { id: NodeId { ino: 0, generation: 0 }, parent_hint: 0 },
            ended: AtomicBool::new(false),
            told_stale: Mutex::new(LruCache::new(TOLD_STALE_MAX)),
            versions: Mutex::new(LruCache::new(VERSIONS_MAX)),
        };
        let at = mounted.files().live().locate_path(&mounted.facts.root_path)?;
        if at.attr.kind != FileKind::Dir {
            return Err(FsError::NotDir);
        }
        mounted.root = at.node;
        Ok(Arc::new(mounted))
    }

    /// Its id (goes into handles).
    #[must_use]
    pub fn id(&self) -> MountId {
        self.facts.id
    }

    /// Its lease: fair queues are per lease.
    #[must_use]
    pub fn lease(&self) -> LeaseId {
        self.lease.id
    }

    /// The address it is bound to.
    #[must_use]
    pub fn peer(&self) -> IpAddr {
        self.facts.peer
    }

    /// Everything appears owned by this uid and gid.
    #[must_use]
    pub fn owner(&self) -> (u32, u32) {
        self.facts.owner
    }

    /// Root of the mount.
    #[must_use]
    pub fn root(&self) -> NodeRef {
        self.root
    }

    /// File system id shown to the client: one for each mount, the same after a restart.
    #[must_use]
    pub fn fsid(&self) -> u64 {
        let hash = blake3::hash(self.facts.id.to_string().as_bytes());
        u64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("because a hash has 32 bytes"))
    }

    /// WRITE and COMMIT verifier (RFC 1813 §3.3.7): another one after a restart and after a failed fsync.
    #[must_use]
    pub fn write_verifier(&self) -> [u8; 8] {
        let epoch = match &self.place {
            Place::Branch(branch) => branch.live().write_verifier_epoch(),
            Place::Tree(live) => live.write_verifier_epoch(),
            Place::Commit(..) | Place::Main => 0,
        };
        (self.inner.instance.wrapping_add(epoch)).to_be_bytes()
    }

    /// Ends the mount (UMNT, end of the branch).
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// The files of the view. Of main: those of the current generation.
    fn files(&self) -> Files {
        match &self.place {
            Place::Branch(branch) => Files::Branch(Arc::clone(branch)),
            Place::Tree(live) | Place::Commit(_, live) => Files::Tree(Arc::clone(live)),
            Place::Main => Files::Main(self.inner.store.main()),
        }
    }

    /// May this lease look at anything now? (SPEC MOUNT-5; after its end reads go on for a grace period.)
    fn reading(&self, action: Action) -> Result<(), FsError> {
        if self.ended.load(Ordering::Acquire) {
            return Err(FsError::Stale);
        }
        match self.lease.standing(self.inner.clocks.boottime_ms()) {
            Standing::Live => {}
            Standing::Suspended => return Err(FsError::Later),
            Standing::Over { since_ms } if since_ms < self.inner.options.read_grace_ms => {}
            Standing::Over { .. } | Standing::Revoked => return Err(FsError::Stale),
        }
        self.inner.admits_reading()?;
        if self.lease.actions.contains(action) { Ok(()) } else { Err(self.refuse("lease-action", &TreePath::root())) }
    }

    /// May this lease change anything now? After its end STALE once for each handle, then ROFS (DESIGN §5).
    fn changing(&self, node: NodeRef) -> Result<(), FsError> {
        if self.ended.load(Ordering::Acquire) {
            return Err(FsError::Stale);
        }
        match self.lease.standing(self.inner.clocks.boottime_ms()) {
            Standing::Live => {}
            Standing::Suspended => return Err(FsError::Later),
            Standing::Revoked => {
                self.refuse("lease-revoked", &TreePath::root());
                return Err(FsError::Stale);
            }
            Standing::Over { .. } => {
                self.refuse("lease-expired", &TreePath::root());
                let told = self.told_stale.lock().put(node.id, ()).is_some();
                return Err(if told { FsError::ReadOnly } else { FsError::Stale });
            }
        }
        if self.facts.view == View::Main || self.facts.commit.is_some() {
            // SPEC BRANCH-1: main changes only by a merge.
            self.refuse("main-is-protected", &TreePath::root());
            return Err(FsError::ReadOnly);
        }
        if self.facts.read_only {
            return Err(FsError::ReadOnly);
        }
        self.inner.admits_writing()?;
        if self.lease.actions.contains(Action::Write) {
            Ok(())
        } else {
            Err(self.refuse("lease-action", &TreePath::root()))
        }
    }

    /// Finds `node` and what the lease may know of it. Hidden ones are stale: their names were never given out
    /// under this lease, or were moved out of its sight.
    fn at(&self, live: &LiveDir, node: NodeRef) -> Result<(Located, Visibility), FsError> {
        let at = live.locate(node)?;
        match self.lease.paths.visibility(&at.path) {
            Visibility::Hidden if at.attr.nlink > 1 && at.attr.kind != FileKind::Dir => {
                // A file with several names may be known by another one that is in the lease.
                let names = live.names_of(node)?;
                if names.iter().any(|name| self.lease.paths.allows(name)) {
                    Ok((at, Visibility::Full))
                } else {
                    Err(FsError::Stale)
                }
            }
            Visibility::Hidden => Err(FsError::Stale),
            visible => Ok((at, visible)),
        }
    }

    /// Runs a verb on a file, again when a rename came between finding it and acting on it.
    fn with_at<T>(
        &self,
        node: NodeRef,
        mut act: impl FnMut(&LiveDir, &Located, Visibility) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let files = self.files();
        let live = files.live();
        for _ in 0..ATTEMPTS_MAX {
            let (at, visible) = self.at(live, node)?;
            match act(live, &at, visible) {
                Err(FsError::Later) => {}
                done => return done,
            }
        }
        Err(FsError::Later)
    }

    /// The path of `name` in the directory `at`, checked.
    fn child(at: &Located, name: &[u8]) -> Result<TreePath, FsError> {
        if at.attr.kind != FileKind::Dir {
            return Err(FsError::NotDir);
        }
        at.path.join(legal(name)?).map_err(|_| FsError::NameTooLong)
    }

    /// The lease must hold `path` itself for a change there. EACCES, recorded, when it does not (SPEC MOUNT-5).
    fn may_change(&self, path: &TreePath) -> Result<(), FsError> {
        if self.lease.paths.allows(path) { Ok(()) } else { Err(self.refuse("lease-path", path)) }
    }

    /// A change of a file's content or attributes reaches all its names, so the lease must hold each of them.
    fn may_change_file(&self, live: &LiveDir, at: &Located) -> Result<(), FsError> {
        if at.attr.kind == FileKind::Dir || at.attr.nlink <= 1 {
            return self.may_change(&at.path);
        }
        live.names_of(at.node)?.iter().try_for_each(|name| self.may_change(name))
    }

    /// Notes a refusal for the recorder; gives the error for it.
    fn refuse(&self, rule: &'static str, path: &TreePath) -> FsError {
        self.inner.refused(&self.lease, rule, path);
        FsError::Access
    }
}

fn view_failed(commit: Oid, error: &nas_store::StoreError) -> FsError {
    tracing::warn!(error = error as &dyn std::error::Error, %commit, "a commit could not be shown");
    match error {
        nas_store::StoreError::TooManyViews(_) => FsError::Later,
        error if error.is_no_space() => FsError::NoSpace,
        _ => FsError::Io,
    }
}

/// A legal name, or the error NFS has for it.
fn legal(name: &[u8]) -> Result<Name<'_>, FsError> {
    Name::new(name).map_err(|why| match why {
        PathError::NameTooLong | PathError::PathTooLong => FsError::NameTooLong,
        PathError::Empty | PathError::Dots | PathError::Forbidden | PathError::NotAbsolute | PathError::Escape => {
            FsError::Invalid
        }
    })
}
