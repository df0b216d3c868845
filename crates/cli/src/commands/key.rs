//! `cistern key`: the key that this host or user is known by.

mod new;
mod retire;
mod rotate;
mod show;

use cistern_driver::EntropyError;
use zeroize::Zeroizing;

super::commands! {
    /// Make and show the key that this host or user is known by
    KeyCommand:
    New(new::NewKey),
    Rotate(rotate::RotateKey),
    Retire(retire::RetireKey),
    Show(show::ShowKey),
}

/// 32 bytes for a new key, wiped when dropped.
pub(crate) fn random() -> Result<Zeroizing<[u8; 32]>, EntropyError> {
    cistern_driver::seed()
}
