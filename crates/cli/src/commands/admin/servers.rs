//! `cistern admin add-server`, `cistern admin remove-server`: which servers share the store.

use super::Control;
use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::Failure;
use clap::Args;
use serde_json::{Value, json};

const ADD_HELP: &str = "\
The server that serves writes the next list of servers into the store, from which all of them learn it, and answers when a majority of the new list has agreed. \
Nobody stops, and holders keep their locks. Start the new server first, with its own name in its --group: it stands by until it is added. With keys, \
`cisternd init --keys-only` has added it to the roster of every server's host. It is asked on the host of the server that serves.

Examples:
  cistern admin add-server d.example.net:7311

Exit status:
  0   the server is one of the group
  1   a majority of the new list is not heard or has not agreed, or the server that is asked has no group or stands by
  2   wrong usage, or it is one already
  69  no server answers";

const REMOVE_HELP: &str = "\
The server that serves writes the next list of servers into the store, from which all of them learn it, and answers when a majority of the new list has agreed. \
Nobody else stops, and holders keep their locks. The removed server takes no part any more, and may be ended. The one that serves is removed after \
`cistern admin hand-over`. It is asked on the host of the server that serves.

Examples:
  cistern admin remove-server d.example.net:7311

Exit status:
  0   the server is none of the group
  1   a majority of the new list is not heard or has not agreed, or the server that is asked has no group or stands by
  2   wrong usage, it was none of the group, or it is the one that serves
  69  no server answers";

/// Add a server to the group
#[derive(Args, Debug)]
#[command(after_help = ADD_HELP)]
pub(crate) struct AddServer {
    #[command(flatten)]
    server: Control,
    /// Its name, as its own --group has it (host:port)
    #[arg(value_name = "MEMBER")]
    name: String,
}

/// Remove a server from the group
#[derive(Args, Debug)]
#[command(after_help = REMOVE_HELP)]
pub(crate) struct RemoveServer {
    #[command(flatten)]
    server: Control,
    /// Its name, as the group's list has it (host:port)
    #[arg(value_name = "MEMBER")]
    name: String,
}

impl Run for AddServer {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        &["json"]
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        changed(&self.server, ctx, &json!({ "op": "add_server", "name": self.name }))
    }
}

impl Run for RemoveServer {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        &["json"]
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        changed(&self.server, ctx, &json!({ "op": "remove_server", "name": self.name }))
    }
}

fn changed(server: &Control, ctx: &mut Ctx, request: &Value) -> Result<(), Failure> {
    let done = server.ask_at_leisure(ctx, request)?;
    ctx.print_with(&done, || {
        let servers: Vec<String> = done["servers"].as_array().into_iter().flatten().map(super::text).collect();
        format!("servers {} (list number {})", servers.join(","), done["number"])
    })
}
