//! What a principal may ask about its own key, whoever it is.
//!
//! Decides the answers. The id and secret of the invite are drawn here, from the system's random source, and stand in the answer alone, which
//! is sealed. Leaves to others: who may ask (`cistern_server`), what an invite does (`cistern_server::invites`).

use super::Answered;
use crate::commands::key::random;
use crate::execute::{EXIT_FAILED, EXIT_SOFTWARE};
use crate::local::Failure;
use crate::text::Blob;
use cistern_link::Instant;
use cistern_server::invites::InviteId;
use cistern_server::principals::PrincipalId;
use cistern_server::store::BatchId;
use cistern_server::{RETIRE_LINE, ROTATE_LINE, Server};
use serde_json::{Value, json};
use zeroize::Zeroizing;

/// Answers a line, if it is about the own key of who gives it.
pub(crate) fn of_own_key(server: &mut Server, now: Instant, who: PrincipalId, line: &str) -> Option<Answered> {
    let done = match line {
        ROTATE_LINE => invite(server, now, who),
        RETIRE_LINE => Ok((json!({}), server.retire_former_key(now, who))),
        _ => return None,
    };
    Some(match done {
        Ok((value, batch)) => (json!({ "ok": value }).to_string(), Some(batch)),
        Err(failure) => (json!({ "error": failure }).to_string(), None),
    })
}

fn invite(server: &mut Server, now: Instant, who: PrincipalId) -> Result<(Value, BatchId), Failure> {
    let drawn = random().map_err(|e| Failure::new("INTERNAL", EXIT_SOFTWARE, e.to_string()))?;
    let id: [u8; 8] = drawn.first_chunk().copied().unwrap_or_default();
    let secret: Zeroizing<[u8; 16]> = drawn.last_chunk().copied().unwrap_or_default().into();
    let invited = server.invite_next_key(now, who, InviteId(u64::from_be_bytes(id)), secret.clone());
    let refused = |_| Failure::new("ENOSPC", EXIT_FAILED, "there are too many invites; try again later");
    Ok((json!({ "id": Blob(id.to_vec()), "secret": Blob(secret.to_vec()) }), invited.map_err(refused)?))
}
