//! `cistern status`: the server, as any client sees it.

use super::Run;
use crate::ctx::Ctx;
use crate::local::{Failure, Report, Request};
use crate::show;
use cistern_text::row;
use clap::Args;
use std::fmt;

/// Show the server's identity and load, as seen over the network
#[derive(Args, Debug)]
pub(crate) struct ServerStatus {}

impl Run for ServerStatus {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let report = ctx.agent()?.call(Request::Server)?.server()?;
        ctx.print(&report)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("store", format!("{} epoch {}", self.store, self.epoch)),
            ("incarnation", self.incarnation.to_string()),
            ("up for", show::span(self.uptime_ms)),
            ("sessions", format!("{} in good standing, {} timing out", self.sessions, self.timing_out)),
            ("locks", format!("{} held, {} waiting", self.locks, self.waiters)),
            ("objects", self.objects.to_string()),
            ("requests", self.requests.to_string()),
            ("demands", self.demands.to_string()),
            ("failures", format!("{} deliveries failed, {} sessions stolen from", self.delivery_failures, self.steals)),
            ("dropped", format!("{} datagrams", self.drops)),
        ];
        let servers = self.group.iter().map(|server| {
            let how = match server.heard_ms {
                _ if server.serves => "serves".to_owned(),
                Some(ms) => format!("stands by, heard {} ago", show::span(ms)),
                None => "not heard".to_owned(),
            };
            row([&"server", &format!("{}, {how}", server.name)])
        });
        f.write_str(&show::columns(&rows.map(|(name, value)| row([&name, &value])).into_iter().chain(servers).collect::<Vec<_>>()))
    }
}
