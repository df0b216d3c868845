//! Who is trusted, as values and texts: revoked keys, and fingerprints by which people compare texts.
//!
//! No files, sockets, clocks or random source. Keys are those of [`cistern_seal`]; which file has what is decided by `cistern-credentials`.
//!
//! | file | question it answers |
//! |---|---|
//! | [`revocation`] | which keys are good no more |
//! | [`fingerprint`] | do two people look at the same text |

pub mod fingerprint;
pub mod revocation;

pub use fingerprint::Fingerprint;
pub use revocation::Revocations;
