//! The keys that open what is received.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use mpip_types::{Open, Opened};

use crate::crew::lock;

/// Keys by the receiver index of the datagrams that they open.
#[derive(Debug)]
pub(super) struct Keys {
    /// Reads the receiver index of a datagram, if it has one.
    index_of: fn(&[u8]) -> Option<u32>,
    table: Mutex<HashMap<u32, Arc<dyn Open>>>,
}

/// Opens datagrams that mostly have the same key.
#[derive(Debug)]
pub(super) struct Opener<'a> {
    keys: &'a Keys,
    last: Option<(u32, Option<Arc<dyn Open>>)>,
}

impl Keys {
    pub(super) fn new(index_of: fn(&[u8]) -> Option<u32>) -> Self {
        Self { index_of, table: Mutex::default() }
    }

    /// What opens the datagrams with `index` from now on, if anything does.
    pub(super) fn set(&self, index: u32, key: Option<Arc<dyn Open>>) {
        let mut table = lock(&self.table);
        match key {
            Some(key) => table.insert(index, key),
            None => table.remove(&index),
        };
    }

    pub(super) fn opener(&self) -> Opener<'_> {
        Opener { keys: self, last: None }
    }
}

impl Opener<'_> {
    /// Opens a datagram, if its key is there.
    pub(super) fn open(&mut self, datagram: &mut [u8]) -> Opened {
        let Some(index) = (self.keys.index_of)(datagram) else { return Opened::NotYet };
        if self.last.as_ref().is_none_or(|(last, _)| *last != index) {
            let key = lock(&self.keys.table).get(&index).cloned();
            self.last = Some((index, key));
        }
        let key = self.last.as_ref().and_then(|(_, key)| key.as_ref());
        key.map_or(Opened::NotYet, |key| key.open(datagram))
    }
}
