//! The watch family: WATCH and UNWATCH, and what WATCH is answered with. Its notice, WATCH_EVENT, is with the other notices.
//!
//! Decides: their layout. Implements `wire-spec.md` section 6.2.
//! Leaves to others: who is told what when (`server::watches`).

use crate::attr::Attr;
use crate::ids::{Ask, ObjectId};

body! {
    /// Agent to server: tell me when this object changes, of a directory also when its entries do.
    pub struct Watch {
        /// The request.
        pub ask: Ask,
        /// The object.
        pub object: ObjectId,
    }
}

body! {
    /// Agent to server: nobody here watches this object any more.
    pub struct Unwatch {
        /// The request.
        pub ask: Ask,
        /// The object.
        pub object: ObjectId,
    }
}

body! {
    /// Answers WATCH: the object as it is now; what changes after that is told.
    pub struct Watched {
        /// Its attributes.
        pub attr: Attr,
    }
}
