//! Packet scripts: one server, scripted agents, virtual time. Each test states a claim, compares whole messages, and insists that
//! nothing else was sent.

mod bounds;
mod delivery;
mod exclusion;
mod handshake;
mod hostile;
mod last_heard;
mod locks;
mod moving;
mod random;
mod requests;
mod rescue;
mod starting;
mod surrender;
mod timing_out;
mod waiting;
mod world;
