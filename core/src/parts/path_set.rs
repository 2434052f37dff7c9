//! The paths of an association, and the identifiers of new paths.

use core::ops::{Index, IndexMut};

use mpip_transport::PathState;
use mpip_types::{Instant, PathAddress};
use mpip_wire::PathId;

use super::path_ids::RetiredIds;
use crate::content::Path;

/// The index of a path in its set. Valid until a path is [removed](PathSet::remove).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PathIndex(usize);

/// The paths of an association, in the order in which they were opened.
#[derive(Debug)]
pub(crate) struct PathSet {
    paths: Vec<Path>,
    /// Maximum number of paths.
    limit: usize,
    /// Where the search for the next free identifier starts.
    next: u16,
    retired: RetiredIds,
}

impl PathSet {
    /// An empty set for at most `limit` paths.
    pub(crate) fn new(limit: usize) -> Self {
        Self { paths: Vec::new(), limit, next: 0, retired: RetiredIds::default() }
    }

    /// Adds a path, unless the limit is reached.
    pub(crate) fn add(&mut self, path: Path) -> Option<PathIndex> {
        if self.is_full() {
            return None;
        }
        self.paths.push(path);
        Some(PathIndex(self.paths.len() - 1))
    }

    /// Removes a path. Its identifier stays reserved as long as the keys exist.
    pub(crate) fn remove(&mut self, index: PathIndex) -> Path {
        let path = self.paths.remove(index.0);
        self.retired.insert(path.id);
        path
    }

    /// The identifier for the next path. Identifiers are used in ascending order, modulo 2^16, so
    /// that each is reused as late as possible, when the peer has long forgotten the path that had
    /// it.
    pub(crate) fn take_id(&mut self) -> Option<PathId> {
        let first = self.next;
        let mut ids = (0..=u16::MAX).map(|step| PathId(first.wrapping_add(step)));
        let id = ids.find(|id| !self.retired.contains(*id) && self.find(*id).is_none())?;
        self.next = id.0.wrapping_add(1);
        Some(id)
    }

    /// Reserves `id`: nothing is sent or accepted on that path any more.
    pub(crate) fn retire(&mut self, id: PathId) {
        self.retired.insert(id);
    }

    /// Whether path `id` was abandoned and its identifier may not be reused yet.
    pub(crate) fn is_retired(&self, id: PathId) -> bool {
        self.retired.contains(id)
    }

    /// New keys are in use, and those before the previous ones are erased.
    pub(crate) fn on_renewal(&mut self) {
        self.retired.on_renewal();
    }

    /// The path `id`.
    pub(crate) fn find(&self, id: PathId) -> Option<PathIndex> {
        self.position(|path| path.id == id)
    }

    /// The path `id`.
    pub(crate) fn get(&self, id: PathId) -> Option<&Path> {
        self.paths.iter().find(|path| path.id == id)
    }

    /// The path at `index`, if it is there still.
    pub(crate) fn at(&self, index: PathIndex) -> Option<&Path> {
        self.paths.get(index.0)
    }

    /// The first path for which `matches` holds.
    pub(crate) fn position(&self, matches: impl FnMut(&Path) -> bool) -> Option<PathIndex> {
        self.paths.iter().position(matches).map(PathIndex)
    }

    /// The number of paths.
    pub(crate) fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether the limit is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.paths.len() >= self.limit
    }

    /// All of them.
    pub(crate) fn iter(&self) -> core::slice::Iter<'_, Path> {
        self.paths.iter()
    }

    /// All of them.
    pub(crate) fn iter_mut(&mut self) -> core::slice::IterMut<'_, Path> {
        self.paths.iter_mut()
    }

    /// The indices of all paths.
    pub(crate) fn indices(&self) -> impl DoubleEndedIterator<Item = PathIndex> + use<> {
        (0..self.paths.len()).map(PathIndex)
    }

    /// All paths with their indices.
    pub(crate) fn enumerate(&self) -> impl Iterator<Item = (PathIndex, &Path)> {
        self.paths.iter().enumerate().map(|(index, path)| (PathIndex(index), path))
    }

    /// The paths that are validated and not abandoned.
    pub(crate) fn validated(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().filter(|path| path.is_validated())
    }

    /// The active paths.
    pub(crate) fn active(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().filter(|path| path.state() == PathState::Active)
    }

    /// Whether any path works.
    pub(crate) fn any_works(&self) -> bool {
        self.paths.iter().any(Path::works)
    }

    /// Whether no path that works answers its probes.
    pub(crate) fn none_answers(&self) -> bool {
        self.paths.iter().filter(|path| path.works()).all(Path::owes_answer)
    }

    /// Whether a path that is not abandoned has `address`.
    pub(crate) fn is_taken(&self, address: PathAddress) -> bool {
        self.paths
            .iter()
            .any(|path| path.address == address && path.state() != PathState::Abandoned)
    }

    /// A handshake datagram was sent to or came from `address`: it refreshes the NAT binding of the
    /// path there.
    pub(crate) fn note_handshake(&mut self, now: Instant, address: PathAddress) {
        for path in self.paths.iter_mut().filter(|path| path.address == address) {
            path.rest.on_travelled(now);
        }
    }

    /// Assigns path identifiers from `id` on.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn number_from(&mut self, id: u16) {
        self.next = id;
    }
}

impl Index<PathIndex> for PathSet {
    type Output = Path;

    fn index(&self, index: PathIndex) -> &Path {
        &self.paths[index.0]
    }
}

impl IndexMut<PathIndex> for PathSet {
    fn index_mut(&mut self, index: PathIndex) -> &mut Path {
        &mut self.paths[index.0]
    }
}

impl<'a> IntoIterator for &'a PathSet {
    type Item = &'a Path;
    type IntoIter = core::slice::Iter<'a, Path>;

    fn into_iter(self) -> Self::IntoIter {
        self.paths.iter()
    }
}

impl<'a> IntoIterator for &'a mut PathSet {
    type Item = &'a mut Path;
    type IntoIter = core::slice::IterMut<'a, Path>;

    fn into_iter(self) -> Self::IntoIter {
        self.paths.iter_mut()
    }
}
