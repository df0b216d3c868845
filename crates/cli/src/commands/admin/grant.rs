//! `cistern admin grant`.

use super::{Control, OPERATOR};
use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::Failure;
use clap::Args;
use serde_json::json;

const GRANT_HELP: &str = "\
Rights are letters: r read and watch, w write, l lock, o own (begin realms within, move and remove the realm itself, and grant any of the four there \
to anybody). They replace those that the agent had in the realm; `1=` withdraws all of them. Rights in a realm do not extend to the realms within it.

An operator grants in every realm, an owner in its own; anybody may give up some of its own rights, under its own name.

Examples:
  cistern admin grant web 1=rwl";

/// Set an agent's rights in realms
#[derive(Args, Debug)]
#[command(after_help = GRANT_HELP)]
pub(crate) struct GrantRights {
    #[command(flatten)]
    server: Control,
    /// Its name
    name: String,
    /// Realm, by number (`cistern realm ls`), and rights
    #[arg(required = true, value_name = "REALM=RIGHTS", value_parser = realm_and_rights)]
    rights: Vec<(u32, String)>,
}

pub(super) fn realm_and_rights(text: &str) -> Result<(u32, String), String> {
    let (realm, rights) = text.split_once('=').ok_or("write REALM=RIGHTS, 7=rwl for example")?;
    let realm = realm.parse().map_err(|_| format!("{realm:?} is no number of a realm; `cistern realm ls` lists them"))?;
    Ok((realm, rights.to_owned()))
}

impl Run for GrantRights {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OPERATOR
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        for (realm, rights) in &self.rights {
            let granted = self.server.ask(ctx, &json!({ "op": "grant", "name": self.name, "realm": realm, "rights": rights }))?;
            ctx.print_with(&granted, String::new)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_realm_is_a_number_and_its_rights_follow() {
        assert_eq!((realm_and_rights("7=rwl"), realm_and_rights("1=")), (Ok((7, "rwl".to_owned())), Ok((1, String::new()))));
        assert!(realm_and_rights("7").is_err() && realm_and_rights("/jobs=r").is_err());
    }
}
