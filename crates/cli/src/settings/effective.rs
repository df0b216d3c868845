//! The settings in force: each with its value and where it comes from.
//!
//! Decides: how a source is named, and how two states of a server's settings differ. Place in the walk: `cistern settings`, and a daemon that
//! reads its settings again. Leaves to others: which value wins (the parent).

use super::table::{AGENT, Named, SERVER, Setting};
use super::{Flag, Settings};
use crate::commands::serve::Serve;
use crate::local::Failure;
use crate::logging;
use crate::options::Options;
use cistern_server::status::LIVE;
use serde::{Deserialize, Serialize};

/// One setting in force.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(crate) struct SettingRow {
    /// `server.lease`: the table and the name in it.
    pub(crate) setting: String,
    pub(crate) value: serde_json::Value,
    /// `default`, the settings file with the line, a flag or a variable.
    pub(crate) source: String,
    /// The value as it is written in a settings file.
    #[serde(skip)]
    pub(crate) toml: String,
    /// Whether a running daemon takes up another value when it is told to by SIGHUP.
    pub(crate) live: bool,
}

impl SettingRow {
    /// A setting as a server has told it.
    pub(crate) fn told(self) -> Self {
        let toml = toml::Value::try_from(&self.value).map_or_else(|_| self.value.to_string(), |value| value.to_string());
        Self { toml, ..self }
    }
}

impl Settings {
    /// Every setting in force for a command with these options, the server's as a server without flags would have them.
    ///
    /// # Errors
    /// A setting that cannot be used, and where it was set.
    pub(crate) fn effective(&self, options: &Options) -> Result<Vec<SettingRow>, Failure> {
        let mut rows = self.server_rows(&self.server_config_alone()?, &[]);
        let agent = self.agent_config_of(options)?;
        let given = [
            options.lease.map(|_| ("lease", "--lease")),
            options.lease_max.map(|_| ("lease-max", "--lease-max")),
            options.timeout.map(|_| ("timeout", "--timeout")),
        ];
        let flags: Vec<_> = given.into_iter().flatten().map(|(setting, flag)| Flag { setting, flag }).collect();
        rows.extend(self.rows(AGENT, &agent, &flags));
        let servers = self.servers(&options.server);
        let named = options.server.iter().any(|name| !name.is_empty());
        let variable = std::env::var("CISTERN_SERVER").is_ok_and(|text| text.split(',').eq(options.server.iter().map(String::as_str)));
        let flag = Flag { setting: "server", flag: if variable { "CISTERN_SERVER" } else { "--server" } };
        let client = super::table::Client { server: servers.names };
        rows.extend(self.rows(super::table::CLIENT, &client, if named { std::slice::from_ref(&flag) } else { &[] }));
        rows.extend(self.log_rows());
        Ok(rows)
    }

    /// Every setting in force for a server, and the log's.
    pub(crate) fn of_server(&self, config: &cistern_server::Config, args: &Serve) -> Vec<SettingRow> {
        let mut rows = self.server_rows(config, &flags_of(args));
        rows.extend(self.log_rows());
        rows
    }

    fn server_rows(&self, config: &cistern_server::Config, flags: &[Flag]) -> Vec<SettingRow> {
        let mut rows = self.rows(SERVER, config, flags);
        for row in &mut rows {
            row.live = row.setting.strip_prefix("server.").is_some_and(|name| LIVE.contains(&name));
        }
        rows
    }

    fn log_rows(&self) -> Vec<SettingRow> {
        let fixed = logging::fixed();
        let flag = fixed.as_ref().map(|fixed| Flag { setting: "filter", flag: fixed.by });
        let log = super::table::Log { filter: fixed.map_or_else(|| self.log_filter(), |fixed| fixed.filter) };
        let mut rows = self.rows(super::table::LOG, &log, flag.as_slice());
        rows.iter_mut().for_each(|row| row.live = flag.is_none());
        rows
    }

    fn rows<C: Named>(&self, table: &[Setting<C>], config: &C, flags: &[Flag]) -> Vec<SettingRow> {
        let row = |setting: &Setting<C>| {
            let toml = (setting.text)(config);
            let file = self.file.as_ref().and_then(|file| Some(format!("{} line {}", file.shown(), file.line_of(C::TABLE, setting.name)?)));
            let flag = flags.iter().find(|flag| flag.setting == setting.name).map(|flag| flag.flag.to_owned());
            SettingRow {
                setting: format!("{}.{}", C::TABLE, setting.name),
                value: as_json(&toml),
                source: flag.or(file).unwrap_or_else(|| "default".to_owned()),
                toml,
                live: false,
            }
        };
        table.iter().map(row).collect()
    }
}

/// The flags of a server that set a setting, too.
pub(super) fn flags_of(args: &Serve) -> Vec<Flag> {
    let given = [
        (args.lease.is_some(), "lease", "--lease"),
        (args.lease_min.is_some(), "lease-min", "--lease-min"),
        (args.lease_max.is_some(), "lease-max", "--lease-max"),
        (args.delta.is_some(), "delta", "--delta"),
        (args.delivery_timeout.is_some(), "delivery-timeout", "--delivery-timeout"),
        (args.max_sessions.is_some(), "sessions-max", "--max-sessions"),
        (args.last_seen, "last-seen", "--last-seen"),
    ];
    given.into_iter().filter(|given| given.0).map(|(_, setting, flag)| Flag { setting, flag }).collect()
}

/// A value of a settings file as JSON; texts that are none stay as they are written.
fn as_json(toml: &str) -> serde_json::Value {
    let table = format!("x = {toml}").parse::<toml::Table>().ok();
    table.and_then(|mut table| serde_json::to_value(table.remove("x")?).ok()).unwrap_or_else(|| toml.into())
}

/// What is another setting than before: those that a running daemon takes up, and those that wait for its next start.
pub(crate) fn changes<'r>(before: &[SettingRow], now: &'r [SettingRow]) -> (Vec<&'r SettingRow>, Vec<&'r SettingRow>) {
    let other = |row: &&SettingRow| before.iter().any(|old| old.setting == row.setting && old.toml != row.toml);
    now.iter().filter(other).partition(|row| row.live)
}

/// Says in the log what became of settings that were read again.
pub(crate) fn tell_changes(who: &str, before: &[SettingRow], now: &[SettingRow]) {
    let (taken, waiting) = changes(before, now);
    if taken.is_empty() && waiting.is_empty() {
        log::info!("{who}: SIGHUP: the settings are as they were");
    }
    for row in taken {
        log::info!("{who}: SIGHUP: {} is {} from now on", row.setting, row.toml);
    }
    for row in waiting {
        log::warn!("{who}: SIGHUP: {} = {} takes effect when it is started again", row.setting, row.toml);
    }
}

/// Shows settings in columns.
pub(crate) fn table(rows: &[SettingRow]) -> String {
    let cells = rows.iter().map(|row| vec![row.setting.clone(), row.toml.clone(), row.source.clone()]);
    let head = ["SETTING", "VALUE", "SOURCE"].map(str::to_owned).to_vec();
    crate::show::columns(&std::iter::once(head).chain(cells).collect::<Vec<_>>())
}
