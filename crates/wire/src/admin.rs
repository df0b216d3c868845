//! The operators' family: ADMIN and its answer.
//!
//! Decides: their layout. Implements `wire-spec.md` section 6.2.
//! Leaves to others: what a line means (the server's process), who may send one (`server::lines`).

use crate::field::Bytes16;
use crate::ids::Ask;
use crate::shape::Shown;

body! {
    /// Agent to server: a line of the control protocol, or a further page of the answer to one.
    pub struct Admin<'a> {
        /// The request.
        pub ask: Ask,
        /// The answer of which a page is asked for, as ADMIN_ANSWER names it; 0: the line is executed.
        pub answer: u64,
        /// Where in that answer the page begins.
        pub offset: u32,
        /// The line, in UTF-8 and without its end; empty when a page is asked for.
        pub line: Bytes16<'a> as Shown::Text,
    }
}

body! {
    /// Answers ADMIN: a page of what the line was answered.
    pub struct AdminAnswer<'a> {
        /// Names the answer, in its session.
        pub answer: u64,
        /// Bytes of the whole answer.
        pub total: u32,
        /// Where the page begins.
        pub offset: u32,
        /// The page, of a text in UTF-8; it may end within a character.
        pub text: Bytes16<'a> as Shown::Text,
    }
}
