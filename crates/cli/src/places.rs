//! Where programs keep state and sockets, and where they look for settings, unless told otherwise.
//!
//! Decides: `/var/lib/cistern` for root, the directories of the XDG Base Directory Specification for everybody else, with its fallbacks.
//! The state directory that is named by `--state` has the control socket in it. Leaves to others: making directories.

use crate::local::Failure;
use cistern_credentials::Places;
use std::env;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// State directories of root.
const SYSTEM_STATE: &str = "/var/lib/cistern";
/// Settings of the host, for everybody who has none of his own.
const SYSTEM_SETTINGS: &str = "/etc/cistern";
/// Name of the settings file in its directories.
const SETTINGS_NAME: &str = "cistern.toml";
/// Name of the control socket in a state directory.
pub(crate) const SOCKET_NAME: &str = "control.sock";

/// A program that keeps state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Daemon {
    Server,
    Agent,
}

impl Daemon {
    const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Agent => "agent",
        }
    }

    /// Its state directory: the one named, else the default of this user.
    ///
    /// # Errors
    /// None is named and the environment gives none.
    pub(crate) fn state(self, named: Option<&Path>) -> Result<PathBuf, Failure> {
        let default = || Environment::this().state(self).ok_or_else(|| homeless("--state DIR"));
        named.map_or_else(default, |dir| Ok(dir.to_owned()))
    }

    /// Its control socket, by the state directory that was named, if one was.
    ///
    /// # Errors
    /// None is named and the environment gives none.
    pub(crate) fn socket(self, named: Option<&Path>) -> Result<PathBuf, Failure> {
        let default = || Environment::this().socket(self).ok_or_else(|| homeless("--state DIR, --control SOCKET or --agent SOCKET"));
        named.map_or_else(default, |dir| Ok(dir.join(SOCKET_NAME)))
    }
}

/// The directory of the store: the one named, else the default of this user, where `cisternd init` makes it.
///
/// # Errors
/// None is named and the environment gives none.
pub(crate) fn store(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let default = || Environment::this().store().ok_or_else(|| homeless("the directory of the store"));
    named.map_or_else(default, |dir| Ok(dir.to_owned()))
}

/// The control socket of this host's member of a group, by the hash of the group's list.
///
/// # Errors
/// The environment gives none.
pub(crate) fn peer_socket(list_hash: u64) -> Result<PathBuf, Failure> {
    Environment::this().peer_socket(list_hash).ok_or_else(|| homeless("--socket SOCKET"))
}

/// Where a command looks for a host's agent that nobody has named: at this user's, then at the system's.
pub(crate) fn agent_sockets() -> Vec<PathBuf> {
    let system = Environment { root: true, ..Environment::default() };
    let mut sockets: Vec<_> = [Environment::this(), system].iter().filter_map(|environment| environment.socket(Daemon::Agent)).collect();
    sockets.dedup();
    sockets
}

fn homeless(flag: &str) -> Failure {
    Failure::usage(format!("neither XDG_STATE_HOME nor HOME names a directory for the state of this user: set one of them, or give {flag}"))
}

/// Where this user's credentials are made.
///
/// # Errors
/// The environment names no directory; `flag` would.
pub(crate) fn own_credentials(flag: &str) -> Result<PathBuf, Failure> {
    let none = || {
        let what = format!("neither XDG_CONFIG_HOME nor HOME names a directory for the keys of this user: set one of them, or give {flag}");
        Failure::usage(what)
    };
    Places::of_this_process(None).own().map(Path::to_owned).ok_or_else(none)
}

/// Makes the directory of a control socket for this user alone, if it is missing.
///
/// # Errors
/// It cannot be made.
pub(crate) fn make_above(socket: &Path) -> Result<(), Failure> {
    let Some(dir) = socket.parent().filter(|dir| !dir.as_os_str().is_empty()) else { return Ok(()) };
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| {
        Failure::usage(format!("control socket {}: its directory cannot be made: {e}; --state DIR names another", socket.display()))
    })
}

/// The settings file that is used when none is named: the user's, else the host's, if there is one.
pub(crate) fn settings_file() -> Option<PathBuf> {
    Environment::this().settings_files().into_iter().find(|path| path.exists())
}

/// Who runs the program, and what the environment says of his directories.
#[derive(Debug, Default)]
struct Environment {
    root: bool,
    home: Option<PathBuf>,
    state_home: Option<PathBuf>,
    config_home: Option<PathBuf>,
    runtime_dir: Option<PathBuf>,
}

impl Environment {
    fn this() -> Self {
        // Relative paths are to be ignored, by the specification.
        let path = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let uid = nix::unistd::geteuid();
        let login = || {
            let dir = PathBuf::from(format!("/run/user/{uid}"));
            std::fs::metadata(&dir).is_ok_and(|meta| meta.is_dir() && meta.uid() == uid.as_raw()).then_some(dir)
        };
        Self {
            root: uid.is_root(),
            home: path("HOME"),
            state_home: path("XDG_STATE_HOME"),
            config_home: path("XDG_CONFIG_HOME"),
            // Programs that cron starts lack the variable, although the directory may be there.
            runtime_dir: path("XDG_RUNTIME_DIR").or_else(login),
        }
    }

    fn all_state(&self) -> Option<PathBuf> {
        if self.root {
            return Some(SYSTEM_STATE.into());
        }
        let above = self.state_home.clone().or_else(|| Some(self.home.as_ref()?.join(".local/state")))?;
        Some(above.join("cistern"))
    }

    fn state(&self, daemon: Daemon) -> Option<PathBuf> {
        Some(self.all_state()?.join(daemon.name()))
    }

    fn store(&self) -> Option<PathBuf> {
        Some(self.all_state()?.join("store"))
    }

    fn socket(&self, daemon: Daemon) -> Option<PathBuf> {
        match &self.runtime_dir {
            Some(dir) if !self.root => Some(dir.join("cistern").join(format!("{}.sock", daemon.name()))),
            _ => Some(self.state(daemon)?.join(SOCKET_NAME)),
        }
    }

    fn peer_socket(&self, list_hash: u64) -> Option<PathBuf> {
        let above = match &self.runtime_dir {
            Some(dir) if !self.root => dir.join("cistern"),
            _ => self.all_state()?,
        };
        Some(above.join("peer").join(format!("{list_hash:016x}.sock")))
    }

    fn settings_files(&self) -> Vec<PathBuf> {
        let own = self.config_home.clone().or_else(|| Some(self.home.as_ref()?.join(".config")));
        let own = own.map(|dir| dir.join("cistern"));
        own.into_iter().chain([SYSTEM_SETTINGS.into()]).map(|dir| dir.join(SETTINGS_NAME)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(home: &str) -> Environment {
        Environment { home: Some(home.into()), ..Environment::default() }
    }

    #[test]
    fn root_has_the_directories_of_the_system() {
        let root = Environment { root: true, runtime_dir: Some("/run/user/0".into()), ..user("/root") };
        assert_eq!(root.state(Daemon::Server).unwrap(), Path::new("/var/lib/cistern/server"));
        assert_eq!(root.store().unwrap(), Path::new("/var/lib/cistern/store"));
        assert_eq!(root.socket(Daemon::Agent).unwrap(), Path::new("/var/lib/cistern/agent/control.sock"));
        assert_eq!(root.peer_socket(10).unwrap(), Path::new("/var/lib/cistern/peer/000000000000000a.sock"));
    }

    #[test]
    fn others_have_the_xdg_directories_with_their_fallbacks() {
        let mut ann = user("/home/ann");
        assert_eq!(ann.state(Daemon::Agent).unwrap(), Path::new("/home/ann/.local/state/cistern/agent"));
        assert_eq!(ann.socket(Daemon::Server).unwrap(), Path::new("/home/ann/.local/state/cistern/server/control.sock"));
        assert_eq!(ann.settings_files(), [Path::new("/home/ann/.config/cistern/cistern.toml"), Path::new("/etc/cistern/cistern.toml")]);
        ann.state_home = Some("/state".into());
        ann.runtime_dir = Some("/run/user/7".into());
        ann.config_home = Some("/config".into());
        assert_eq!(ann.peer_socket(10).unwrap(), Path::new("/run/user/7/cistern/peer/000000000000000a.sock"));
        assert_eq!(ann.state(Daemon::Server).unwrap(), Path::new("/state/cistern/server"));
        assert_eq!(ann.store().unwrap(), Path::new("/state/cistern/store"));
        assert_eq!(ann.socket(Daemon::Server).unwrap(), Path::new("/run/user/7/cistern/server.sock"));
        assert_eq!(ann.settings_files()[0], Path::new("/config/cistern/cistern.toml"));
        assert_eq!((Environment::default().state(Daemon::Server), Environment::default().settings_files().len()), (None, 1));
    }
}
