//! `cistern admin invite`: lines with which hosts join.
//!
//! Decides: that the secret is drawn here, from the system's random source, and is shown in the line alone.

use super::grant::realm_and_rights;
use super::{Control, OPERATOR, cluster, label, own_cluster};
use crate::commands::Run;
use crate::commands::key::random;
use crate::ctx::Ctx;
use crate::execute::EXIT_SOFTWARE;
use crate::local::Failure;
use crate::text::Blob;
use crate::{logging, show};
use cistern_text::duration;
use cistern_trust::invite::INVITE_SERVERS_MAX;
use cistern_trust::{Invite, InviteId, InviteSecret, Name, Pinned, TextForm as _};
use clap::Args;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const INVITE_HELP: &str = "\
Prints one line with the addresses and keys of the servers and a secret. Whoever has the line first can join, once, within an hour: give it by a way that others cannot \
read. On the host: `cistern join LINE`, or `cistern join -` to keep it out of the list of processes. Nobody else can use the line afterwards; who tries is told when \
and from where it was used.

Examples:
  cistern admin invite web-1
  cistern admin invite --uses 20 --within 1d --rights 1=r worker
  cistern admin invite --list
  cistern admin invite --withdraw worker

Exit status:
  0   done
  1   the name is taken, or there is no such realm
  69  no server answers";

/// Invite a host: print the line with which it joins
#[derive(Args, Debug)]
#[command(after_help = INVITE_HELP)]
pub(crate) struct InviteHost {
    #[command(flatten)]
    server: Control,
    /// What it will be called; of several hosts it is the beginning of their names
    #[arg(required_unless_present = "list")]
    name: Option<Name>,
    /// What it may do in a realm (`cistern realm ls`); repeatable
    #[arg(long, value_name = "REALM=RIGHTS", value_parser = realm_and_rights, default_value = "1=rwl")]
    rights: Vec<(u32, String)>,
    /// It may do what operators do
    #[arg(long)]
    operator: bool,
    /// How many hosts may join by it
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    uses: u16,
    /// For how long it is good
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h")]
    within: Duration,
    /// Withdraw the invites of this name
    #[arg(long, conflicts_with_all = ["rights", "operator", "uses", "within"])]
    withdraw: bool,
    /// List the invites that are good, without their secrets
    #[arg(long, conflicts_with_all = ["name", "withdraw", "rights", "operator", "uses", "within"])]
    list: bool,
}

impl Run for InviteHost {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OPERATOR
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let Some(name) = &self.name else { return self.list(ctx) };
        if self.withdraw {
            let withdrawn = self.server.ask(ctx, &json!({ "op": "withdraw_invite", "name": name.as_str() }))?;
            return ctx.print_with(&withdrawn, || format!("{} withdrawn", withdrawn["withdrawn"]));
        }
        let own = own_cluster()?;
        let drawn = random().map_err(|e| Failure::new("INTERNAL", EXIT_SOFTWARE, e.to_string()))?;
        let (id, secret) = (drawn.first_chunk().copied().unwrap_or_default(), drawn.last_chunk().copied().unwrap_or_default());
        let asked = json!({
            "op": "invite",
            "id": Blob(Vec::from(id)),
            "secret": Blob(Vec::from(secret)),
            "name": name.as_str(),
            "operator": self.operator,
            "rights": self.rights,
            "uses": self.uses,
            "within_s": self.within.as_secs(),
        });
        let made = self.server.ask(ctx, &asked)?;
        let expires_s = made["expires_s"].as_u64().and_then(|s| u32::try_from(s).ok()).unwrap_or(u32::MAX);
        let invite =
            Invite { servers: servers(&cluster(own, &made)?), id: InviteId(id), secret: InviteSecret::from_array(secret), expires_s };
        let line = invite.to_text();
        let shown = json!({ "invite": *line, "id": made["id"], "expires_s": expires_s });
        ctx.print_with(&shown, || line.to_string())?;
        if !ctx.is_json() {
            // Beside the line, which goes to the host as it is.
            let hosts = if self.uses == 1 { "one host".to_owned() } else { format!("{} hosts", self.uses) };
            logging::say(&format!(
                "cistern: {hosts} can join by it within {}; `cistern join LINE`",
                show::span(self.within.as_millis().try_into().unwrap_or(u64::MAX))
            ));
        }
        Ok(())
    }
}

impl InviteHost {
    fn list(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let invites = self.server.ask(ctx, &json!({ "op": "invites" }))?;
        let rows = invites.as_array().map(Vec::as_slice).unwrap_or_default();
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        ctx.print_rows(rows, table(rows, now_s))
    }
}

/// Where a host is to ask: the first address of each server, then others.
pub(in crate::commands) fn servers(cluster: &Pinned) -> Vec<(cistern_seal::PublicKey, cistern_trust::ServerAddress)> {
    let roster = cluster.roster();
    let nth = |n: usize| roster.usable().filter_map(move |server| Some((server.key, server.addresses.get(n)?.clone())));
    (0..cistern_trust::roster::ADDRESSES_MAX).flat_map(nth).take(INVITE_SERVERS_MAX).collect()
}

fn table(rows: &[Value], now_s: u64) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut cells = vec![["NAME", "ID", "USED", "EXPIRES IN"].map(str::to_owned).to_vec()];
    cells.extend(rows.iter().map(|row| {
        let used = row["used"].as_array().map_or(0, Vec::len);
        let left_ms = row["expires_s"].as_u64().unwrap_or(0).saturating_sub(now_s).saturating_mul(1_000);
        vec![label(&row["name"]), super::text(&row["id"]), format!("{used} of {}", row["uses"]), show::span(left_ms)]
    }));
    show::columns(&cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_seal::PublicKey;
    use cistern_trust::{ClusterSecret, Roster};

    #[test]
    fn a_line_has_one_address_of_each_server_first() {
        let address = |text: &str| text.parse().unwrap();
        let mut roster = Roster::first(PublicKey::from_bytes([1; 32]), vec![address("a:1"), address("b:1")]);
        roster.servers.push(cistern_trust::ServerEntry { key: PublicKey::from_bytes([2; 32]), ..roster.servers[0].clone() });
        let secret = ClusterSecret::from_seed([3; 32]);
        let pinned = Pinned::new(secret.public(), roster.sign(&secret).unwrap().as_bytes()).unwrap();
        let shown: Vec<_> = servers(&pinned).into_iter().map(|(key, address)| (key.as_bytes()[0], address.to_string())).collect();
        assert_eq!(shown, [(1, "a:1".to_owned()), (2, "a:1".to_owned()), (1, "b:1".to_owned())]);
    }

    #[test]
    fn what_is_left_of_an_invite_is_shown() {
        let rows = [json!({ "id": "ab", "name": "web", "uses": 3, "expires_s": 160, "used": [{ "number": 1 }] })];
        let table = table(&rows, 100);
        assert!(table.lines().nth(1).unwrap().contains("1 of 3") && table.contains("1 min"), "{table}");
    }
}
