//! `cistern member`: groups, whose members are ephemeral files in a directory.

mod join;
mod watch;

super::commands! {
    /// Join a group, and watch who joins and leaves
    Member:
    Join(join::Join),
    Watch(watch::Watch),
}
