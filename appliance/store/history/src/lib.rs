//! History: a bare Git object database in a directory, and what the Store needs of it. Nothing here knows of
//! live directories, leases or protocols.
//!
//! Read in this order:
//! - [`History`] (`repo`): opening, refs; `read`: entries, listings, content.
//! - `edit`, [`Writer`]: a list of edits becomes new trees at a cost of O(changes × depth) plus the size of the
//!   directories on the way; objects go into one pack.
//! - `pack`: the pack is written, synced, renamed, its directory synced; `refs`: only then does a ref move.
//! - `tree`, `meta`: how one directory is kept in two halves. The **content tree** is plain Git (100644, 100755,
//!   120000, blobs raw: no filters, no line-end conversion). The **meta tree** mirrors those directories that need
//!   it: modes, empty directories, and entries named like `.git`, which stock git must never see.
//! - `commit`: trailers (SPEC GIT-1), and how meta is tied to content: the content commit's last trailer
//!   `Meta: <commit>` names the meta commit. Both come in one pack, so a crash leaves both or none, and a content
//!   commit id is all one needs. `refs/nas/meta/<branch>` keeps meta reachable for stock git; it moves with the
//!   branch, and being one ahead or behind after a crash is harmless: nothing here reads it, and prune follows the
//!   trailer.
//! - `diff`, `merge`, `renames`, `text`: changes, three-way merge that stops on conflict (SPEC BRANCH-5), unified diffs.
//! - `maintain`: joining small packs, pruning what no ref reaches; `hold`: how prune and writers keep apart.
//!
//! Not kept, with room left for it: xattrs, hard links, mtimes (a line of meta gets more fields and a new format
//! number; mtimes would put a line for every file into its directory's meta and cost O(directory) per commit).
//! Attributes of the root belong to the live directory. Not here: LFS pointers and ignore rules (the caller
//! decides which paths it puts), checking out, the Git protocol.
//!
//! Trailers are trustworthy in commits made here. A pushed commit may carry any `Meta:` trailer, so whoever
//! accepts pushes must refuse one that names a commit its author could not see.

mod commit;
mod diff;
mod edit;
mod error;
mod hold;
mod maintain;
mod merge;
mod meta;
mod object;
mod pack;
mod read;
/// Names of refs and what a ref must hold before it moves.
pub mod refs;
mod renames;
mod repo;
mod text;
mod tree;
mod writer;

pub use commit::{CommitInfo, CommitSpec, Trees};
pub use edit::{Edit, Opened, Put, Source};
pub use error::{HistoryError, Result};
pub use hold::Hold;
pub use maintain::{Consolidated, Pruned};
pub use merge::{MERGED_BYTES_MAX, Merge, Merged};
pub use object::blob_id;
pub use read::NamedEntries;
pub use refs::Expect;
pub use repo::History;
pub use text::{DiffLimits, FileDiff, MERGE_TEXT_BYTES_MAX, is_text};
pub use writer::Writer;
