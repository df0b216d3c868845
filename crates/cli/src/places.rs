//! Where daemons keep their state and their control sockets, unless told otherwise.
//!
//! Decides: the default directories. Leaves to others: making them.

/// State directory of a server.
pub(crate) const SERVER_DIR: &str = "/var/lib/cistern/server";
/// Control socket of a server in its default state directory.
pub(crate) const SERVER_SOCKET: &str = "/var/lib/cistern/server/control.sock";
/// State directory of the host's agent.
pub(crate) const AGENT_DIR: &str = "/var/lib/cistern/agent";
/// Name of the control socket in a state directory.
pub(crate) const SOCKET_NAME: &str = "control.sock";
