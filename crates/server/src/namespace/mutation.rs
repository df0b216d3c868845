//! A request that changes the namespace, as a list of items.
//!
//! Decides: that a mutation that is no batch is one of a single item, so that planning and applying know only lists; and what bytes an
//! item brings. Place in the walk: made by execution from a message; read by `plan`.
//! Leaves to others: what items do (`names`, `rename`, `content`, `xattr`).

use cistern_wire::{Item, List, Message, Terms};

/// A request that changes the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutation<'a> {
    items: Items<'a>,
    terms: Terms<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Items<'a> {
    One(Item<'a>),
    Batch(List<'a, Item<'a>>),
}

impl<'a> Mutation<'a> {
    /// The mutation that a message asks for, if it asks for one.
    #[must_use]
    pub fn of(message: &Message<'a>) -> Option<Self> {
        let items = match message {
            Message::Batch(batch) => Items::Batch(batch.items),
            _ => Items::One(Item::of(message)?),
        };
        Some(Self { items, terms: message.terms()? })
    }

    /// A mutation of the server's own: nobody is answered, and it goes by no terms.
    #[must_use]
    pub const fn one(item: Item<'a>) -> Self {
        Self { items: Items::One(item), terms: Terms::NONE }
    }

    /// What its sender would like to hold, what it holds, under which guard it acts, what it expects.
    #[must_use]
    pub const fn terms(&self) -> Terms<'a> {
        self.terms
    }

    /// Whether it is a batch.
    #[must_use]
    pub const fn is_batch(&self) -> bool {
        matches!(self.items, Items::Batch(_))
    }

    /// How many items it has.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.items {
            Items::One(_) => 1,
            Items::Batch(items) => items.len(),
        }
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is done, in order.
    pub fn items(&self) -> impl Iterator<Item = Item<'a>> + use<'a> {
        let (one, batch) = match self.items {
            Items::One(item) => (Some(item), List::default()),
            Items::Batch(items) => (None, items),
        };
        one.into_iter().chain(batch)
    }

    /// How many ephemeral files it makes.
    #[must_use]
    pub fn ephemerals(&self) -> usize {
        self.items().filter(|item| matches!(item, Item::Create(m) if m.ephemeral)).count()
    }

    /// The stages that have what its items bring.
    pub fn stages(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.items().filter_map(|item| staged(&item))
    }
}

/// The stage that has what an item brings, if a stage has it.
#[must_use]
pub const fn staged(item: &Item<'_>) -> Option<u64> {
    let stage = match item {
        Item::Write(m) => m.stage,
        Item::SetXattr(m) => m.stage,
        _ => 0,
    };
    if stage == 0 { None } else { Some(stage) }
}

/// What an item brings itself: contents, a link's target, the value of an attribute.
#[must_use]
pub const fn carried<'a>(item: &Item<'a>) -> &'a [u8] {
    match item {
        Item::Write(m) => m.data.0,
        Item::Symlink(m) => m.target.0,
        Item::SetXattr(m) => m.data.0,
        _ => &[],
    }
}
