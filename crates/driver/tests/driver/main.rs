//! Tests of the driver on real loopback sockets and Unix sockets, in one binary.
//!
//! `machines` holds the machines that are turned, `datagrams` tests what goes over UDP, `dating` its times, `turning` the order of
//! calls and the sleep of the loop, `tapping` what a capture has, `control` the control socket. Waits are bounded generously and no test asserts
//! speed, only what must come and what must not come before something else.

mod control;
mod datagrams;
mod dating;
mod machines;
mod tapping;
mod turning;
