//! `cistern man`: the manual pages of both programs, from their command lines.

use super::{NONE, Run};
use crate::command_line::{Cistern, Cisternd};
use crate::ctx::Ctx;
use crate::execute::EXIT_FAILED;
use crate::local::Failure;
use crate::show;
use clap::{Args, Command};
use clap_mangen::Man;
use std::fs;
use std::path::PathBuf;

const MAN_HELP: &str = "\
Examples:
  cistern man > cistern.1
  cistern man ./man         # cistern.1, cistern-lock.1, ..., cisternd.8, ...";

/// Print the manual page, or write the pages of all commands of both programs to a directory
#[derive(Args, Debug)]
#[command(after_help = MAN_HELP)]
pub(crate) struct ManPages {
    /// Directory, created if missing
    dir: Option<PathBuf>,
}

impl Run for ManPages {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        NONE
    }

    fn run(&self, _: &mut Ctx) -> Result<(), Failure> {
        let Some(dir) = &self.dir else { return show::bytes(&page(Cistern::prepared(), "1")?) };
        let failed = |e: std::io::Error| Failure::new("LOCAL", EXIT_FAILED, format!("{}: {e}", dir.display()));
        fs::create_dir_all(dir).map_err(failed)?;
        for (program, section) in [(Cistern::prepared(), "1"), (Cisternd::prepared(), "8")] {
            for (name, command) in pages(&program, "") {
                fs::write(dir.join(format!("{name}.{section}")), page(command, section)?).map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// A command and those below it, each by the name of its page.
fn pages(command: &Command, above: &str) -> Vec<(String, Command)> {
    let name = if above.is_empty() { command.get_name().to_owned() } else { format!("{above}-{}", command.get_name()) };
    let below = command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    let below: Vec<_> = below.flat_map(|sub| pages(sub, &name)).collect();
    std::iter::once((name, command.clone())).chain(below).collect()
}

fn page(command: Command, section: &str) -> Result<Vec<u8>, Failure> {
    let mut roff = Vec::new();
    let source = concat!("cistern ", env!("CARGO_PKG_VERSION"));
    Man::new(command).section(section).source(source).manual("Cistern").render(&mut roff).map_err(|e| Failure::failed(e.to_string()))?;
    Ok(roff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_the_version() {
        for (name, command) in pages(&Cistern::prepared(), "").into_iter().chain(pages(&Cisternd::prepared(), "")) {
            let page = String::from_utf8(page(command, "1").unwrap()).unwrap();
            let title = page.lines().find(|line| line.starts_with(".TH")).unwrap();
            assert!(title.contains(concat!("\"cistern ", env!("CARGO_PKG_VERSION"), "\"")), "{name}: {title}");
        }
    }
}
