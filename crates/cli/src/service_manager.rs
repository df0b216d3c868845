//! Tells the service manager that this process is ready, as sd_notify(3) says: `systemctl start` returns when programs and operators are answered.
//!
//! Decides: that a manager which cannot be told is a warning; the process serves all the same.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells it, if one has started this process and asks to be told.
pub(crate) fn ready() {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = tell(&socket, b"READY=1") {
        log::warn!("the service manager cannot be told that this process is ready: NOTIFY_SOCKET={}: {error}", socket.display());
    }
}

fn tell(socket: &OsStr, what: &[u8]) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(what, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_manager_is_told_at_a_path_and_at_an_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("cistern-test-{}", std::process::id());
        let bound = [UnixDatagram::bind(&path), UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap())];
        for (socket, place) in bound.into_iter().zip([path.as_os_str(), OsStr::new(&format!("@{name}"))]) {
            let socket = socket.unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            tell(place, b"READY=1").unwrap();
            let mut got = [0; 16];
            let len = socket.recv(&mut got).unwrap();
            assert_eq!(&got[..len], b"READY=1");
        }
        assert!(tell(dir.path().join("none").as_os_str(), b"READY=1").is_err());
    }
}
