//! The limits that the wire format itself sets, each with its unit and its reason.
//!
//! Decides: sizes in bytes and counts that no configuration can exceed. Implements `wire-spec.md` section 8.
//! Leaves to others: limits that an operator sets (the configuration of agent and server).

/// Version of the protocol that this crate speaks; both ends of the range offered in HELLO.
pub const VERSION: u8 = 1;
/// First byte of every datagram: tells Cistern from other UDP traffic at a glance.
pub const MAGIC: u8 = 0xC5;
/// Datagram header, in bytes: magic, version, form, flags, session, packet number.
pub const HEADER_LEN: usize = 20;
/// Header of one message inside a datagram, in bytes: kind, reserved, length.
pub const MESSAGE_HEADER_LEN: usize = 4;
/// CRC-32 at the end of a plain datagram, in bytes.
pub const CHECKSUM_LEN: usize = 4;
/// Bytes of a datagram of one message besides that message's body.
pub const OVERHEAD: usize = HEADER_LEN + MESSAGE_HEADER_LEN + CHECKSUM_LEN;
/// Tag at the end of a sealed datagram, in place of the checksum, in bytes.
pub const TAG_LEN: usize = 16;
/// Largest UDP payload by default, in bytes: the IPv6 minimum MTU of 1,280 less 40 (IPv6) and 8 (UDP).
pub const DATAGRAM_DEFAULT: usize = 1_232;
/// Payload that every IPv4 path carries, in bytes: 576 less 20 (IPv4) and 8 (UDP); control messages fit it (section 3.7).
pub const DATAGRAM_MIN: usize = 548;
/// Largest UDP payload that can be configured, in bytes: a jumbo frame of 9,000 less 40 and 8.
pub const DATAGRAM_MAX: usize = 8_952;
/// What a HINT echoes that answers nothing, for no datagram has this number: it is a call (section 11.10).
pub const CALL: u64 = 0;
/// Longest name of a directory entry, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes: fits a datagram of the smallest size beside its request.
pub const SYMLINK_MAX: usize = 400;
/// Largest contents of a file, in bytes.
pub const CONTENT_MAX: usize = 1 << 20;
/// Largest window W that can be negotiated: most requests outstanding in a session.
pub const WINDOW_MAX: u16 = 4_096;
/// Most objects that one mutation can name as suspended: no operation affects more (`wire-spec.md` section 11.4).
pub const HELD_MAX: usize = 16;
/// Most expectations that one mutation can have.
pub const EXPECT_MAX: usize = 8;
/// Most mutations in one batch.
pub const BATCH_MAX: usize = 16;
/// Most objects that one batch can touch, whatever fits its answer: as many as it can name as suspended.
pub const BATCH_OBJECTS_MAX: usize = HELD_MAX;
/// Numbers from here on name, in a batch, what its own items make; their epoch, 255, is one that no store reaches.
pub const MADE_BASE: u64 = 0xFFFF_FFFF_FFFF_FF00;
/// Longest name of an extended attribute, in bytes, as in Linux.
pub const XATTR_NAME_MAX: usize = 255;
/// Longest value of an extended attribute, in bytes, as in Linux.
pub const XATTR_VALUE_MAX: usize = 64 << 10;
/// Most extended attributes of one object.
pub const XATTRS_MAX: usize = 128;
/// Most bytes that the values of all extended attributes of one object have together.
pub const XATTR_BYTES_MAX: usize = 64 << 10;
/// Most realms around each other, that of the tree included.
pub const REALM_DEPTH_MAX: usize = 16;
/// Most directories above which one RENAME or BATCH looks whether what it moves is among them: no path of 4,096 bytes, the longest that Linux
/// takes, leads through more.
pub const PARENTS_MAX: usize = 2_048;
/// Shortest time to live of a named lease, in milliseconds: a keep-alive every third of it is repeated a few times before the lease ends.
pub const LEASE_TTL_MIN_MS: u32 = 500;
/// Longest time to live of a named lease, in milliseconds: 30 days.
pub const LEASE_TTL_MAX_MS: u32 = 30 * 24 * 3_600 * 1_000;
/// Most former sessions that one CONFIRM can name.
pub const FORMER_MAX: usize = 8;
/// Longest label of an agent, in bytes.
pub const LABEL_MAX: usize = 64;
/// Longest cookie, in bytes.
pub const COOKIE_MAX: usize = 32;
/// Most locks that one RECLAIM can name: (548 - 20 - 4 - 16 - 12 - 8 - 2) / 38 is 12.
pub const RECLAIM_MAX: usize = 12;
/// Object id of the root directory.
pub const ROOT: u64 = 1;
/// Feature bit of WELCOME: the server's store is volatile, a restart makes a new store identity.
pub const FEATURE_VOLATILE: u64 = 1;
/// Feature bit of WELCOME: the server is one of a group, of which another may take over.
pub const FEATURE_GROUP: u64 = 2;
