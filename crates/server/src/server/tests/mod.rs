//! Packet scripts: one server, scripted agents, virtual time. Each test states a claim, compares whole messages, and insists that
//! nothing else was sent.

mod batches;
mod bounds;
mod delivery;
mod ephemerals;
mod exclusion;
mod grace;
mod grace_length;
mod handshake;
mod hostile;
mod insider;
mod last_heard;
mod left_files;
mod limits;
mod locked_objects;
mod locks;
mod long;
mod moving;
mod outcomes;
mod random;
mod reclaim;
mod requests;
mod rescue;
mod restart;
mod sharing;
mod slices;
mod starting;
mod superseding;
mod surrender;
mod telling_ends;
mod timing_out;
mod unreadable;
mod waiting;
mod watches;
mod world;
