//! The settings that a running server has in force, and how it takes up others.
//!
//! Decides: that a settings file with a mistake changes nothing, and that what cannot change under open sessions is named in the log.
//! Place in the walk: a thread of its own reads the file, the server's loop takes up what came of it.
//! Invariant: the loop never waits for the file: nothing is read while the state is held.
//! Leaves to others: which settings a running server takes up (`cistern_server::live`).

use super::Serve;
use crate::logging;
use crate::settings::{self, SettingRow, Settings, tell_changes};
use cistern_server::Config;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The settings in force.
#[derive(Debug, Default)]
pub(super) struct InForce(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    args: Option<Serve>,
    rows: Vec<SettingRow>,
    /// Read from the file again, and not taken up yet.
    pending: Option<Config>,
}

impl InForce {
    pub(super) fn new(args: &Serve, settings: &Settings, config: &Config) -> Arc<Self> {
        let rows = settings.of_server(config, args);
        Arc::new(Self(Mutex::new(State { args: Some(args.clone()), rows, pending: None })))
    }

    /// Every setting with its source.
    pub(super) fn rows(&self) -> Vec<SettingRow> {
        self.state().rows.clone()
    }

    /// What is to be taken up now.
    pub(super) fn take(&self) -> Option<Config> {
        self.state().pending.take()
    }

    /// Reads the settings file again, however long that takes.
    pub(super) fn reload(&self) {
        let Some(args) = self.state().args.clone() else { return };
        let read = settings::load(args.config.as_deref()).and_then(|settings| Ok((settings.server_config(&args)?, settings)));
        match read {
            Ok((config, settings)) => {
                let rows = settings.of_server(&config, &args);
                tell_changes("server", &self.rows(), &rows);
                logging::adopt(&settings.log_filter());
                let mut state = self.state();
                // What waits for the next start is not in force.
                for row in rows.into_iter().filter(|row| row.live) {
                    if let Some(old) = state.rows.iter_mut().find(|old| old.setting == row.setting) {
                        *old = row;
                    }
                }
                state.pending = Some(config);
            }
            Err(failure) => log::error!("server: SIGHUP: {}; the settings stay as they were", failure.message),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
