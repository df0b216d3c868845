//! Every setting of server and agent: from the defaults, over the settings file, to the flags.
//!
//! Decides: which value wins (a flag over the file, the file over the default; what is a part of the lease period follows it unless
//! it is set), and that a mistake is told in one line: which file and line or which flag, what is written there, what is allowed.
//! Place in the walk: before it. `table` lists the settings, `kind` reads and writes their values, `file` reads TOML, `print` writes it.
//! Invariant: what is given out has passed the checks of the crate that uses it.
//! Leaves to others: the relations between settings (`cistern_server::config`, `cistern_agent::config`), flags (`serve`, `options`).

mod effective;
mod file;
mod kind;
mod print;
mod table;

use crate::commands::serve::Serve;
use crate::local::Failure;
use crate::options::Options;
use crate::places;
use file::File;
use std::path::Path;
use std::time::Duration;
use table::{AGENT, CLIENT, Client, LOG, Log, SERVER, Setting};

pub(crate) use effective::{SettingRow, table, tell_changes};
pub(crate) use kind::ppm;
pub(crate) use print::toml;

/// What the settings file says, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    file: Option<File>,
}

/// How many settings a file has with this text, or what is wrong with it.
pub(crate) fn understood(text: &str) -> Result<usize, String> {
    file::understood(text)
}

/// Reads the settings file: the one that is named, else the user's, else the host's.
///
/// # Errors
/// The file cannot be read, is not TOML, or has something in it that is no setting; whoever wrote it is at fault.
pub(crate) fn load(path: Option<&Path>) -> Result<Settings, Failure> {
    let path = path.map_or_else(places::settings_file, |path| Some(path.to_owned()));
    Ok(Settings { file: path.as_deref().map(File::read).transpose()? })
}

/// The servers that a program asks.
pub(crate) struct Servers {
    /// Their addresses, as they were written.
    pub(crate) names: Vec<String>,
    /// Nobody named them.
    pub(crate) default: bool,
}

/// Where the value of a setting comes from, when it is not its default.
struct Flag {
    setting: &'static str,
    flag: &'static str,
}

impl Settings {
    /// The agent's configuration.
    ///
    /// # Errors
    /// A setting that cannot be used, and where it was set.
    pub(crate) fn agent_config(&self) -> Result<cistern_agent::config::Config, Failure> {
        self.agent_config_with(None, None, None)
    }

    /// The agent's configuration: the file's, with what the command line says over it.
    ///
    /// # Errors
    /// A setting that cannot be used, and where it was set.
    pub(crate) fn agent_config_of(&self, options: &Options) -> Result<cistern_agent::config::Config, Failure> {
        self.agent_config_with(options.lease, options.lease_max, options.timeout)
    }

    fn agent_config_with(
        &self,
        lease: Option<Duration>,
        lease_max: Option<Duration>,
        timeout: Option<Duration>,
    ) -> Result<cistern_agent::config::Config, Failure> {
        let mut config = cistern_agent::config::Config::default();
        self.apply(AGENT, &mut config)?;
        let mut flags = Vec::new();
        if let Some(lease) = lease {
            config.lease = lease;
            flags.push(Flag { setting: "lease", flag: "--lease" });
        }
        if let Some(longest) = lease_max {
            config.lease_max = longest;
            flags.push(Flag { setting: "lease-max", flag: "--lease-max" });
        }
        if let Some(span) = timeout {
            config.give_up_after = span;
            flags.push(Flag { setting: "timeout", flag: "--timeout" });
        }
        config.check().map_err(|e| self.refuse(AGENT, &config, e.setting, &e.rule, &flags))?;
        Ok(config)
    }

    /// The servers to ask: the flag's or the environment's, else the file's, else a server on this host.
    pub(crate) fn servers(&self, named: &[String]) -> Servers {
        let named: Vec<_> = named.iter().filter(|name| !name.is_empty()).cloned().collect();
        let mut client = Client::default();
        // Checked when the file was read.
        let set =
            self.apply(CLIENT, &mut client).is_ok() && self.file.as_ref().is_some_and(|file| file.line_of("client", "server").is_some());
        if named.is_empty() { Servers { names: client.server, default: !set } } else { Servers { names: named, default: false } }
    }

    /// What daemons log: the file's filter, else the default.
    pub(crate) fn log_filter(&self) -> String {
        let mut log = Log::default();
        // Checked when the file was read.
        let _ = self.apply(LOG, &mut log);
        log.filter
    }

    /// The server's configuration: the file's, with the flags over it.
    ///
    /// # Errors
    /// A setting that cannot be used, and where it was set.
    pub(crate) fn server_config(&self, args: &Serve) -> Result<cistern_server::Config, Failure> {
        let mut config = cistern_server::Config::for_lease(self.server_lease(args)?);
        self.apply(SERVER, &mut config)?;
        if let Some(lease) = args.lease {
            config.lease = lease;
        }
        if let Some(lease) = args.lease_min {
            config.lease_min = lease;
        }
        if let Some(lease) = args.lease_max {
            config.lease_max = lease;
        }
        if let Some(delta) = args.delta {
            config.delta_ppm = ppm(delta).ok_or_else(|| Failure::usage(format!("--delta is {delta}; it must be 0.003 to 1")))?;
        }
        if let Some(timeout) = args.delivery_timeout {
            config.delivery_timeout = timeout;
        }
        if let Some(count) = args.max_sessions {
            config.sessions_max = count;
        }
        config.last_seen |= args.last_seen;
        config.volatile = args.volatile;
        config.new_cluster = args.new_cluster;
        config.check().map_err(|e| self.refuse(SERVER, &config, e.setting, &e.rule, &effective::flags_of(args)))?;
        Ok(config)
    }

    /// The server's configuration as the file has it, without flags.
    ///
    /// # Errors
    /// A setting that cannot be used, and where it was set.
    pub(crate) fn server_config_alone(&self) -> Result<cistern_server::Config, Failure> {
        let mut config = cistern_server::Config::default();
        self.apply(SERVER, &mut config)?;
        let mut config = cistern_server::Config::for_lease(config.lease);
        self.apply(SERVER, &mut config)?;
        config.check().map_err(|e| self.refuse(SERVER, &config, e.setting, &e.rule, &[]))?;
        Ok(config)
    }

    /// Whether the file sets the delivery timeout, which else follows the lease period.
    pub(crate) fn sets_delivery_timeout(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.line_of("server", "delivery-timeout").is_some())
    }

    /// The lease period, which other defaults follow.
    fn server_lease(&self, args: &Serve) -> Result<Duration, Failure> {
        let mut config = cistern_server::Config::default();
        self.apply(SERVER, &mut config)?;
        Ok(args.lease.unwrap_or(config.lease))
    }

    fn apply<C: table::Named>(&self, table: &[Setting<C>], config: &mut C) -> Result<(), Failure> {
        self.file.as_ref().map_or(Ok(()), |file| file.apply(table, config))
    }

    /// Says what is wrong with a setting and where it was set.
    fn refuse<C: table::Named>(&self, table: &[Setting<C>], config: &C, setting: &str, rule: &str, flags: &[Flag]) -> Failure {
        let value = table.iter().find(|known| known.name == setting).map_or_else(|| "?".to_owned(), |known| (known.text)(config));
        let what = format!("{setting} is {value}; it must be {rule}");
        if let Some(flag) = flags.iter().find(|flag| flag.setting == setting) {
            return Failure::usage(format!("{}: {what}", flag.flag));
        }
        match self.file.as_ref().and_then(|file| Some((file, file.line_of(C::TABLE, setting)?))) {
            Some((file, line)) => Failure::usage(format!("{} line {line}: {what}", file.shown())),
            None => Failure::usage(format!("{what}; that is its default, so set it, too, or mend the other setting ([{}])", C::TABLE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::Cisternd;
    use clap::Parser;
    use std::io::Write;

    fn settings(text: &str) -> Result<(Settings, tempfile::NamedTempFile), Failure> {
        let mut file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
        file.write_all(text.as_bytes()).unwrap();
        load(Some(file.path())).map(|settings| (settings, file))
    }

    fn serve(flags: &[&str]) -> Serve {
        Cisternd::try_parse_from(["cisternd", "--volatile"].iter().chain(flags)).unwrap().serve
    }

    fn server(text: &str, flags: &[&str]) -> Result<cistern_server::Config, Failure> {
        settings(text)?.0.server_config(&serve(flags))
    }

    /// The message, which must name the file, without the name.
    fn message<T>(result: Result<T, Failure>) -> String {
        let failure = result.err().unwrap();
        assert_eq!(failure.exit, crate::execute::EXIT_USAGE);
        assert!(!failure.message.contains('\n'), "one line: {}", failure.message);
        match failure.message.split_once(".toml ") {
            Some((_, rest)) => rest.to_owned(),
            None => failure.message,
        }
    }

    #[test]
    fn without_a_file_and_flags_everything_is_at_its_default() {
        let server = Settings::default().server_config(&serve(&[])).unwrap();
        assert_eq!(server, cistern_server::Config { volatile: true, ..cistern_server::Config::default() });
        let agent = Settings::default().agent_config().unwrap();
        assert_eq!(agent, cistern_agent::config::Config::default());
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let text = "[server]\nlease = \"4s\"\ndelta = 0.02\nwindow = 7\n";
        let config = server(text, &["--delta", "0.05"]).unwrap();
        assert_eq!((config.lease, config.delta_ppm, config.window), (Duration::from_secs(4), 50_000, 7));
    }

    #[test]
    fn the_server_is_the_flag_s_else_the_file_s_else_the_one_on_this_host() {
        let (file, _kept) = settings("[client]\nserver = [\"a\", \"b:1\"]\n").unwrap();
        let names = |settings: &Settings, named: &[&str]| {
            let servers = settings.servers(&named.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
            (servers.names.join(" "), servers.default)
        };
        assert_eq!(names(&file, &["c"]), ("c".to_owned(), false));
        // A variable that is set to nothing names nobody.
        assert_eq!(names(&file, &[""]), ("a b:1".to_owned(), false));
        assert_eq!(names(&Settings::default(), &[]), ("127.0.0.1:7311".to_owned(), true));
    }

    #[test]
    fn what_is_a_part_of_the_lease_follows_it_unless_it_is_set() {
        let config = server("[server]\nlease = 8\n", &[]).unwrap();
        assert_eq!((config.delivery_timeout, config.probe_period), (Duration::from_secs(2), Duration::from_secs(4)));
        let config = server("[server]\nprobe-period = \"3s\"\n", &["--lease", "8s"]).unwrap();
        assert_eq!((config.delivery_timeout, config.probe_period), (Duration::from_secs(2), Duration::from_secs(3)));
    }

    #[test]
    fn every_lease_period_that_is_allowed_can_be_asked_for_alone() {
        for lease in ["100ms", "1s", "30s", "31s", "10m", "1h"] {
            assert!(server("", &["--lease", lease]).is_ok(), "{lease}: {}", message(server("", &["--lease", lease])));
        }
    }

    #[test]
    fn a_value_that_cannot_be_used_is_told_with_its_place() {
        let text = "# a comment\n[server]\nwindow = 10\nlease = \"50ms\"\n";
        assert_eq!(message(server(text, &[])), "line 4: lease is \"50ms\"; it must be 100 ms to 1 h");
        assert_eq!(message(server(text, &["--lease", "2h"])), "--lease: lease is \"7200s\"; it must be 100 ms to 1 h");
        let outdated = message(server("[server]\nlocks-max = 10\n", &[]));
        assert!(outdated.starts_with("locks-per-session is 100_000; it must be 1 to locks-max; that is its default"), "{outdated}");
    }

    #[test]
    fn delta_is_a_fraction_everywhere() {
        assert_eq!(message(server("[server]\ndelta = 0.001\n", &[])).split("; ").next(), Some("line 2: delta is 0.001"));
        assert!(message(server("", &["--delta", "0.001"])).starts_with("--delta: delta is 0.001; it must be 0.003 to 1"));
        for text in ["nan", "-1", "inf", "2000"] {
            let flag = format!("--delta={text}");
            assert!(message(server("", &[&flag])).contains("it must be 0.003 to 1"), "{text}");
        }
    }
}
