//! The sessions of one priority: their queues, and the order in which they have their turn.

use mpip_types::Instant;

use super::codel::Codel;

/// The index of nothing.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    No,
    New,
    Old,
    Aside,
}

/// A session's queue in one band.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) head: u32,
    pub(super) tail: u32,
    /// Since when the queue has not been empty.
    pub(super) since: Instant,
    pub(super) bytes: usize,
    pub(super) deficit: isize,
    pub(super) codel: Codel,
    /// CoDel's verdict on the segment at the head, once it is known: whether to mark it.
    pub(super) verdict: Option<bool>,
    pub(super) listed: Listed,
    /// The next session in the same list.
    pub(super) next: u32,
}

impl Flow {
    pub(super) const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        since: Instant::ZERO,
        bytes: 0,
        deficit: 0,
        codel: Codel::NEW,
        verdict: None,
        listed: Listed::No,
        next: NONE,
    };
}

/// Sessions waiting for their turn, first in, first out.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) head: u32,
    tail: u32,
}

impl List {
    const EMPTY: Self = Self { head: NONE, tail: NONE };
}

/// The queues of one priority.
#[derive(Debug)]
pub(super) struct Band {
    pub(super) flows: Vec<Flow>,
    pub(super) new: List,
    pub(super) old: List,
    /// Sessions that wait until others had their turn.
    pub(super) aside: List,
    pub(super) bytes: usize,
}

impl Band {
    pub(super) fn new() -> Self {
        let [new, old, aside] = [List::EMPTY; 3];
        Self { flows: Vec::new(), new, old, aside, bytes: 0 }
    }

    /// The list `listed`; `Listed::No` is none, and is never asked for.
    fn list(&mut self, listed: Listed) -> &mut List {
        match listed {
            Listed::New => &mut self.new,
            Listed::Old | Listed::No => &mut self.old,
            Listed::Aside => &mut self.aside,
        }
    }

    /// Adds a session to the end of a list.
    pub(super) fn append(&mut self, listed: Listed, flow: u32) {
        let tail = core::mem::replace(&mut self.list(listed).tail, flow);
        match self.flows.get_mut(tail as usize) {
            Some(last) => last.next = flow,
            None => self.list(listed).head = flow,
        }
        let entry = &mut self.flows[flow as usize];
        entry.listed = listed;
        entry.next = NONE;
    }

    /// Removes the first session from its list.
    pub(super) fn pop(&mut self, listed: Listed) {
        let head = self.list(listed).head;
        if let Some(first) = self.flows.get_mut(head as usize) {
            first.listed = Listed::No;
            let next = core::mem::replace(&mut first.next, NONE);
            self.list(listed).head = next;
        }
        let list = self.list(listed);
        if list.head == NONE {
            list.tail = NONE;
        }
    }

    /// The session that is first, and its list.
    pub(super) fn first(&self) -> Option<(Listed, u32)> {
        let first = match self.new.head {
            NONE => (Listed::Old, self.old.head),
            head => (Listed::New, head),
        };
        (first.1 != NONE).then_some(first)
    }

    /// Whether no other session waits for its turn.
    pub(super) fn is_alone(&self, flow: u32) -> bool {
        let listed = self.new.head == NONE || self.old.head == NONE;
        listed && self.flows[flow as usize].next == NONE
    }

    /// The session has sent `count` segments of one length, together `len` bytes. A session that is
    /// alone begins a turn of `quantum` bytes whenever one is over before the last segment.
    #[inline]
    pub(super) fn spend(&mut self, flow: u32, len: usize, count: usize, quantum: usize) {
        let entry = &mut self.flows[flow as usize];
        let (listed, quantum) = (entry.listed, quantum as isize);
        let beyond = (len - len / count.max(1)) as isize - entry.deficit;
        entry.deficit -= len as isize;
        if beyond >= 0 {
            entry.deficit += (beyond / quantum + 1) * quantum;
            self.pop(listed);
            self.append(Listed::Old, flow);
        }
    }

    /// The longest queue and its bytes.
    pub(super) fn longest(&self) -> Option<(usize, u32)> {
        let mut longest = None;
        for list in [self.new, self.old, self.aside] {
            let mut at = list.head;
            while let Some(flow) = self.flows.get(at as usize) {
                longest = longest.max(Some((flow.bytes, at)));
                at = flow.next;
            }
        }
        longest.filter(|(bytes, _)| *bytes > 0)
    }
}
