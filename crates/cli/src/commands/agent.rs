//! `cistern agent`: the host's agent.

pub(crate) mod run;
mod status;
mod top;

super::commands! {
    /// Run and inspect the host's agent
    Agent:
    Run(run::RunAgent),
    Status(status::AgentStatus),
    Top(top::Top),
}
