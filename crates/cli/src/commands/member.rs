//! `cistern member`: groups, whose members are ephemeral files in a directory.

mod join;
mod ls;
mod watch;

super::commands! {
    /// Join a group, and see who is there, joins and leaves
    Member:
    Join(join::Join),
    Ls(ls::ListMembers),
    Watch(watch::Watch),
}
