//! `cistern xattr`: extended attributes.

mod get;
mod list;
mod rm;
mod set;

super::commands! {
    /// Read and change extended attributes
    Xattr:
    Get(get::XattrGet),
    Set(set::XattrSet),
    List(list::XattrList),
    Rm(rm::XattrRm),
}
