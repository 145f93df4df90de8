//! A stored head that was read, shared by all who find its entry.
//!
//! To read a head is to take it apart; that of an entry in the memory tier is read once, and kept
//! with the entry. So is what the caller makes of it for clients: a view, whatever that is, of
//! which there is one at a time.
//!
//! 1. A head that is changed is a copy, without a view.
//! 2. A view takes no more than [`SharedHead::view_bytes`], which are counted with the entry from
//!    the moment on that its head is kept.

use std::any::Any;
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};

use millpond_store::{Entry, Zone};

use crate::head::StoredHead;

/// Bytes that a view takes besides its fields: its own parts and the allocator's share of them.
const VIEW_OVERHEAD: usize = 320;
/// Bytes that a view takes for each field besides name and value: their places, and what stands
/// between them in a message.
const VIEW_FIELD: usize = 80;
/// Bytes that a kept head takes besides itself: counts, and the allocator's share.
const OVERHEAD: usize = 48;

/// Value that a caller made of a head.
type View = Arc<dyn Any + Send + Sync>;

struct Kept {
    head: StoredHead,
    /// View of the head, kept beside it, because who reads the one reads the other.
    view: RwLock<Option<View>>,
}

impl Clone for Kept {
    fn clone(&self) -> Self {
        Kept {
            head: self.head.clone(),
            view: RwLock::default(),
        }
    }
}

/// A head as it was found.
#[derive(Clone)]
pub struct SharedHead(Arc<Kept>);

impl From<StoredHead> for SharedHead {
    fn from(head: StoredHead) -> Self {
        SharedHead(Arc::new(Kept {
            head,
            view: RwLock::default(),
        }))
    }
}

impl Deref for SharedHead {
    type Target = StoredHead;

    fn deref(&self) -> &StoredHead {
        &self.0.head
    }
}

impl std::fmt::Debug for SharedHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.head.fmt(f)
    }
}

impl SharedHead {
    /// The head of an entry; kept with it if it is in memory. None if it is not one.
    pub(crate) fn of(store: &Zone, entry: &Entry) -> Option<Self> {
        if let Some(reading) = entry.reading()
            && let Ok(kept) = Arc::clone(reading).downcast::<Kept>()
        {
            return Some(SharedHead(kept));
        }
        let head = SharedHead::from(StoredHead::decode(entry.head())?);
        let bytes = size_of::<Kept>() + OVERHEAD + head.view_bytes();
        store.keep_reading(entry, Arc::<Kept>::clone(&head.0), bytes as u64);
        Some(head)
    }

    /// The head, to be changed for its holder alone.
    pub fn change(&mut self) -> &mut StoredHead {
        let kept = Arc::make_mut(&mut self.0);
        // INVARIANT 1.
        kept.view = RwLock::default();
        &mut kept.head
    }

    /// Bytes that a view may take.
    pub fn view_bytes(&self) -> usize {
        VIEW_OVERHEAD + self.field_count() * VIEW_FIELD + self.fields_len()
    }

    /// The view, if there is one of this kind.
    pub fn view<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let view = self.0.view.read().unwrap_or_else(PoisonError::into_inner);
        let view = view.as_ref().filter(|view| (***view).is::<T>())?;
        Arc::clone(view).downcast().ok()
    }

    /// Keeps a view, in place of another one.
    pub fn keep_view<T: Any + Send + Sync>(&self, view: Arc<T>) {
        let mut kept = self.0.view.write().unwrap_or_else(PoisonError::into_inner);
        let replaced = kept.replace(view);
        drop(kept);
        drop(replaced);
    }
}
