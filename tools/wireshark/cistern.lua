-- Cistern for Wireshark and tshark: put this file into the folder of personal Lua plugins (docs/inspecting.md).
-- Made from the message registry by `cargo run -p cistern-wireshark`; what is written by hand is in tools/wireshark/dissect.

-- Field types: what stands on the wire for each, and for the fields of structures how they are shown.
local types = {}
types["u8"] = { is = "number", bytes = 1, signed = false, shown = "decimal" }
types["SessionId"] = { is = "number", bytes = 8, signed = false, shown = "hex" }
types["u64"] = { is = "number", bytes = 8, signed = false, shown = "decimal" }
types["RawHeader"] = { is = "structure", name = "RawHeader",
  { name = "magic", type = types["u8"], shown = "hex", doc = "Tells Cistern from other traffic: 0xC5." },
  { name = "version", type = types["u8"], doc = "Version of the protocol." },
  { name = "form", type = types["u8"], shown = "words", words = { [0] = "plain", [1] = "sealed", [2] = "sealed handshake" }, doc = "How the messages are protected." },
  { name = "flags", type = types["u8"], shown = "bits", bits = { { 1, "from_server" } }, doc = "Who sent it." },
  { name = "session", type = types["SessionId"], doc = "The session; 0 in handshakes." },
  { name = "packet", type = types["u64"], doc = "Number of this transmission, unique in its session and direction." },
}
types["u16"] = { is = "number", bytes = 2, signed = false, shown = "decimal" }
types["MessageHeader"] = { is = "structure", name = "MessageHeader",
  { name = "kind", type = types["u8"], shown = "words", words = { [1] = "HELLO", [2] = "CHALLENGE", [3] = "WELCOME", [4] = "REFUSE", [6] = "CONFIRM", [7] = "OPENED", [8] = "KNOWN", [9] = "JOIN", [10] = "JOINED", [11] = "ROSTER", [12] = "ROSTER_PART", [16] = "KEEPALIVE", [17] = "RELEASE", [19] = "CANCEL", [20] = "END_SESSION", [21] = "PATH_CHALLENGE", [22] = "PATH_RESPONSE", [32] = "DEMAND", [33] = "GRANT", [34] = "WAIT_OVER", [35] = "PROBE", [36] = "WATCH_EVENT", [40] = "RECEIPT", [48] = "RECLAIM", [49] = "RECLAIM_COMPLETE", [50] = "OUTCOME", [64] = "LOOKUP", [65] = "GETATTR", [66] = "SETATTR", [67] = "READDIR", [68] = "CREATE", [69] = "MKDIR", [70] = "SYMLINK", [71] = "LINK", [72] = "UNLINK", [73] = "RMDIR", [74] = "RENAME", [75] = "MKREALM", [76] = "SETQUOTA", [77] = "LIST_REALMS", [78] = "MKLEASE", [79] = "ATTACH", [80] = "READ", [81] = "STAGE", [82] = "WRITE", [83] = "BATCH", [84] = "GETXATTR", [85] = "LISTXATTR", [86] = "SETXATTR", [87] = "REMOVEXATTR", [96] = "LOCK", [98] = "LIST_LOCKS", [99] = "SERVER_STATUS", [100] = "WATCH", [101] = "UNWATCH", [102] = "KEEP_LEASE", [103] = "LIST_LEASES", [120] = "ADMIN", [128] = "ACK", [129] = "PENDING", [130] = "QUEUED", [131] = "RESULT", [132] = "NACK", [133] = "ALIVE", [134] = "RELEASED", [135] = "CANCELLED", [136] = "ENDED", [137] = "HINT" }, doc = "Code of the message's kind." },
  { name = "reserved", type = types["u8"], doc = "Reserved; 0." },
  { name = "length", type = types["u16"], doc = "Bytes of the body." },
}
types["AgentId"] = { is = "fixed", bytes = 16, shown = "bytes" }
types["16 bytes"] = { is = "fixed", bytes = 16, shown = "bytes" }
types["StoreId"] = { is = "fixed", bytes = 16, shown = "bytes" }
types["bytes8"] = { is = "bytes", prefix = 1, shown = "text" }
types["Hello"] = { is = "structure", name = "Hello",
  { name = "handshake", type = types["u64"], shown = "hex", doc = "Random number of this handshake; all HELLOs of one handshake carry the same." },
  { name = "version_min", type = types["u8"], doc = "Lowest protocol version that the agent speaks." },
  { name = "version_max", type = types["u8"], doc = "Highest protocol version that the agent speaks." },
  { name = "window", type = types["u16"], doc = "Window W that the agent would like: most requests outstanding." },
  { name = "max_datagram", type = types["u16"], doc = "Largest datagram that the agent takes, in bytes." },
  { name = "features", type = types["u64"], shown = "bits", bits = { { 1, "volatile" }, { 2, "group" } }, doc = "Feature bits that the agent understands." },
  { name = "agent", type = types["AgentId"], doc = "The agent's identity." },
  { name = "incarnation", type = types["u64"], doc = "Its incarnation: a durable count of its starts." },
  { name = "boot", type = types["16 bytes"], doc = "Identity of the boot of its machine; all zero: not known." },
  { name = "store", type = types["StoreId"], doc = "The store that the agent knows at this address; all zero: none." },
  { name = "epoch", type = types["u8"], doc = "That store's epoch as last seen." },
  { name = "server_incarnation", type = types["u64"], doc = "The server incarnation last seen." },
  { name = "lease_us", type = types["u64"], shown = "micros", doc = "Lease period that the agent asks for, in microseconds; 0: the server's own." },
  { name = "first_packet", type = types["u64"], doc = "Packet number of the agent's first transmission in the session; all HELLOs of one handshake carry the same." },
  { name = "label", type = types["bytes8"], doc = "What people call the agent (host and process, say); at most 64 bytes." },
  { name = "cookie", type = types["bytes8"], shown = "bytes", doc = "The cookie of CHALLENGE; empty in the first HELLO." },
}
types["Challenge"] = { is = "structure", name = "Challenge",
  { name = "handshake", type = types["u64"], shown = "hex", doc = "The handshake." },
  { name = "echo", type = types["u64"], doc = "Packet number of the HELLO answered." },
  { name = "cookie", type = types["bytes8"], shown = "bytes", doc = "To be sent back in the next HELLO; at most 32 bytes." },
}
types["Handle"] = { is = "number", bytes = 8, signed = false, shown = "hex" }
types["u32"] = { is = "number", bytes = 4, signed = false, shown = "decimal" }
types["Welcome"] = { is = "structure", name = "Welcome",
  { name = "handshake", type = types["u64"], shown = "hex", doc = "The handshake." },
  { name = "echo", type = types["u64"], doc = "Packet number of the HELLO answered." },
  { name = "version", type = types["u8"], doc = "Protocol version of the session." },
  { name = "session", type = types["SessionId"], doc = "The session." },
  { name = "handle", type = types["Handle"], doc = "The session's handle: by which other agents are told of it." },
  { name = "store", type = types["StoreId"], doc = "The store's identity." },
  { name = "epoch", type = types["u8"], doc = "The store's epoch: top 8 bits of generations." },
  { name = "server_incarnation", type = types["u64"], doc = "The server's incarnation: a durable count of its starts." },
  { name = "features", type = types["u64"], shown = "bits", bits = { { 1, "volatile" }, { 2, "group" } }, doc = "Feature bits of the server." },
  { name = "lease_us", type = types["u64"], shown = "micros", doc = "Lease period τ, in microseconds." },
  { name = "delta_ppm", type = types["u32"], doc = "Bound δ on the relative rate of any two clocks, in parts per million." },
  { name = "epsilon_us", type = types["u32"], shown = "micros", doc = "Slack ε of the server's timer, in microseconds." },
  { name = "delivery_timeout_us", type = types["u32"], shown = "micros", doc = "Delivery timeout Td, in microseconds." },
  { name = "window", type = types["u16"], doc = "Window W of the session." },
  { name = "max_datagram", type = types["u16"], doc = "Largest datagram that either side sends, in bytes." },
  { name = "first_packet", type = types["u64"], doc = "Packet number of the server's first transmission in the session." },
}
types["RefuseReason"] = { is = "code", bytes = 1, shown = "words", words = { [1] = "no common version", [2] = "the server has reached a limit", [3] = "superseded by a newer incarnation of the agent", [4] = "the server is stopping", [5] = "its incarnation is far above that of the session it still has", [6] = "the agent's network has as many sessions as the server gives one", [7] = "the server is a standby" } }
types["Refuse"] = { is = "structure", name = "Refuse",
  { name = "handshake", type = types["u64"], shown = "hex", doc = "The handshake." },
  { name = "echo", type = types["u64"], doc = "Packet number of the HELLO answered." },
  { name = "reason", type = types["RefuseReason"], doc = "Why." },
  { name = "version_min", type = types["u8"], doc = "Lowest version that the server speaks." },
  { name = "version_max", type = types["u8"], doc = "Highest version that the server speaks." },
  { name = "retry_ms", type = types["u32"], shown = "millis", doc = "When to try again, in milliseconds; 0: not by itself." },
  { name = "serving", type = types["u8"], doc = "Of a standby: the place of the server that serves in the list of its group, from 1; 0: none that it knows of." },
}
types["Claim"] = { is = "code", bytes = 1, shown = "words", words = { [0] = "lost", [1] = "reclaiming", [2] = "surrendered", [3] = "continuing" } }
types["FormerClaim"] = { is = "structure", name = "FormerClaim",
  { name = "session", type = types["SessionId"], doc = "The session." },
  { name = "claim", type = types["Claim"], doc = "The agent's word." },
}
types["list of FormerClaim"] = { is = "list", of = types["FormerClaim"] }
types["Confirm"] = { is = "structure", name = "Confirm",
  { name = "serial", type = types["u64"], doc = "Number of the control message in its session: 1." },
  { name = "former", type = types["list of FormerClaim"], doc = "The agent's session, then former ones that it does not know to have ended; at most 8." },
}
types["SessionFate"] = { is = "code", bytes = 1, shown = "words", words = { [1] = "timing out", [2] = "ended", [3] = "reclaimable" } }
types["FormerFate"] = { is = "structure", name = "FormerFate",
  { name = "session", type = types["SessionId"], doc = "The session." },
  { name = "fate", type = types["SessionFate"], doc = "The server's word." },
}
types["list of FormerFate"] = { is = "list", of = types["FormerFate"] }
types["32 bytes"] = { is = "fixed", bytes = 32, shown = "bytes" }
types["Opened"] = { is = "structure", name = "Opened",
  { name = "serial", type = types["u64"], doc = "The control message." },
  { name = "echo", type = types["u64"], doc = "Packet number of the transmission answered." },
  { name = "former", type = types["list of FormerFate"], doc = "What became of the sessions named in CONFIRM, in its order." },
  { name = "resume", type = types["32 bytes"], doc = "By which the session can be resumed in sealed mode; all zero in plain mode." },
  { name = "roster", type = types["u32"], doc = "Version of the list of servers; 0: there is none." },
}
types["Known"] = { is = "structure", name = "Known",
  { name = "serial", type = types["u64"], doc = "The control message." },
  { name = "echo", type = types["u64"], doc = "Packet number of the transmission answered." },
  { name = "session", type = types["SessionId"], doc = "The session that goes on." },
}
types["Join"] = { is = "structure", name = "Join",
  { name = "serial", type = types["u64"], doc = "Number of the control message in its session, from 1." },
}
types["JoinOutcome"] = { is = "code", bytes = 1, shown = "words", words = { [0] = "joined", [1] = "the invite is good no more", [2] = "the invite was used by another key", [3] = "the key was revoked", [4] = "the name is taken", [5] = "the server has reached a limit" } }
types["Joined"] = { is = "structure", name = "Joined",
  { name = "serial", type = types["u64"], doc = "The control message." },
  { name = "echo", type = types["u64"], doc = "Packet number of the transmission answered." },
  { name = "outcome", type = types["JoinOutcome"], doc = "What became of it; unless it is `joined`, the next three fields are zero." },
  { name = "principal", type = types["u32"], doc = "The number of its principal." },
  { name = "name", type = types["bytes8"], doc = "The name of its principal." },
  { name = "cluster", type = types["32 bytes"], doc = "The cluster's public key, which signs its rosters." },
  { name = "used_s", type = types["u64"], doc = "When another key used the invite last, in seconds since 1970; 0 unless it is `spent`." },
  { name = "used_from", type = types["16 bytes"], doc = "From where it did: an IPv6 address, or an IPv4 one mapped into IPv6." },
}
types["RosterAsk"] = { is = "structure", name = "RosterAsk",
  { name = "serial", type = types["u64"], doc = "Number of the control message in its session, from 1." },
  { name = "offset", type = types["u16"], doc = "Of its first byte." },
}
types["bytes16"] = { is = "bytes", prefix = 2, shown = "bytes" }
types["RosterPart"] = { is = "structure", name = "RosterPart",
  { name = "serial", type = types["u64"], doc = "The control message." },
  { name = "echo", type = types["u64"], doc = "Packet number of the transmission answered." },
  { name = "version", type = types["u32"], doc = "Its version; 0: the server has none. Parts of different versions do not fit together." },
  { name = "length", type = types["u16"], doc = "Bytes of the whole." },
  { name = "offset", type = types["u16"], doc = "Where this part begins." },
  { name = "part", type = types["bytes16"], doc = "At most 400 bytes." },
}
types["KeepAlive"] = { is = "structure", name = "KeepAlive",
  { name = "serial", type = types["u64"], doc = "Number of the control message in its session, from 1." },
  { name = "clock_us", type = types["u64"], shown = "micros", doc = "The agent's raw clock at sending, in microseconds from an arbitrary start; for the watch on clock rates." },
}
types["ObjectId"] = { is = "number", bytes = 8, signed = false, shown = "object" }
types["LockClass"] = { is = "code", bytes = 1, shown = "words", words = { [1] = "cache", [2] = "advisory" } }
types["LockId"] = { is = "structure", name = "LockId",
  { name = "object", type = types["ObjectId"], doc = "The object." },
  { name = "class", type = types["LockClass"], doc = "What the lock protects." },
}
types["Generation"] = { is = "number", bytes = 8, signed = false, shown = "decimal" }
types["Keep"] = { is = "code", bytes = 1, shown = "words", words = { [0] = "nothing", [1] = "shared" } }
types["ReleaseItem"] = { is = "structure", name = "ReleaseItem",
  { name = "lock", type = types["LockId"], doc = "The lock." },
  { name = "generation", type = types["Generation"], doc = "The generation given back; a release acts on no other." },
  { name = "keep", type = types["Keep"], doc = "What the agent keeps: a shared lock makes this a downgrade." },
}
types["list of ReleaseItem"] = { is = "list", of = types["ReleaseItem"] }
types["Release"] = { is = "structure", name = "Release",
  { name = "serial", type = types["u64"], doc = "Number of the control message in its session, from 1." },
  { name = "items", type = types["list of ReleaseItem"], doc = "The locks." },
}
types["Cancel"] = { is = "structure", name = "Cancel",
  { name = "serial", type = types["u64"], doc = "Number of the control message in its session, from 1." },
  { name = "nonce", type = types["u64"], doc = "The request." },
}
types["EndReason"] = { is = "code", bytes = 1, shown = "words", words = { [1] = "close", [2] = "surrender" } }
types["EndSession"] = { is = "structure", name = "EndSession",
  { name = "serial", type = types["u64"], doc = "Number of the control message in its session, from 1." },
  { name = "reason", type = types["EndReason"], doc = "Why." },
}
types["PathChallenge"] = { is = "structure", name = "PathChallenge",
  { name = "token", type = types["u64"], shown = "hex", doc = "A random number." },
}
types["PathResponse"] = { is = "structure", name = "PathResponse",
  { name = "token", type = types["u64"], shown = "hex", doc = "The number of the challenge." },
}
types["Demand"] = { is = "structure", name = "Demand",
  { name = "seq", type = types["u64"], doc = "Number of the notice in its session, from 1." },
  { name = "lock", type = types["LockId"], doc = "The lock." },
  { name = "generation", type = types["Generation"], doc = "The newest generation that the server has granted to this session." },
  { name = "keep", type = types["Keep"], doc = "What may be kept." },
}
types["Mode"] = { is = "code", bytes = 1, shown = "words", words = { [1] = "shared", [2] = "exclusive" } }
types["Grant"] = { is = "structure", name = "Grant",
  { name = "seq", type = types["u64"], doc = "Number of the notice in its session, from 1." },
  { name = "nonce", type = types["u64"], doc = "The request that was answered QUEUED." },
  { name = "lock", type = types["LockId"], doc = "The lock." },
  { name = "mode", type = types["Mode"], doc = "Its mode." },
  { name = "generation", type = types["Generation"], doc = "The grant." },
  { name = "run", type = types["u32"], doc = "How many consecutive tokens the grant reserves, from its generation on." },
}
types["Status"] = { is = "number", bytes = 2, signed = false, shown = "words", words = { [0] = "OK", [1] = "EPERM", [2] = "ENOENT", [5] = "EIO", [7] = "E2BIG", [11] = "EAGAIN", [13] = "EACCES", [16] = "EBUSY", [17] = "EEXIST", [18] = "EXDEV", [20] = "ENOTDIR", [21] = "EISDIR", [22] = "EINVAL", [27] = "EFBIG", [28] = "ENOSPC", [31] = "EMLINK", [34] = "ERANGE", [35] = "EDEADLK", [36] = "ENAMETOOLONG", [39] = "ENOTEMPTY", [40] = "ELOOP", [61] = "ENODATA", [71] = "EPROTO", [116] = "ESTALE", [122] = "EDQUOT", [125] = "ECANCELED", [1024] = "BUSY", [1025] = "IN_GRACE", [1026] = "STALE_GUARD", [1027] = "VERSION_CHANGED", [1028] = "UNSUPPORTED", [1029] = "NONCE_REUSED", [1030] = "NOT_STAGED", [1031] = "NOT_HELD" } }
types["WaitOver"] = { is = "structure", name = "WaitOver",
  { name = "seq", type = types["u64"], doc = "Number of the notice in its session, from 1." },
  { name = "nonce", type = types["u64"], doc = "The request that was answered QUEUED." },
  { name = "lock", type = types["LockId"], doc = "The lock." },
  { name = "status", type = types["Status"], doc = "Why." },
}
types["Probe"] = { is = "structure", name = "Probe",
  { name = "seq", type = types["u64"], doc = "Number of the notice in its session, from 1." },
}
types["bool"] = { is = "bool" }
types["WatchEvent"] = { is = "structure", name = "WatchEvent",
  { name = "seq", type = types["u64"], doc = "Number of the notice in its session, from 1." },
  { name = "object", type = types["ObjectId"], doc = "The object." },
  { name = "version", type = types["u64"], doc = "Its version now; of one that is gone, the last that it had." },
  { name = "gone", type = types["bool"], doc = "Whether it is gone; then the watch is over." },
}
types["ReceiptAnswer"] = { is = "code", bytes = 1, shown = "words", words = { [0] = "received", [1] = "in use", [2] = "not held", [3] = "awaited" } }
types["Receipt"] = { is = "structure", name = "Receipt",
  { name = "seq", type = types["u64"], doc = "The notice." },
  { name = "answer", type = types["ReceiptAnswer"], doc = "What the application says." },
}
types["Ask"] = { is = "structure", name = "Ask",
  { name = "nonce", type = types["u64"], doc = "The request's at-most-once identifier: sequential in its session, from 1." },
  { name = "back", type = types["u16"], doc = "Distance down to the floor: the lowest nonce still awaited is `nonce - back`." },
  { name = "limit", type = types["u16"], doc = "Largest answer datagram, in bytes, that the sender believes its path carries." },
}
types["ReclaimItem"] = { is = "structure", name = "ReclaimItem",
  { name = "lock", type = types["LockId"], doc = "The lock." },
  { name = "mode", type = types["Mode"], doc = "The mode held." },
  { name = "generation", type = types["Generation"], doc = "The generation held." },
  { name = "first", type = types["Generation"], doc = "The generation with which the agent began to hold it, without a break and without a downgrade since; at most `generation`." },
  { name = "run", type = types["u32"], doc = "How many tokens its run has; 0 for a cache lock." },
  { name = "version", type = types["u64"], doc = "Version of the object as cached; 0: nothing is cached." },
}
types["list of ReclaimItem"] = { is = "list", of = types["ReclaimItem"] }
types["Reclaim"] = { is = "structure", name = "Reclaim",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "from", type = types["SessionId"], doc = "The former session." },
  { name = "items", type = types["list of ReclaimItem"], doc = "The locks; at most 12." },
}
types["ReclaimComplete"] = { is = "structure", name = "ReclaimComplete",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "from", type = types["SessionId"], doc = "The former session." },
}
types["Outcome"] = { is = "structure", name = "Outcome",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "session", type = types["SessionId"], doc = "The former session." },
  { name = "nonce", type = types["u64"], doc = "The mutation's nonce there." },
}
types["Want"] = { is = "code", bytes = 1, shown = "words", words = { [0] = "nothing", [1] = "shared", [2] = "exclusive" } }
types["list of bytes8"] = { is = "list", of = types["bytes8"] }
types["Lookup"] = { is = "structure", name = "Lookup",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "start", type = types["ObjectId"], doc = "The directory in which the first name is looked up." },
  { name = "want", type = types["Want"], doc = "The cache lock wanted on every object on the way." },
  { name = "names", type = types["list of bytes8"], doc = "The names, first to last." },
}
types["GetAttr"] = { is = "structure", name = "GetAttr",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "object", type = types["ObjectId"], doc = "The object." },
  { name = "want", type = types["Want"], doc = "The cache lock wanted with them." },
}
types["SetMask"] = { is = "structure", name = "SetMask",
  { name = "bits", type = types["u8"], shown = "bits", bits = { { 1, "mode" }, { 2, "uid" }, { 4, "gid" }, { 8, "size" }, { 16, "atime" }, { 32, "mtime" }, { 64, "atime_now" }, { 128, "mtime_now" } }, doc = "The bits." },
}
types["i64"] = { is = "number", bytes = 8, signed = true, shown = "decimal" }
types["Held"] = { is = "structure", name = "Held",
  { name = "object", type = types["ObjectId"], doc = "The object whose cache lock it is." },
  { name = "generation", type = types["Generation"], doc = "The generation held." },
}
types["list of Held"] = { is = "list", of = types["Held"] }
types["Expect"] = { is = "structure", name = "Expect",
  { name = "object", type = types["ObjectId"], doc = "The object; it need not be affected." },
  { name = "version", type = types["u64"], doc = "Its version; 0: it must not exist." },
}
types["list of Expect"] = { is = "list", of = types["Expect"] }
types["Terms"] = { is = "structure", name = "Terms",
  { name = "want", type = types["Want"], doc = "Which cache lock on the affected objects the requester would like." },
  { name = "guard_object", type = types["ObjectId"], doc = "Object of the advisory lock that guards the mutation; 0: no guard." },
  { name = "guard_generation", type = types["Generation"], doc = "Generation of that lock: the mutation fails when it is not current (section 11.4)." },
  { name = "held", type = types["list of Held"], doc = "The requester's own cache locks, suspended until it knows the outcome." },
  { name = "expect", type = types["list of Expect"], doc = "Versions on which the mutation depends." },
}
types["SetAttr"] = { is = "structure", name = "SetAttr",
  { name = "ask", type = types["Ask"], doc = "The request; in an item of a batch [`Ask::NONE`](crate::Ask::NONE)." },
  { name = "object", type = types["ObjectId"], doc = "The object." },
  { name = "mask", type = types["SetMask"], doc = "Which are set; the values of the others are ignored." },
  { name = "mode", type = types["u16"], shown = "octal", doc = "Permission bits." },
  { name = "uid", type = types["u32"], doc = "Owner." },
  { name = "gid", type = types["u32"], doc = "Group." },
  { name = "size", type = types["u64"], doc = "Size." },
  { name = "atime_ns", type = types["i64"], shown = "time", doc = "Access time." },
  { name = "mtime_ns", type = types["i64"], shown = "time", doc = "Modification time." },
  { name = "terms", type = types["Terms"], doc = "Locks, guard and expectations; in an item of a batch [`Terms::NONE`](crate::Terms::NONE)." },
}
types["ReadDir"] = { is = "structure", name = "ReadDir",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "dir", type = types["ObjectId"], doc = "The directory." },
  { name = "after", type = types["bytes8"], doc = "Goes on after this name, in byte order; empty: from the start. Stable under every change of the directory." },
  { name = "version", type = types["u64"], doc = "Version that the earlier pages had; 0: any. Another one now: VERSION_CHANGED (section 11.5)." },
  { name = "detail", type = types["bool"], doc = "Whether entries come with attributes." },
  { name = "want", type = types["Want"], doc = "The cache lock wanted on the directory, and on the entries when they come with attributes." },
}
types["Create"] = { is = "structure", name = "Create",
  { name = "ask", type = types["Ask"], doc = "The request; in an item of a batch [`Ask::NONE`](crate::Ask::NONE)." },
  { name = "dir", type = types["ObjectId"], doc = "The directory." },
  { name = "name", type = types["bytes8"], doc = "The new name." },
  { name = "exclusive", type = types["bool"], doc = "Whether an existing file is an error (EEXIST); otherwise it is opened as it is." },
  { name = "mode", type = types["u16"], shown = "octal", doc = "Permission bits." },
  { name = "uid", type = types["u32"], doc = "Owner." },
  { name = "gid", type = types["u32"], doc = "Group." },
  { name = "ephemeral", type = types["bool"], doc = "Whether it goes when its session ends, or the one that has reclaimed from that." },
  { name = "terms", type = types["Terms"], doc = "Locks, guard and expectations; in an item of a batch [`Terms::NONE`](crate::Terms::NONE)." },
}
types["Mkdir"] = { is = "structure", name = "Mkdir",
  { name = "ask", type = types["Ask"], doc = "The request; in an item of a batch [`Ask::NONE`](crate::Ask::NONE)." },
  { name = "dir", type = types["ObjectId"], doc = "The directory in which it is made." },
  { name = "name", type = types["bytes8"], doc = "The new name." },
  { name = "mode", type = types["u16"], shown = "octal", doc = "Permission bits." },
  { name = "uid", type = types["u32"], doc = "Owner." },
  { name = "gid", type = types["u32"], doc = "Group." },
  { name = "terms", type = types["Terms"], doc = "Locks, guard and expectations; in an item of a batch [`Terms::NONE`](crate::Terms::NONE)." },
}
types["Symlink"] = { is = "structure", name = "Symlink",
  { name = "ask", type = types["Ask"], doc = "The request; in an item of a batch [`Ask::NONE`](crate::Ask::NONE)." },
  { name = "dir", type = types["ObjectId"], doc = "The directory." },
  { name = "name", type = types["bytes8"], doc = "The new name." },
  { name = "target", type = types["bytes16"], shown = "text", doc = "What it points to; at most 400 bytes." },
  { name = "uid", type = types["u32"], doc = "Owner." },
  { name = "gid", type = types["u32"], doc = "Group." },
  { name = "terms", type = types["Terms"], doc = "Locks, guard and expectations; in an item of a batch [`Terms::NONE`](crate::Terms::NONE)." },
}
types["Link"] = { is = "structure", name = "Link",
  { name = "ask", type = types["Ask"], doc = "The request; in an item of a batch [`Ask::NONE`](crate::Ask::NONE)." },
  { name = "object", type = types["ObjectId"], doc = "The file." },
  { name = "dir", type = types["ObjectId"], doc = "The directory." },
  { name = "name", type = types["bytes8"], doc = "The new name." },
  { name = "terms", type = types["Terms"], doc = "Locks, guard and expectations; in an item of a batch [`Terms::NONE`](crate::Terms::NONE)." },
}
types["Unlink"] = { is = "structure", name = "Unlink",
  { name = "ask", type = types["Ask"], doc = "The request; in an item of a batch [`Ask::NONE`](crate::Ask::NONE)." },
  { name = "dir", type = types["ObjectId"], doc = "The directory." },
  { name = "name", type = types["bytes8"], doc = "The name." },
  { name = "force", type = types["bool"], doc = "Goes on although another session holds an advisory lock on it (section 11.4)." },
  { name = "terms", type = types["Terms"], doc = "Locks, guard and expectations; in an item of a batch [`Terms::NONE`](crate::Terms::NONE)." },
}
types["Rmdir"] = { is = "structure", name = "Rmdir",
  { name = "ask", type = types["Ask"], doc = "The request; in an item of a batch [`Ask::NONE`](crate::Ask::NONE)." },
  { name = "dir", type = types["ObjectId"], doc = "The directory in which it is." },
  { name = "name", type = types["bytes8"], doc = "Its name." },
  { name = "terms", type = types["Terms"], doc = "Locks, guard and expectations; in an item of a batch [`Terms::NONE`](crate::Terms::NONE)." },
}
types["RenameRule"] = { is = "code", bytes = 1, shown = "words", words = { [0] = "replace", [1] = "no-replace", [2] = "exchange" } }
types["Rename"] = { is = "structure", name = "Rename",
  { name = "ask", type = types["Ask"], doc = "The request; in an item of a batch [`Ask::NONE`](crate::Ask::NONE)." },
  { name = "from_dir", type = types["ObjectId"], doc = "Directory of the old name." },
  { name = "from_name", type = types["bytes8"], doc = "The old name." },
  { name = "to_dir", type = types["ObjectId"], doc = "Directory of the new name." },
  { name = "to_name", type = types["bytes8"], doc = "The new name." },
  { name = "rule", type = types["RenameRule"], doc = "What happens when it exists." },
  { name = "force", type = types["bool"], doc = "Goes on although another session holds an advisory lock on what is moved, replaced or exchanged (section 11.4)." },
  { name = "terms", type = types["Terms"], doc = "Locks, guard and expectations; in an item of a batch [`Terms::NONE`](crate::Terms::NONE)." },
}
types["MakeRealm"] = { is = "structure", name = "MakeRealm",
  { name = "ask", type = types["Ask"], doc = "The request; in an item of a batch [`Ask::NONE`](crate::Ask::NONE)." },
  { name = "dir", type = types["ObjectId"], doc = "The directory in which it is made." },
  { name = "name", type = types["bytes8"], doc = "The new name." },
  { name = "mode", type = types["u16"], shown = "octal", doc = "Permission bits." },
  { name = "uid", type = types["u32"], doc = "Owner." },
  { name = "gid", type = types["u32"], doc = "Group." },
  { name = "terms", type = types["Terms"], doc = "Locks, guard and expectations; in an item of a batch [`Terms::NONE`](crate::Terms::NONE)." },
}
types["optional u64"] = { is = "optional", of = types["u64"] }
types["SetQuota"] = { is = "structure", name = "SetQuota",
  { name = "ask", type = types["Ask"], doc = "The request; in an item of a batch [`Ask::NONE`](crate::Ask::NONE)." },
  { name = "root", type = types["ObjectId"], doc = "The directory that begins the realm." },
  { name = "objects", type = types["optional u64"], doc = "Most objects; 0: no bound; none: as it is." },
  { name = "bytes", type = types["optional u64"], doc = "Most bytes; 0: no bound; none: as it is." },
  { name = "terms", type = types["Terms"], doc = "Locks, guard and expectations; in an item of a batch [`Terms::NONE`](crate::Terms::NONE)." },
}
types["Realm"] = { is = "number", bytes = 4, signed = false, shown = "decimal" }
types["ListRealms"] = { is = "structure", name = "ListRealms",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "realm", type = types["Realm"], doc = "The realm; 0: all." },
  { name = "after", type = types["Realm"], doc = "Goes on after this one; 0: from the start." },
}
types["MakeLease"] = { is = "structure", name = "MakeLease",
  { name = "ask", type = types["Ask"], doc = "The request; in an item of a batch [`Ask::NONE`](crate::Ask::NONE)." },
  { name = "dir", type = types["ObjectId"], doc = "The directory in which it is made." },
  { name = "name", type = types["bytes8"], doc = "The new name." },
  { name = "mode", type = types["u16"], shown = "octal", doc = "Permission bits." },
  { name = "uid", type = types["u32"], doc = "Owner." },
  { name = "gid", type = types["u32"], doc = "Group." },
  { name = "ttl_ms", type = types["u32"], shown = "millis", doc = "Its time to live." },
  { name = "verifier", type = types["32 bytes"], doc = "Hash of its secret." },
  { name = "terms", type = types["Terms"], doc = "Locks, guard and expectations; in an item of a batch [`Terms::NONE`](crate::Terms::NONE)." },
}
types["Attach"] = { is = "structure", name = "Attach",
  { name = "ask", type = types["Ask"], doc = "The request; in an item of a batch [`Ask::NONE`](crate::Ask::NONE)." },
  { name = "object", type = types["ObjectId"], doc = "The file or symbolic link." },
  { name = "lease", type = types["ObjectId"], doc = "The lease." },
  { name = "secret", type = types["16 bytes"], doc = "The lease's secret." },
  { name = "terms", type = types["Terms"], doc = "Locks, guard and expectations; in an item of a batch [`Terms::NONE`](crate::Terms::NONE)." },
}
types["Read"] = { is = "structure", name = "Read",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "object", type = types["ObjectId"], doc = "The file." },
  { name = "offset", type = types["u64"], doc = "First byte wanted." },
  { name = "length", type = types["u32"], doc = "Most bytes wanted; the answer has as many as fit its datagram." },
  { name = "version", type = types["u64"], doc = "Version that the earlier pages had; 0: any. Another one now: VERSION_CHANGED (section 11.5)." },
  { name = "want", type = types["Want"], doc = "The cache lock wanted." },
}
types["Stage"] = { is = "structure", name = "Stage",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "stage", type = types["u64"], doc = "The stage: a number that the agent chooses, unique in its session, not 0." },
  { name = "total", type = types["u32"], doc = "Bytes of the whole, up to 1 MiB; the same in every piece." },
  { name = "offset", type = types["u32"], doc = "Where this piece begins." },
  { name = "data", type = types["bytes16"], doc = "The piece." },
}
types["Write"] = { is = "structure", name = "Write",
  { name = "ask", type = types["Ask"], doc = "The request; in an item of a batch [`Ask::NONE`](crate::Ask::NONE)." },
  { name = "object", type = types["ObjectId"], doc = "The file." },
  { name = "offset", type = types["u64"], doc = "Where the contents begin." },
  { name = "truncate", type = types["bool"], doc = "Whether what was in the file after the bytes written is cut off." },
  { name = "stage", type = types["u64"], doc = "The stage that has the contents; 0: `data` has them." },
  { name = "data", type = types["bytes16"], doc = "The contents; empty when staged." },
  { name = "terms", type = types["Terms"], doc = "Locks, guard and expectations; in an item of a batch [`Terms::NONE`](crate::Terms::NONE)." },
}
types["Item SetAttr"] = { is = "structure", name = "SetAttr",
  { name = "object", type = types["ObjectId"], doc = "The object." },
  { name = "mask", type = types["SetMask"], doc = "Which are set; the values of the others are ignored." },
  { name = "mode", type = types["u16"], shown = "octal", doc = "Permission bits." },
  { name = "uid", type = types["u32"], doc = "Owner." },
  { name = "gid", type = types["u32"], doc = "Group." },
  { name = "size", type = types["u64"], doc = "Size." },
  { name = "atime_ns", type = types["i64"], shown = "time", doc = "Access time." },
  { name = "mtime_ns", type = types["i64"], shown = "time", doc = "Modification time." },
}
types["Item Create"] = { is = "structure", name = "Create",
  { name = "dir", type = types["ObjectId"], doc = "The directory." },
  { name = "name", type = types["bytes8"], doc = "The new name." },
  { name = "exclusive", type = types["bool"], doc = "Whether an existing file is an error (EEXIST); otherwise it is opened as it is." },
  { name = "mode", type = types["u16"], shown = "octal", doc = "Permission bits." },
  { name = "uid", type = types["u32"], doc = "Owner." },
  { name = "gid", type = types["u32"], doc = "Group." },
  { name = "ephemeral", type = types["bool"], doc = "Whether it goes when its session ends, or the one that has reclaimed from that." },
}
types["Item Mkdir"] = { is = "structure", name = "Mkdir",
  { name = "dir", type = types["ObjectId"], doc = "The directory in which it is made." },
  { name = "name", type = types["bytes8"], doc = "The new name." },
  { name = "mode", type = types["u16"], shown = "octal", doc = "Permission bits." },
  { name = "uid", type = types["u32"], doc = "Owner." },
  { name = "gid", type = types["u32"], doc = "Group." },
}
types["Item Symlink"] = { is = "structure", name = "Symlink",
  { name = "dir", type = types["ObjectId"], doc = "The directory." },
  { name = "name", type = types["bytes8"], doc = "The new name." },
  { name = "target", type = types["bytes16"], shown = "text", doc = "What it points to; at most 400 bytes." },
  { name = "uid", type = types["u32"], doc = "Owner." },
  { name = "gid", type = types["u32"], doc = "Group." },
}
types["Item Link"] = { is = "structure", name = "Link",
  { name = "object", type = types["ObjectId"], doc = "The file." },
  { name = "dir", type = types["ObjectId"], doc = "The directory." },
  { name = "name", type = types["bytes8"], doc = "The new name." },
}
types["Item Unlink"] = { is = "structure", name = "Unlink",
  { name = "dir", type = types["ObjectId"], doc = "The directory." },
  { name = "name", type = types["bytes8"], doc = "The name." },
  { name = "force", type = types["bool"], doc = "Goes on although another session holds an advisory lock on it (section 11.4)." },
}
types["Item Rmdir"] = { is = "structure", name = "Rmdir",
  { name = "dir", type = types["ObjectId"], doc = "The directory in which it is." },
  { name = "name", type = types["bytes8"], doc = "Its name." },
}
types["Item Rename"] = { is = "structure", name = "Rename",
  { name = "from_dir", type = types["ObjectId"], doc = "Directory of the old name." },
  { name = "from_name", type = types["bytes8"], doc = "The old name." },
  { name = "to_dir", type = types["ObjectId"], doc = "Directory of the new name." },
  { name = "to_name", type = types["bytes8"], doc = "The new name." },
  { name = "rule", type = types["RenameRule"], doc = "What happens when it exists." },
  { name = "force", type = types["bool"], doc = "Goes on although another session holds an advisory lock on what is moved, replaced or exchanged (section 11.4)." },
}
types["Item MakeRealm"] = { is = "structure", name = "MakeRealm",
  { name = "dir", type = types["ObjectId"], doc = "The directory in which it is made." },
  { name = "name", type = types["bytes8"], doc = "The new name." },
  { name = "mode", type = types["u16"], shown = "octal", doc = "Permission bits." },
  { name = "uid", type = types["u32"], doc = "Owner." },
  { name = "gid", type = types["u32"], doc = "Group." },
}
types["Item SetQuota"] = { is = "structure", name = "SetQuota",
  { name = "root", type = types["ObjectId"], doc = "The directory that begins the realm." },
  { name = "objects", type = types["optional u64"], doc = "Most objects; 0: no bound; none: as it is." },
  { name = "bytes", type = types["optional u64"], doc = "Most bytes; 0: no bound; none: as it is." },
}
types["Item MakeLease"] = { is = "structure", name = "MakeLease",
  { name = "dir", type = types["ObjectId"], doc = "The directory in which it is made." },
  { name = "name", type = types["bytes8"], doc = "The new name." },
  { name = "mode", type = types["u16"], shown = "octal", doc = "Permission bits." },
  { name = "uid", type = types["u32"], doc = "Owner." },
  { name = "gid", type = types["u32"], doc = "Group." },
  { name = "ttl_ms", type = types["u32"], shown = "millis", doc = "Its time to live." },
  { name = "verifier", type = types["32 bytes"], doc = "Hash of its secret." },
}
types["Item Attach"] = { is = "structure", name = "Attach",
  { name = "object", type = types["ObjectId"], doc = "The file or symbolic link." },
  { name = "lease", type = types["ObjectId"], doc = "The lease." },
  { name = "secret", type = types["16 bytes"], doc = "The lease's secret." },
}
types["Item Write"] = { is = "structure", name = "Write",
  { name = "object", type = types["ObjectId"], doc = "The file." },
  { name = "offset", type = types["u64"], doc = "Where the contents begin." },
  { name = "truncate", type = types["bool"], doc = "Whether what was in the file after the bytes written is cut off." },
  { name = "stage", type = types["u64"], doc = "The stage that has the contents; 0: `data` has them." },
  { name = "data", type = types["bytes16"], doc = "The contents; empty when staged." },
}
types["XattrRule"] = { is = "code", bytes = 1, shown = "words", words = { [0] = "any", [1] = "create", [2] = "replace" } }
types["Item SetXattr"] = { is = "structure", name = "SetXattr",
  { name = "object", type = types["ObjectId"], doc = "The object." },
  { name = "name", type = types["bytes8"], doc = "The attribute's name." },
  { name = "rule", type = types["XattrRule"], doc = "What happens when it exists, or does not." },
  { name = "stage", type = types["u64"], doc = "The stage that has the value; 0: `data` has it." },
  { name = "data", type = types["bytes16"], doc = "The value; empty when staged." },
}
types["Item RemoveXattr"] = { is = "structure", name = "RemoveXattr",
  { name = "object", type = types["ObjectId"], doc = "The object." },
  { name = "name", type = types["bytes8"], doc = "The attribute's name." },
}
types["Item"] = { is = "union", name = "Item", shown = "words", words = { [66] = "SETATTR", [68] = "CREATE", [69] = "MKDIR", [70] = "SYMLINK", [71] = "LINK", [72] = "UNLINK", [73] = "RMDIR", [74] = "RENAME", [75] = "MKREALM", [76] = "SETQUOTA", [78] = "MKLEASE", [79] = "ATTACH", [82] = "WRITE", [86] = "SETXATTR", [87] = "REMOVEXATTR" }, cases = {
  [66] = { field = "setattr", type = types["Item SetAttr"] },
  [68] = { field = "create", type = types["Item Create"] },
  [69] = { field = "mkdir", type = types["Item Mkdir"] },
  [70] = { field = "symlink", type = types["Item Symlink"] },
  [71] = { field = "link", type = types["Item Link"] },
  [72] = { field = "unlink", type = types["Item Unlink"] },
  [73] = { field = "rmdir", type = types["Item Rmdir"] },
  [74] = { field = "rename", type = types["Item Rename"] },
  [75] = { field = "mkrealm", type = types["Item MakeRealm"] },
  [76] = { field = "setquota", type = types["Item SetQuota"] },
  [78] = { field = "mklease", type = types["Item MakeLease"] },
  [79] = { field = "attach", type = types["Item Attach"] },
  [82] = { field = "write", type = types["Item Write"] },
  [86] = { field = "setxattr", type = types["Item SetXattr"] },
  [87] = { field = "removexattr", type = types["Item RemoveXattr"] },
} }
types["list of Item"] = { is = "list", of = types["Item"] }
types["Batch"] = { is = "structure", name = "Batch",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "items", type = types["list of Item"], doc = "The mutations." },
  { name = "terms", type = types["Terms"], doc = "Locks, guard and expectations of all of them." },
}
types["GetXattr"] = { is = "structure", name = "GetXattr",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "object", type = types["ObjectId"], doc = "The object." },
  { name = "name", type = types["bytes8"], doc = "The attribute's name." },
  { name = "offset", type = types["u32"], doc = "First byte wanted." },
  { name = "length", type = types["u32"], doc = "Most bytes wanted; the answer has as many as fit its datagram." },
  { name = "version", type = types["u64"], doc = "Version that the earlier pages had; 0: any. Another one now: VERSION_CHANGED (section 11.5)." },
}
types["ListXattr"] = { is = "structure", name = "ListXattr",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "object", type = types["ObjectId"], doc = "The object." },
  { name = "after", type = types["bytes8"], doc = "Goes on after this name, in byte order; empty: from the start." },
  { name = "version", type = types["u64"], doc = "Version that the earlier pages had; 0: any. Another one now: VERSION_CHANGED (section 11.5)." },
}
types["SetXattr"] = { is = "structure", name = "SetXattr",
  { name = "ask", type = types["Ask"], doc = "The request; in an item of a batch [`Ask::NONE`](crate::Ask::NONE)." },
  { name = "object", type = types["ObjectId"], doc = "The object." },
  { name = "name", type = types["bytes8"], doc = "The attribute's name." },
  { name = "rule", type = types["XattrRule"], doc = "What happens when it exists, or does not." },
  { name = "stage", type = types["u64"], doc = "The stage that has the value; 0: `data` has it." },
  { name = "data", type = types["bytes16"], doc = "The value; empty when staged." },
  { name = "terms", type = types["Terms"], doc = "Locks, guard and expectations; in an item of a batch [`Terms::NONE`](crate::Terms::NONE)." },
}
types["RemoveXattr"] = { is = "structure", name = "RemoveXattr",
  { name = "ask", type = types["Ask"], doc = "The request; in an item of a batch [`Ask::NONE`](crate::Ask::NONE)." },
  { name = "object", type = types["ObjectId"], doc = "The object." },
  { name = "name", type = types["bytes8"], doc = "The attribute's name." },
  { name = "terms", type = types["Terms"], doc = "Locks, guard and expectations; in an item of a batch [`Terms::NONE`](crate::Terms::NONE)." },
}
types["LockWait"] = { is = "code", bytes = 1, shown = "words", words = { [0] = "try", [1] = "queue" } }
types["Lock"] = { is = "structure", name = "Lock",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "object", type = types["ObjectId"], doc = "The object." },
  { name = "mode", type = types["Mode"], doc = "The mode." },
  { name = "wait", type = types["LockWait"], doc = "What happens when it is held." },
}
types["ListLocks"] = { is = "structure", name = "ListLocks",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "object", type = types["ObjectId"], doc = "The object; 0: all objects." },
  { name = "after_object", type = types["ObjectId"], doc = "Goes on after this object; 0: from the start." },
  { name = "after_row", type = types["u32"], doc = "Rows of `after_object` that were seen already." },
  { name = "places", type = types["bool"], doc = "Whether each row tells a path of its object, which costs more than the rest of the row." },
}
types["ServerStatus"] = { is = "structure", name = "ServerStatus",
  { name = "ask", type = types["Ask"], doc = "The request." },
}
types["Watch"] = { is = "structure", name = "Watch",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "object", type = types["ObjectId"], doc = "The object." },
}
types["Unwatch"] = { is = "structure", name = "Unwatch",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "object", type = types["ObjectId"], doc = "The object." },
}
types["KeepLease"] = { is = "structure", name = "KeepLease",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "lease", type = types["ObjectId"], doc = "The lease." },
  { name = "secret", type = types["16 bytes"], doc = "Its secret." },
}
types["ListLeases"] = { is = "structure", name = "ListLeases",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "lease", type = types["ObjectId"], doc = "The lease whose files are listed, itself among them; 0: all leases are." },
  { name = "after", type = types["ObjectId"], doc = "Goes on after this object; 0: from the start." },
}
types["Admin"] = { is = "structure", name = "Admin",
  { name = "ask", type = types["Ask"], doc = "The request." },
  { name = "answer", type = types["u64"], doc = "The answer of which a page is asked for, as ADMIN_ANSWER names it; 0: the line is executed." },
  { name = "offset", type = types["u32"], doc = "Where in that answer the page begins." },
  { name = "line", type = types["bytes16"], shown = "text", doc = "The line, in UTF-8 and without its end; empty when a page is asked for." },
}
types["Done"] = { is = "structure", name = "Done",
}
types["Failed"] = { is = "structure", name = "Failed",
  { name = "status", type = types["Status"], doc = "Why; never OK." },
  { name = "retry_ms", type = types["u32"], shown = "millis", doc = "When to try again, in milliseconds; 0: not by itself." },
}
types["ObjectKind"] = { is = "code", bytes = 1, shown = "words", words = { [1] = "file", [2] = "directory", [3] = "symlink" } }
types["Attr"] = { is = "structure", name = "Attr",
  { name = "object", type = types["ObjectId"], doc = "The object." },
  { name = "version", type = types["u64"], doc = "Grows with every change of the object, contents and entries included." },
  { name = "kind", type = types["ObjectKind"], doc = "What it is." },
  { name = "mode", type = types["u16"], shown = "octal", doc = "Permission bits, 0 to 0o7777." },
  { name = "nlink", type = types["u32"], doc = "Names that it has." },
  { name = "uid", type = types["u32"], doc = "Owner." },
  { name = "gid", type = types["u32"], doc = "Group." },
  { name = "size", type = types["u64"], doc = "Bytes of contents, entries of a directory, or bytes of a link's target." },
  { name = "atime_ns", type = types["i64"], shown = "time", doc = "Time of last access as somebody set it; reading does not change it (section 11.5)." },
  { name = "mtime_ns", type = types["i64"], shown = "time", doc = "Time of the last change of contents." },
  { name = "ctime_ns", type = types["i64"], shown = "time", doc = "Time of the last change of anything." },
  { name = "owner", type = types["Handle"], doc = "Of an ephemeral file, the handle of the session that made it; 0: it is not ephemeral. It goes with that session, or with the one that has reclaimed from it after a restart." },
  { name = "realm", type = types["Realm"], doc = "The realm to which it belongs; of a directory that begins one, that one. It never changes." },
}
types["CacheGrant"] = { is = "structure", name = "CacheGrant",
  { name = "mode", type = types["Want"], doc = "Its mode; nothing: the data must not be cached." },
  { name = "generation", type = types["Generation"], doc = "The grant; 0: none." },
}
types["Stated"] = { is = "structure", name = "Stated",
  { name = "attr", type = types["Attr"], doc = "Its attributes." },
  { name = "grant", type = types["CacheGrant"], doc = "The cache lock on it." },
}
types["list of Stated"] = { is = "list", of = types["Stated"] }
types["Walked"] = { is = "structure", name = "Walked",
  { name = "status", type = types["Status"], doc = "OK when all names were walked or the datagram was full or a symbolic link was met; else why the next name was not." },
  { name = "steps", type = types["list of Stated"], doc = "The objects; the first is the start directory." },
  { name = "target", type = types["bytes16"], shown = "text", doc = "The target, when the last object is a symbolic link." },
}
types["optional Stated"] = { is = "optional", of = types["Stated"] }
types["Entry"] = { is = "structure", name = "Entry",
  { name = "name", type = types["bytes8"], doc = "The name." },
  { name = "object", type = types["ObjectId"], doc = "What it names." },
  { name = "kind", type = types["ObjectKind"], doc = "What that is." },
  { name = "detail", type = types["optional Stated"], doc = "Its attributes, when asked for." },
}
types["list of Entry"] = { is = "list", of = types["Entry"] }
types["Listing"] = { is = "structure", name = "Listing",
  { name = "dir", type = types["Attr"], doc = "The directory." },
  { name = "grant", type = types["CacheGrant"], doc = "The cache lock on it." },
  { name = "end", type = types["bool"], doc = "Whether this page is the last." },
  { name = "entries", type = types["list of Entry"], doc = "The entries, in byte order of their names." },
}
types["Data"] = { is = "structure", name = "Data",
  { name = "attr", type = types["Attr"], doc = "The file." },
  { name = "grant", type = types["CacheGrant"], doc = "The cache lock on it." },
  { name = "offset", type = types["u64"], doc = "Where the bytes begin." },
  { name = "data", type = types["bytes16"], doc = "The bytes; fewer than asked for when the datagram is full or the file ends." },
}
types["Effect"] = { is = "structure", name = "Effect",
  { name = "before", type = types["u64"], doc = "The object's version before; 0: it did not exist." },
  { name = "attr", type = types["Attr"], doc = "Its attributes after; a link count of 0: it is gone." },
  { name = "grant", type = types["CacheGrant"], doc = "The cache lock that the requester now has on it, if that is new." },
}
types["list of Effect"] = { is = "list", of = types["Effect"] }
types["Changed"] = { is = "structure", name = "Changed",
  { name = "effects", type = types["list of Effect"], doc = "The effects." },
}
types["Granted"] = { is = "structure", name = "Granted",
  { name = "lock", type = types["LockId"], doc = "The lock." },
  { name = "mode", type = types["Mode"], doc = "Its mode." },
  { name = "generation", type = types["Generation"], doc = "The grant, and the first token of its run." },
  { name = "run", type = types["u32"], doc = "How many consecutive tokens the run has." },
}
types["Standing"] = { is = "code", bytes = 1, shown = "words", words = { [0] = "good", [1] = "timing out", [2] = "evicted" } }
types["Holder"] = { is = "structure", name = "Holder",
  { name = "label", type = types["bytes8"], doc = "The agent's label." },
  { name = "handle", type = types["Handle"], doc = "Its session's handle." },
  { name = "mode", type = types["Mode"], doc = "How it holds it." },
  { name = "since_ms", type = types["u64"], shown = "millis", doc = "For how long, in milliseconds of the server's clock." },
  { name = "standing", type = types["Standing"], doc = "Its session's standing." },
  { name = "bound_ms", type = types["u64"], shown = "millis", doc = "When its locks are freed at the latest if it is gone, in milliseconds from now; 0: not known." },
}
types["LockRefused"] = { is = "structure", name = "LockRefused",
  { name = "lock", type = types["LockId"], doc = "The lock." },
  { name = "holder", type = types["Holder"], doc = "One who holds it, or waits for it longer." },
}
types["RowState"] = { is = "code", bytes = 1, shown = "words", words = { [1] = "holds", [2] = "waits" } }
types["LockRow"] = { is = "structure", name = "LockRow",
  { name = "lock", type = types["LockId"], doc = "The lock." },
  { name = "state", type = types["RowState"], doc = "Holds or waits." },
  { name = "mode", type = types["Mode"], doc = "The mode held or asked for." },
  { name = "generation", type = types["Generation"], doc = "The grant held; 0 for one who waits." },
  { name = "label", type = types["bytes8"], doc = "The agent's label." },
  { name = "handle", type = types["Handle"], doc = "Its session's handle." },
  { name = "since_ms", type = types["u64"], shown = "millis", doc = "Since when, in milliseconds before now on the server's clock." },
  { name = "standing", type = types["Standing"], doc = "The session's standing." },
  { name = "bound_ms", type = types["u64"], shown = "millis", doc = "When this ends at the latest if the agent is gone, in milliseconds from now; 0: not known." },
  { name = "place", type = types["bytes16"], shown = "text", doc = "A path of the object, as far as it fits; empty: not known, or not asked for." },
}
types["list of LockRow"] = { is = "list", of = types["LockRow"] }
types["LockRows"] = { is = "structure", name = "LockRows",
  { name = "end", type = types["bool"], doc = "Whether this page is the last." },
  { name = "rows", type = types["list of LockRow"], doc = "The rows: holders of an object before those who wait, in order." },
}
types["GroupMember"] = { is = "structure", name = "GroupMember",
  { name = "name", type = types["bytes8"], doc = "As the group's list has it." },
  { name = "heard_ms", type = types["u32"], shown = "millis", doc = "How long ago the answering server has heard it, in milliseconds; 0 of itself, [`GroupMember::NOT_HEARD`]: not yet." },
}
types["list of GroupMember"] = { is = "list", of = types["GroupMember"] }
types["ServerReport"] = { is = "structure", name = "ServerReport",
  { name = "store", type = types["StoreId"], doc = "The store." },
  { name = "epoch", type = types["u8"], doc = "Its epoch." },
  { name = "incarnation", type = types["u64"], doc = "The server's incarnation." },
  { name = "uptime_ms", type = types["u64"], shown = "millis", doc = "Since the server started, in milliseconds." },
  { name = "agent", type = types["AgentId"], doc = "The asking agent's own identity, as the server knows it." },
  { name = "sessions", type = types["u32"], doc = "Sessions in good standing." },
  { name = "timing_out", type = types["u32"], doc = "Sessions timing out: the only lease state there is." },
  { name = "locks", type = types["u64"], doc = "Locks held, of both classes." },
  { name = "waiters", type = types["u32"], doc = "Requests that wait for a lock." },
  { name = "objects", type = types["u64"], doc = "Objects in the namespace." },
  { name = "requests", type = types["u64"], doc = "Requests executed since the start." },
  { name = "demands", type = types["u64"], doc = "Demands sent since the start." },
  { name = "delivery_failures", type = types["u64"], doc = "Delivery failures since the start." },
  { name = "steals", type = types["u64"], doc = "Sessions stolen from since the start." },
  { name = "drops", type = types["u64"], doc = "Datagrams dropped since the start, for whatever reason." },
  { name = "place", type = types["u8"], doc = "The place of the answering server, which serves, in the list of its group, from 1; 0: it has no group." },
  { name = "members", type = types["list of GroupMember"], doc = "The servers of that group, as many as fit, in the order of the list." },
}
types["ReclaimedItem"] = { is = "structure", name = "ReclaimedItem",
  { name = "lock", type = types["LockId"], doc = "The lock." },
  { name = "generation", type = types["Generation"], doc = "The generation, which the agent keeps if the status is OK." },
  { name = "status", type = types["Status"], doc = "OK: held as before. NOT_HELD: nothing of that session may be reclaimed any more. ESTALE: the object is gone. Others: refused." },
  { name = "version", type = types["u64"], doc = "Version of the object now; 0 if it is not OK." },
}
types["list of ReclaimedItem"] = { is = "list", of = types["ReclaimedItem"] }
types["Reclaimed"] = { is = "structure", name = "Reclaimed",
  { name = "items", type = types["list of ReclaimedItem"], doc = "What became of each lock, in the order of the request." },
}
types["Fate"] = { is = "code", bytes = 1, shown = "words", words = { [0] = "unknown", [1] = "executed", [2] = "not executed" } }
types["OutcomeTold"] = { is = "structure", name = "OutcomeTold",
  { name = "fate", type = types["Fate"], doc = "What became of it." },
  { name = "reply", type = types["bytes16"], doc = "The reply that it got, encoded, without grants; empty: not kept, or too large for the datagram." },
}
types["Xattr"] = { is = "structure", name = "Xattr",
  { name = "object", type = types["ObjectId"], doc = "The object." },
  { name = "version", type = types["u64"], doc = "Its version." },
  { name = "total", type = types["u32"], doc = "Bytes of the whole value." },
  { name = "offset", type = types["u32"], doc = "Where the bytes begin." },
  { name = "data", type = types["bytes16"], doc = "The bytes; fewer than asked for when the datagram is full or the value ends." },
}
types["XattrNames"] = { is = "structure", name = "XattrNames",
  { name = "object", type = types["ObjectId"], doc = "The object." },
  { name = "version", type = types["u64"], doc = "Its version." },
  { name = "end", type = types["bool"], doc = "Whether this page is the last." },
  { name = "names", type = types["list of bytes8"], doc = "The names, in byte order." },
}
types["BatchFailed"] = { is = "structure", name = "BatchFailed",
  { name = "status", type = types["Status"], doc = "Why; never OK." },
  { name = "item", type = types["u16"], doc = "Which item, counted from 0." },
}
types["Watched"] = { is = "structure", name = "Watched",
  { name = "attr", type = types["Attr"], doc = "Its attributes." },
}
types["ItemResult"] = { is = "structure", name = "ItemResult",
  { name = "object", type = types["ObjectId"], doc = "The object that it made, opened, changed, named, moved, or whose name it took away." },
  { name = "version", type = types["u64"], doc = "That object's version after the whole batch; 0: it is gone." },
}
types["list of ItemResult"] = { is = "list", of = types["ItemResult"] }
types["Batched"] = { is = "structure", name = "Batched",
  { name = "items", type = types["list of ItemResult"], doc = "One for each item, in order." },
}
types["Limit"] = { is = "code", bytes = 1, shown = "words", words = { [1] = "objects", [2] = "bytes", [3] = "locks", [4] = "waiting lock requests", [5] = "watches", [6] = "staged bytes", [7] = "ephemeral files", [8] = "sessions", [9] = "named leases" } }
types["Whose"] = { is = "code", bytes = 1, shown = "words", words = { [1] = "realm", [2] = "principal", [3] = "host", [4] = "session", [5] = "object", [6] = "server" } }
types["Limited"] = { is = "structure", name = "Limited",
  { name = "limit", type = types["Limit"], doc = "What would be too much." },
  { name = "whose", type = types["Whose"], doc = "Whose." },
  { name = "realm", type = types["Realm"], doc = "Which realm: the object's own, or one around it; 0: it is no realm's." },
  { name = "used", type = types["u64"], doc = "How much of it is used." },
  { name = "bound", type = types["u64"], doc = "How much may be." },
  { name = "retry_ms", type = types["u32"], shown = "millis", doc = "When to try again, in milliseconds; 0: not before something is given back." },
}
types["RealmRow"] = { is = "structure", name = "RealmRow",
  { name = "realm", type = types["Realm"], doc = "The realm." },
  { name = "parent", type = types["Realm"], doc = "The one around it; 0: none." },
  { name = "root", type = types["ObjectId"], doc = "The directory that begins it." },
  { name = "objects", type = types["u64"], doc = "Objects in it." },
  { name = "objects_max", type = types["u64"], doc = "Most objects; 0: no quota." },
  { name = "bytes", type = types["u64"], doc = "Bytes in it." },
  { name = "bytes_max", type = types["u64"], doc = "Most bytes; 0: no quota." },
  { name = "place", type = types["bytes16"], shown = "text", doc = "A path of the directory, as far as it fits." },
}
types["list of RealmRow"] = { is = "list", of = types["RealmRow"] }
types["RealmRows"] = { is = "structure", name = "RealmRows",
  { name = "end", type = types["bool"], doc = "Whether this page is the last." },
  { name = "rows", type = types["list of RealmRow"], doc = "The realms, by number." },
}
types["AdminAnswer"] = { is = "structure", name = "AdminAnswer",
  { name = "answer", type = types["u64"], doc = "Names the answer, in its session." },
  { name = "total", type = types["u32"], doc = "Bytes of the whole answer." },
  { name = "offset", type = types["u32"], doc = "Where the page begins." },
  { name = "text", type = types["bytes16"], shown = "text", doc = "The page, of a text in UTF-8; it may end within a character." },
}
types["LeaseKept"] = { is = "structure", name = "LeaseKept",
  { name = "ttl_ms", type = types["u32"], shown = "millis", doc = "For how long the lease lasts, from when the request was executed." },
}
types["LeaseRow"] = { is = "structure", name = "LeaseRow",
  { name = "object", type = types["ObjectId"], doc = "The file." },
  { name = "lease", type = types["ObjectId"], doc = "The lease." },
  { name = "ttl_ms", type = types["u32"], shown = "millis", doc = "The lease's time to live." },
  { name = "left_ms", type = types["u32"], shown = "millis", doc = "What is left of it." },
  { name = "files", type = types["u32"], doc = "How many files go with the lease, its own included." },
  { name = "place", type = types["bytes16"], shown = "text", doc = "A path of the file, as far as it fits." },
}
types["list of LeaseRow"] = { is = "list", of = types["LeaseRow"] }
types["LeaseRows"] = { is = "structure", name = "LeaseRows",
  { name = "end", type = types["bool"], doc = "Whether this page is the last." },
  { name = "rows", type = types["list of LeaseRow"], doc = "The files, by number." },
}
types["Reply"] = { is = "union", name = "Reply", shown = "words", words = { [0] = "DONE", [1] = "FAILED", [2] = "WALKED", [3] = "STATED", [4] = "LISTING", [5] = "DATA", [6] = "CHANGED", [7] = "GRANTED", [8] = "LOCK_REFUSED", [9] = "LOCK_ROWS", [10] = "SERVER_REPORT", [11] = "RECLAIMED", [12] = "OUTCOME_TOLD", [13] = "XATTR", [14] = "XATTR_NAMES", [15] = "BATCH_FAILED", [16] = "WATCHED", [17] = "BATCHED", [18] = "LIMITED", [19] = "REALM_ROWS", [20] = "ADMIN_ANSWER", [21] = "LEASE_KEPT", [22] = "LEASE_ROWS" }, cases = {
  [0] = { field = "done", type = types["Done"] },
  [1] = { field = "failed", type = types["Failed"] },
  [2] = { field = "walked", type = types["Walked"] },
  [3] = { field = "stated", type = types["Stated"] },
  [4] = { field = "listing", type = types["Listing"] },
  [5] = { field = "data", type = types["Data"] },
  [6] = { field = "changed", type = types["Changed"] },
  [7] = { field = "granted", type = types["Granted"] },
  [8] = { field = "lock_refused", type = types["LockRefused"] },
  [9] = { field = "lock_rows", type = types["LockRows"] },
  [10] = { field = "server_report", type = types["ServerReport"] },
  [11] = { field = "reclaimed", type = types["Reclaimed"] },
  [12] = { field = "outcome_told", type = types["OutcomeTold"] },
  [13] = { field = "xattr", type = types["Xattr"] },
  [14] = { field = "xattr_names", type = types["XattrNames"] },
  [15] = { field = "batch_failed", type = types["BatchFailed"] },
  [16] = { field = "watched", type = types["Watched"] },
  [17] = { field = "batched", type = types["Batched"] },
  [18] = { field = "limited", type = types["Limited"] },
  [19] = { field = "realm_rows", type = types["RealmRows"] },
  [20] = { field = "admin_answer", type = types["AdminAnswer"] },
  [21] = { field = "lease_kept", type = types["LeaseKept"] },
  [22] = { field = "lease_rows", type = types["LeaseRows"] },
} }
types["Ack"] = { is = "structure", name = "Ack",
  { name = "nonce", type = types["u64"], doc = "The request." },
  { name = "echo", type = types["u64"], doc = "Packet number of the transmission answered." },
  { name = "reply", type = types["Reply"], doc = "The result." },
}
types["Pending"] = { is = "structure", name = "Pending",
  { name = "nonce", type = types["u64"], doc = "The request." },
  { name = "echo", type = types["u64"], doc = "Packet number of the transmission answered." },
}
types["Queued"] = { is = "structure", name = "Queued",
  { name = "nonce", type = types["u64"], doc = "The request." },
  { name = "echo", type = types["u64"], doc = "Packet number of the transmission answered." },
  { name = "lock", type = types["LockId"], doc = "The lock waited for." },
  { name = "ahead", type = types["u32"], doc = "How many requests stand before this one." },
  { name = "holder", type = types["Holder"], doc = "One who holds it." },
}
types["RequestResult"] = { is = "structure", name = "RequestResult",
  { name = "nonce", type = types["u64"], doc = "The request." },
  { name = "reply", type = types["Reply"], doc = "The result, without grants." },
}
types["NackReason"] = { is = "code", bytes = 1, shown = "words", words = { [1] = "timing out", [2] = "ended" } }
types["Nack"] = { is = "structure", name = "Nack",
  { name = "nonce", type = types["u64"], doc = "The request; 0 when a control message is refused." },
  { name = "echo", type = types["u64"], doc = "Packet number of the transmission answered." },
  { name = "reason", type = types["NackReason"], doc = "Why." },
  { name = "fate", type = types["Fate"], doc = "What became of the request." },
}
types["Alive"] = { is = "structure", name = "Alive",
  { name = "serial", type = types["u64"], doc = "The keep-alive's serial." },
  { name = "echo", type = types["u64"], doc = "Packet number of the transmission answered." },
}
types["ReleasedItem"] = { is = "structure", name = "ReleasedItem",
  { name = "lock", type = types["LockId"], doc = "The lock." },
  { name = "generation", type = types["Generation"], doc = "The generation that the release named." },
  { name = "keep", type = types["Keep"], doc = "What the agent keeps." },
  { name = "now", type = types["Generation"], doc = "Generation of what it keeps; 0: nothing, or the release named a generation that is not current." },
}
types["list of ReleasedItem"] = { is = "list", of = types["ReleasedItem"] }
types["Released"] = { is = "structure", name = "Released",
  { name = "serial", type = types["u64"], doc = "The release's serial." },
  { name = "echo", type = types["u64"], doc = "Packet number of the transmission answered." },
  { name = "items", type = types["list of ReleasedItem"], doc = "What became of each lock named." },
}
types["CancelOutcome"] = { is = "code", bytes = 1, shown = "words", words = { [1] = "cancelled", [2] = "granted", [3] = "answered" } }
types["Cancelled"] = { is = "structure", name = "Cancelled",
  { name = "serial", type = types["u64"], doc = "The cancellation's serial." },
  { name = "echo", type = types["u64"], doc = "Packet number of the transmission answered." },
  { name = "nonce", type = types["u64"], doc = "The request cancelled." },
  { name = "outcome", type = types["CancelOutcome"], doc = "How it ended." },
  { name = "generation", type = types["Generation"], doc = "The grant, when there was one; else 0." },
}
types["Ended"] = { is = "structure", name = "Ended",
  { name = "serial", type = types["u64"], doc = "The serial of END_SESSION." },
  { name = "echo", type = types["u64"], doc = "Packet number of the transmission answered." },
}
types["Hint"] = { is = "structure", name = "Hint",
  { name = "echo", type = types["u64"], doc = "Packet number of the datagram that named the session." },
  { name = "detail", type = types["bytes8"], doc = "Reserved for a reason in words; empty in this version." },
}

-- Kinds of messages by code.
local kinds = {
  [1] = { name = "HELLO", field = "hello", direction = "agent", lane = "Handshake", renews = false, body = types["Hello"] },
  [2] = { name = "CHALLENGE", field = "challenge", direction = "server", lane = "Handshake", renews = false, body = types["Challenge"] },
  [3] = { name = "WELCOME", field = "welcome", direction = "server", lane = "Handshake", renews = false, body = types["Welcome"] },
  [4] = { name = "REFUSE", field = "refuse", direction = "server", lane = "Handshake", renews = false, body = types["Refuse"] },
  [6] = { name = "CONFIRM", field = "confirm", direction = "agent", lane = "Control", renews = false, body = types["Confirm"] },
  [7] = { name = "OPENED", field = "opened", direction = "server", lane = "Renewal", renews = true, body = types["Opened"] },
  [8] = { name = "KNOWN", field = "known", direction = "server", lane = "Answer", renews = false, body = types["Known"] },
  [9] = { name = "JOIN", field = "join", direction = "agent", lane = "Control", renews = false, body = types["Join"] },
  [10] = { name = "JOINED", field = "joined", direction = "server", lane = "Answer", renews = false, body = types["Joined"] },
  [11] = { name = "ROSTER", field = "roster", direction = "agent", lane = "Control", renews = false, body = types["RosterAsk"] },
  [12] = { name = "ROSTER_PART", field = "roster_part", direction = "server", lane = "Answer", renews = false, body = types["RosterPart"] },
  [16] = { name = "KEEPALIVE", field = "keepalive", direction = "agent", lane = "Control", renews = false, body = types["KeepAlive"] },
  [17] = { name = "RELEASE", field = "release", direction = "agent", lane = "Control", renews = false, body = types["Release"] },
  [19] = { name = "CANCEL", field = "cancel", direction = "agent", lane = "Control", renews = false, body = types["Cancel"] },
  [20] = { name = "END_SESSION", field = "end_session", direction = "agent", lane = "Control", renews = false, body = types["EndSession"] },
  [21] = { name = "PATH_CHALLENGE", field = "path_challenge", direction = "server", lane = "Path", renews = false, body = types["PathChallenge"] },
  [22] = { name = "PATH_RESPONSE", field = "path_response", direction = "agent", lane = "Path", renews = false, body = types["PathResponse"] },
  [32] = { name = "DEMAND", field = "demand", direction = "server", lane = "Notice", renews = false, body = types["Demand"] },
  [33] = { name = "GRANT", field = "grant", direction = "server", lane = "Notice", renews = false, body = types["Grant"] },
  [34] = { name = "WAIT_OVER", field = "wait_over", direction = "server", lane = "Notice", renews = false, body = types["WaitOver"] },
  [35] = { name = "PROBE", field = "probe", direction = "server", lane = "Notice", renews = false, body = types["Probe"] },
  [36] = { name = "WATCH_EVENT", field = "watch_event", direction = "server", lane = "Notice", renews = false, body = types["WatchEvent"] },
  [40] = { name = "RECEIPT", field = "receipt", direction = "agent", lane = "Control", renews = false, body = types["Receipt"] },
  [48] = { name = "RECLAIM", field = "reclaim", direction = "agent", lane = "Request", renews = false, body = types["Reclaim"] },
  [49] = { name = "RECLAIM_COMPLETE", field = "reclaim_complete", direction = "agent", lane = "Request", renews = false, body = types["ReclaimComplete"] },
  [50] = { name = "OUTCOME", field = "outcome", direction = "agent", lane = "Request", renews = false, body = types["Outcome"] },
  [64] = { name = "LOOKUP", field = "lookup", direction = "agent", lane = "Request", renews = false, body = types["Lookup"] },
  [65] = { name = "GETATTR", field = "getattr", direction = "agent", lane = "Request", renews = false, body = types["GetAttr"] },
  [66] = { name = "SETATTR", field = "setattr", direction = "agent", lane = "Request", renews = false, body = types["SetAttr"] },
  [67] = { name = "READDIR", field = "readdir", direction = "agent", lane = "Request", renews = false, body = types["ReadDir"] },
  [68] = { name = "CREATE", field = "create", direction = "agent", lane = "Request", renews = false, body = types["Create"] },
  [69] = { name = "MKDIR", field = "mkdir", direction = "agent", lane = "Request", renews = false, body = types["Mkdir"] },
  [70] = { name = "SYMLINK", field = "symlink", direction = "agent", lane = "Request", renews = false, body = types["Symlink"] },
  [71] = { name = "LINK", field = "link", direction = "agent", lane = "Request", renews = false, body = types["Link"] },
  [72] = { name = "UNLINK", field = "unlink", direction = "agent", lane = "Request", renews = false, body = types["Unlink"] },
  [73] = { name = "RMDIR", field = "rmdir", direction = "agent", lane = "Request", renews = false, body = types["Rmdir"] },
  [74] = { name = "RENAME", field = "rename", direction = "agent", lane = "Request", renews = false, body = types["Rename"] },
  [75] = { name = "MKREALM", field = "mkrealm", direction = "agent", lane = "Request", renews = false, body = types["MakeRealm"] },
  [76] = { name = "SETQUOTA", field = "setquota", direction = "agent", lane = "Request", renews = false, body = types["SetQuota"] },
  [77] = { name = "LIST_REALMS", field = "list_realms", direction = "agent", lane = "Request", renews = false, body = types["ListRealms"] },
  [78] = { name = "MKLEASE", field = "mklease", direction = "agent", lane = "Request", renews = false, body = types["MakeLease"] },
  [79] = { name = "ATTACH", field = "attach", direction = "agent", lane = "Request", renews = false, body = types["Attach"] },
  [80] = { name = "READ", field = "read", direction = "agent", lane = "Request", renews = false, body = types["Read"] },
  [81] = { name = "STAGE", field = "stage", direction = "agent", lane = "Request", renews = false, body = types["Stage"] },
  [82] = { name = "WRITE", field = "write", direction = "agent", lane = "Request", renews = false, body = types["Write"] },
  [83] = { name = "BATCH", field = "batch", direction = "agent", lane = "Request", renews = false, body = types["Batch"] },
  [84] = { name = "GETXATTR", field = "getxattr", direction = "agent", lane = "Request", renews = false, body = types["GetXattr"] },
  [85] = { name = "LISTXATTR", field = "listxattr", direction = "agent", lane = "Request", renews = false, body = types["ListXattr"] },
  [86] = { name = "SETXATTR", field = "setxattr", direction = "agent", lane = "Request", renews = false, body = types["SetXattr"] },
  [87] = { name = "REMOVEXATTR", field = "removexattr", direction = "agent", lane = "Request", renews = false, body = types["RemoveXattr"] },
  [96] = { name = "LOCK", field = "lock", direction = "agent", lane = "Request", renews = false, body = types["Lock"] },
  [98] = { name = "LIST_LOCKS", field = "list_locks", direction = "agent", lane = "Request", renews = false, body = types["ListLocks"] },
  [99] = { name = "SERVER_STATUS", field = "server_status", direction = "agent", lane = "Request", renews = false, body = types["ServerStatus"] },
  [100] = { name = "WATCH", field = "watch", direction = "agent", lane = "Request", renews = false, body = types["Watch"] },
  [101] = { name = "UNWATCH", field = "unwatch", direction = "agent", lane = "Request", renews = false, body = types["Unwatch"] },
  [102] = { name = "KEEP_LEASE", field = "keep_lease", direction = "agent", lane = "Request", renews = false, body = types["KeepLease"] },
  [103] = { name = "LIST_LEASES", field = "list_leases", direction = "agent", lane = "Request", renews = false, body = types["ListLeases"] },
  [120] = { name = "ADMIN", field = "admin", direction = "agent", lane = "Request", renews = false, body = types["Admin"] },
  [128] = { name = "ACK", field = "ack", direction = "server", lane = "Renewal", renews = true, body = types["Ack"] },
  [129] = { name = "PENDING", field = "pending", direction = "server", lane = "Renewal", renews = true, body = types["Pending"] },
  [130] = { name = "QUEUED", field = "queued", direction = "server", lane = "Renewal", renews = true, body = types["Queued"] },
  [131] = { name = "RESULT", field = "result", direction = "server", lane = "Answer", renews = false, body = types["RequestResult"] },
  [132] = { name = "NACK", field = "nack", direction = "server", lane = "Answer", renews = false, body = types["Nack"] },
  [133] = { name = "ALIVE", field = "alive", direction = "server", lane = "Renewal", renews = true, body = types["Alive"] },
  [134] = { name = "RELEASED", field = "released", direction = "server", lane = "Renewal", renews = true, body = types["Released"] },
  [135] = { name = "CANCELLED", field = "cancelled", direction = "server", lane = "Renewal", renews = true, body = types["Cancelled"] },
  [136] = { name = "ENDED", field = "ended", direction = "server", lane = "Answer", renews = false, body = types["Ended"] },
  [137] = { name = "HINT", field = "hint", direction = "server", lane = "Answer", renews = false, body = types["Hint"] },
}

-- Why a datagram is dropped, by the names of the server's counters.
local drop_reasons = { "too_short", "too_long", "bad_magic", "unknown_version", "unknown_form", "reserved_bits", "bad_checksum", "wrong_direction", "bad_packet_number", "empty", "unknown_kind", "bad_length", "malformed", "misplaced" }
local header_type, message_header_type = types["RawHeader"], types["MessageHeader"]
local MAGIC, VERSION, HEADER_LEN, CHECKSUM_LEN, DATAGRAM_MAX = 197, 1, 20, 4, 8952

-- The dissector. Everything that it knows of formats is in the tables above; it walks a datagram by them as the Rust code does
-- (crates/wire/src/tree.rs) and finds the same faults. The name of a field is `cistern.` and the path of its value in the JSON of
-- cistern-dump.
--
-- A datagram is taken for Cistern's by its port (preference), by its first bytes and checksum (heuristic), or because an earlier one
-- of the same conversation was.

local cistern = Proto("cistern", "Cistern")

-- Fields -------------------------------------------------------------------------------------------------------------------------

local field_list = {}
local fields = {}
local bit_fields = {}

local function register(path, field)
  fields[path] = field
  field_list[#field_list + 1] = field
end

local number_fields = {
  [false] = { [1] = ProtoField.uint8, [2] = ProtoField.uint16, [4] = ProtoField.uint32, [8] = ProtoField.uint64 },
  [true] = { [1] = ProtoField.int8, [2] = ProtoField.int16, [4] = ProtoField.int32, [8] = ProtoField.int64 },
}

-- Registers what a type has under a path. `as` says how its leaves are shown.
local function declare(path, type, as, doc)
  local name = path:match("[^.]+$")
  local is = type.is
  if is == "structure" then
    register(path, ProtoField.none(path, name, doc))
    for _, field in ipairs(type) do
      declare(path .. "." .. field.name, field.type, field.shown and field, field.doc)
    end
  elseif is == "union" then
    register(path, ProtoField.none(path, name, doc))
    register(path .. ".kind", ProtoField.uint8(path .. ".kind", "kind", base.DEC, type.words, nil, "What follows."))
    for _, case in pairs(type.cases) do
      declare(path .. "." .. case.field, case.type)
    end
  elseif is == "list" then
    register(path .. ".count", ProtoField.uint16(path .. ".count", name .. " count", base.DEC, nil, nil, "How many follow."))
    declare(path, type.of, as, doc)
  elseif is == "optional" then
    register(path .. ".present", ProtoField.bool(path .. ".present", name .. " present", base.NONE, nil, nil, "Whether it follows."))
    declare(path, type.of, as, doc)
  elseif is == "bool" then
    register(path, ProtoField.bool(path, name, base.NONE, nil, nil, doc))
  elseif is == "fixed" then
    register(path, ProtoField.bytes(path, name, base.NONE, doc))
  elseif is == "bytes" then
    if (as or type).shown == "text" then
      register(path, ProtoField.string(path, name, base.NONE, doc))
    else
      register(path, ProtoField.bytes(path, name, base.NONE, doc))
    end
  else
    as = as or type
    local shown = as.shown
    local digits = (shown == "hex" or shown == "bits") and base.HEX or shown == "octal" and base.OCT or base.DEC
    register(path, number_fields[type.signed or false][type.bytes](path, name, digits, as.words, nil, doc))
    if shown == "bits" then
      local bits = {}
      for _, bit in ipairs(as.bits) do
        -- A bit is shown in the one byte in which it stands.
        local value, back = bit[1], 1
        while value > 128 do
          value, back = value / 256, back + 1
        end
        local field = ProtoField.bool(path .. "." .. bit[2], bit[2], 8, nil, value)
        field_list[#field_list + 1] = field
        bits[#bits + 1] = { back = back, field = field }
      end
      bit_fields[path] = bits
    end
  end
end

for _, field in ipairs(header_type) do
  declare("cistern." .. field.name, field.type, field.shown and field, field.doc)
end
for _, field in ipairs(message_header_type) do
  declare("cistern." .. field.name, field.type, field.shown and field, field.doc)
end
for _, kind in pairs(kinds) do
  declare("cistern." .. kind.field, kind.body)
  declare("cistern." .. kind.field .. ".undecoded", { is = "bytes", prefix = 0, shown = "bytes" }, nil, "What could not be read.")
end
declare("cistern.undecoded", { is = "bytes", prefix = 0, shown = "bytes" }, nil, "What could not be read.")
declare("cistern.checksum", { is = "number", bytes = 4, shown = "hex" }, nil, "CRC-32 of all bytes before it.")

-- What is found out, not read: a message as a whole, its numbers whatever its kind, and where it belongs.
register("cistern.message", ProtoField.none("cistern.message", "Message"))
for name, doc in pairs({
  nonce = "Number of the request that the message is or answers.",
  serial = "Number of the control message that the message is or answers.",
  seq = "Number of the notice that the message is or receipts.",
  echo = "Packet number of the transmission that the message answers.",
}) do
  register("cistern." .. name, ProtoField.uint64("cistern." .. name, name, base.DEC, nil, nil, doc))
end
register("cistern.dropped", ProtoField.string("cistern.dropped", "dropped", base.NONE, "Why a receiver drops the datagram."))
register("cistern.request_in", ProtoField.framenum("cistern.request_in", "Answers", base.NONE, frametype.REQUEST, nil,
  "The transmission that this answers, by its echo; without that the first with its number."))
register("cistern.response_in", ProtoField.framenum("cistern.response_in", "Answered in", base.NONE, frametype.RESPONSE, nil,
  "The first answer to this transmission; without an echo of it the first to its number."))
register("cistern.retransmission_of", ProtoField.framenum("cistern.retransmission_of", "Sent first in", base.NONE, frametype.RETRANS_PREV,
  nil, "The first transmission of the same message."))
register("cistern.duplicate_of", ProtoField.framenum("cistern.duplicate_of", "Same datagram in", base.NONE, frametype.DUP_ACK, nil,
  "The frame in which this very datagram was seen before."))
register("cistern.time", ProtoField.relative_time("cistern.time", "Time since what it answers"))

cistern.fields = field_list

-- Expert information -----------------------------------------------------------------------------------------------------------------

local experts = {}
local expert_list = {}

local function say(name, text, group, severity)
  experts[name] = ProtoExpert.new("cistern.expert." .. name, text, group, severity)
  expert_list[#expert_list + 1] = experts[name]
end

for _, reason in ipairs(drop_reasons) do
  local group = reason == "bad_checksum" and expert.group.CHECKSUM or expert.group.MALFORMED
  say(reason, "Every receiver drops this: " .. reason, group, expert.severity.ERROR)
end
say("nack", "The server refuses the session", expert.group.RESPONSE_CODE, expert.severity.WARN)
say("hint", "The server does not know the session", expert.group.RESPONSE_CODE, expert.severity.WARN)
say("refuse", "The server refuses the handshake", expert.group.RESPONSE_CODE, expert.severity.WARN)
say("failed", "The operation failed", expert.group.RESPONSE_CODE, expert.severity.NOTE)
say("retransmission", "The message was sent before", expert.group.SEQUENCE, expert.severity.NOTE)
say("duplicate", "The very datagram was seen before", expert.group.SEQUENCE, expert.severity.NOTE)
say("cut", "The capture has not the whole datagram", expert.group.UNDECODED, expert.severity.WARN)
say("fault", "The dissector failed: please report this", expert.group.UNDECODED, expert.severity.ERROR)

cistern.experts = expert_list

-- Preferences and state --------------------------------------------------------------------------------------------------------------

cistern.prefs.ports = Pref.range("UDP ports", "7311", "Datagrams of these ports are Cistern's whatever is in them", 65535)

-- All by session and number, as the bytes that they are on the wire. Filled once, when a frame is seen for the first time.
local first_sent, datagrams, answered

local function forget()
  -- first_sent: lane, session, number -> frame in which the message was sent first
  -- datagrams: sender, session, packet number -> frame and time
  -- answered: lane, session, number and, again, with the echo -> frame of the first answer
  first_sent, datagrams, answered = {}, {}, {}
end
cistern.init = forget
forget()

-- An ICMP error quotes the datagram that it is about: that is no other transmission.
local quotes = { Field.new("icmp.type"), Field.new("icmpv6.type") }

-- Checksum ---------------------------------------------------------------------------------------------------------------------------

-- Exclusive or of two numbers of 32 bits: by the library of Lua 5.2, that of Wireshark, or the operator of later versions.
local xor
if bit32 then
  xor = bit32.bxor
elseif bit then
  xor = function(a, b) return bit.bxor(a, b) % 4294967296 end
else
  xor = load("return function(a, b) return a ~ b end")()
end

local crc_table = {}
for byte = 0, 255 do
  local value = byte
  for _ = 1, 8 do
    local odd = value % 2
    value = (value - odd) / 2
    if odd == 1 then
      value = xor(value, 0xEDB88320)
    end
  end
  crc_table[byte] = value
end

-- CRC-32 of the first `length` bytes of a string.
local function crc32(raw, length)
  local crc = 0xFFFFFFFF
  for at = 1, length do
    local low = crc % 256
    crc = xor((crc - low) / 256, crc_table[xor(low, raw:byte(at))])
  end
  return xor(crc, 0xFFFFFFFF)
end

-- Values -----------------------------------------------------------------------------------------------------------------------------

-- The number in `length` bytes from offset `at` on; exact up to 6 bytes.
local function number_at(raw, at, length)
  local value = 0
  for index = at + 1, at + length do
    value = value * 256 + raw:byte(index)
  end
  return value
end

-- Length of the valid UTF-8 sequence of a printable character at `at`, or nil.
local function character(text, at)
  local lead = text:byte(at)
  if lead < 0x80 then
    return lead >= 0x20 and lead ~= 0x7F and 1 or nil
  end
  local length = lead >= 0xC2 and lead <= 0xDF and 2 or lead >= 0xE0 and lead <= 0xEF and 3 or lead >= 0xF0 and lead <= 0xF4 and 4
  if not length or at + length - 1 > #text then
    return nil
  end
  for index = at + 1, at + length - 1 do
    local byte = text:byte(index)
    if byte < 0x80 or byte > 0xBF then
      return nil
    end
  end
  local second = text:byte(at + 1)
  -- Control characters, overlong forms, surrogates, and what is beyond Unicode.
  if lead == 0xC2 and second < 0xA0 or lead == 0xE0 and second < 0xA0 or lead == 0xED and second > 0x9F
    or lead == 0xF0 and second < 0x90 or lead == 0xF4 and second > 0x8F then
    return nil
  end
  return length
end

-- Text as it is, but for the backslash and what is not printable UTF-8.
local function escaped(text)
  local parts, at = {}, 1
  while at <= #text do
    local length = character(text, at)
    local part = length and text:sub(at, at + length - 1) or string.format("\\x%02x", text:byte(at))
    parts[#parts + 1] = part == "\\" and "\\\\" or part
    at = at + (length or 1)
  end
  return table.concat(parts)
end

-- A span of so many seconds with its unit.
local function span(seconds)
  if seconds >= 1 or seconds == 0 then
    return string.format("%.9g s", seconds)
  elseif seconds >= 0.001 then
    return string.format("%.9g ms", seconds * 1000)
  end
  return string.format("%.9g us", seconds * 1000000)
end

-- What stands behind the number of a leaf, if anything makes it easier to read.
local function comment(as, range, length)
  if as.shown == "micros" or as.shown == "millis" then
    local value = length == 8 and range:uint64():tonumber() or range:uint()
    return span(value / (as.shown == "micros" and 1000000 or 1000))
  elseif as.shown == "time" then
    local value = range:int64()
    local seconds = (value / 1000000000):tonumber()
    if seconds < 0 or seconds > 253402300799 or value < Int64(0) then
      return nil
    end
    return os.date("!%Y-%m-%d %H:%M:%S", seconds) .. string.format(".%09d UTC", (value % 1000000000):tonumber())
  end
end

-- The walk ---------------------------------------------------------------------------------------------------------------------------

-- A walk `w` has the buffer, its bytes, the offset of the next byte, the end, and what it found out for the line of the message:
-- `facts` (leaf by path, its bytes) and `words` (parts of the line).

-- Which leaves the line of a message tells, by the last part of their names, and what stands before their values.
local telling = {
  nonce = "n", seq = "seq ", serial = "serial ", echo = "echo ", handshake = "handshake ", object = "#", dir = "in #", start = "from #",
  from_dir = "from #", to_dir = "to #", name = "", names = "", from_name = "", to_name = "", after = "after ", target = "-> ",
  label = "", session = "session ", generation = "gen ", up_to = "up to ", now = "now ", run = "run ", keep = "keep ", status = "",
  reason = "", fate = "", outcome = "", answer = "", class = "", mode = "", wait = "", want = "want ", kind = "", rule = "", claim = "",
  item = "item ", ahead = "ahead ", version = "version ", offset = "at ", gone = "gone", retry_ms = "retry in ", token = "token ",
  stage = "stage ", lease_us = "lease ",
}

-- Adds the leaf to the line, unless it is a detail: all items of a list of several, attributes, what a mutation expects.
local function tell(w, path, as, value)
  local kind_of, own = path:match("^cistern%.[^.]+%.(.-)([^.]+)$")
  local before = own and telling[own]
  if not before or w.several > 0 or #w.words > 11 or value == "0" or value == "" or value == "nothing" then
    return
  end
  kind_of = "." .. kind_of
  if kind_of:find("%.terms%.") or kind_of:find("%.grant%.") or own == "mode" and as.shown ~= "words" then
    return
  end
  if (kind_of:find("%.attr%.") or kind_of:find("%.dir%.")) and own ~= "object" then
    return
  end
  w.words[#w.words + 1] = before .. value
end

local function truncated()
  return { fault = "ends early" }
end

-- Reads one value without parts. Returns a fault or nil.
local function leaf(w, path, type, as, tree)
  local length = type.bytes or type.is == "bool" and 1
  if type.is == "bytes" then
    if w.stop - w.at < type.prefix then
      return truncated()
    end
    length = number_at(w.raw, w.at, type.prefix)
    if w.stop - w.at - type.prefix < length then
      return truncated()
    end
    w.at = w.at + type.prefix
  elseif w.stop - w.at < length then
    return truncated()
  end
  local at = w.at
  w.at = at + length
  local range = w.buffer(at, length)
  local bytes = w.raw:sub(at + 1, at + length)
  w.facts[path] = w.facts[path] or bytes
  if type.is == "bytes" or type.is == "fixed" then
    if as.shown == "text" then
      local text = escaped(bytes)
      tree:add(fields[path], range, text)
      tell(w, path, as, text)
    else
      tree:add(fields[path], range)
    end
    return nil
  end
  local item = tree:add(fields[path], range)
  local value = length < 8 and number_at(w.raw, at, length)
  local behind = comment(as, range, length)
  if behind then
    item:append_text(" (" .. behind .. ")")
  end
  for _, bit in ipairs(bit_fields[path] or {}) do
    item:add(bit.field, w.buffer(at + length - bit.back, 1))
  end
  if as.shown == "hex" then
    tell(w, path, as, tostring(range:bytes()):lower())
  elseif type.is == "bool" then
    tell(w, path, as, value == 0 and "0" or " ")
  else
    tell(w, path, as, behind or as.words and as.words[value] or value and string.format("%d", value) or tostring(range:uint64()))
  end
  if type.is == "bool" and value > 1 or type.is == "code" and not type.words[value] then
    return { fault = "has a value that the format does not allow" }
  end
end

local walk

-- Reads the fields of a structure. A fault gets the innermost structure and field as its place.
local function walk_fields(w, path, type, tree)
  for _, field in ipairs(type) do
    local fault = walk(w, path .. "." .. field.name, field.type, field.shown and field, tree)
    if fault then
      fault.place = fault.place or type.name .. "." .. field.name
      return fault
    end
  end
end

-- Reads a value of any type and adds it to the tree; on a fault, as much of it as there is. Returns the fault or nil.
function walk(w, path, type, as, tree)
  local is, start = type.is, w.at
  local item, fault
  if is == "structure" then
    item = tree:add(fields[path], w.buffer(start, 0))
    fault = walk_fields(w, path, type, item)
    item:set_len(w.at - start)
  elseif is == "union" then
    item = tree:add(fields[path], w.buffer(start, 0))
    fault = leaf(w, path .. ".kind", { is = "number", bytes = 1 }, type, item)
    if not fault then
      local code = number_at(w.raw, start, 1)
      local case = type.cases[code]
      if case then
        item:append_text(" " .. type.words[code])
        fault = walk(w, path .. "." .. case.field, case.type, nil, item)
      else
        fault = { fault = "has a value that the format does not allow", place = type.name .. ".kind" }
      end
    end
    item:set_len(w.at - start)
  elseif is == "list" then
    if w.stop - w.at < 2 then
      return truncated()
    end
    local count = number_at(w.raw, w.at, 2)
    item = tree:add(fields[path .. ".count"], w.buffer(w.at, 2))
    w.words[#w.words + 1] = count > 1 and count .. " " .. path:match("[^.]+$") or nil
    w.at = w.at + 2
    w.several = w.several + (count > 1 and 1 or 0)
    for _ = 1, count do
      fault = walk(w, path, type.of, as, item)
      if fault then
        break
      end
    end
    w.several = w.several - (count > 1 and 1 or 0)
  elseif is == "optional" then
    fault = leaf(w, path .. ".present", { is = "bool" }, type, tree)
    if not fault and number_at(w.raw, start, 1) == 1 then
      fault = walk(w, path, type.of, as, tree)
    end
  else
    fault = leaf(w, path, type, as or type, tree)
  end
  return fault
end

-- Adds what could not be read up to `stop`, if anything.
local function undecoded(w, path, tree, stop)
  if stop > w.at then
    tree:add(fields[path .. ".undecoded"], w.buffer(w.at, stop - w.at))
    w.at = stop
  end
end

-- Links ------------------------------------------------------------------------------------------------------------------------------

-- Adds a field that stands nowhere in the datagram.
local function conclude(tree, path, value)
  tree:add(fields[path], value):set_generated()
end

-- What names the message as one of its lane in its session, or nil: it is never sent twice.
local function own_number(kind, session, facts)
  local path = "cistern." .. kind.field .. "."
  if kind.name == "HELLO" then
    return facts[path .. "handshake"] and "handshake" .. facts[path .. "handshake"] .. (facts[path .. "cookie"] or "")
  elseif kind.lane == "Request" then
    return facts[path .. "ask.nonce"] and "nonce" .. session .. facts[path .. "ask.nonce"]
  elseif kind.name == "RECEIPT" then
    return facts[path .. "seq"] and "receipt" .. session .. facts[path .. "seq"]
  elseif kind.lane == "Control" then
    return facts[path .. "serial"] and "serial" .. session .. facts[path .. "serial"]
  elseif kind.lane == "Notice" then
    return facts[path .. "seq"] and "notice" .. session .. facts[path .. "seq"]
  end
end

-- What an answer answers: the number of a message, the datagram that it echoes; nil for what is no answer.
local function answered_number(kind, session, facts)
  local path = "cistern." .. kind.field .. "."
  local handshake, echo = facts[path .. "handshake"], facts[path .. "echo"]
  if kind.name == "RECEIPT" then
    return facts[path .. "seq"] and "notice" .. session .. facts[path .. "seq"], nil
  elseif kind.lane ~= "Answer" and kind.lane ~= "Renewal" and not (handshake and echo) then
    return nil, nil
  end
  local transmission = echo and "agent" .. (handshake or session) .. echo
  local serial, nonce = facts[path .. "serial"], facts[path .. "nonce"]
  local number = serial and "serial" .. session .. serial or nonce and number_at(nonce, 0, 8) > 0 and "nonce" .. session .. nonce
  return number or nil, transmission
end

-- Remembers a message and says where it belongs. `duplicate`: its very datagram was seen before.
local function link(tree, pinfo, kind, header, facts, first_time, duplicate)
  local frame, session = pinfo.number, header.session
  local own = own_number(kind, session, facts)
  local handshake = facts["cistern.hello.handshake"]
  local transmission = "agent" .. (handshake or session) .. header.packet
  local answers, echoed = answered_number(kind, session, facts)
  if first_time then
    if own and not duplicate then
      first_sent[own] = first_sent[own] or frame
    end
    if handshake and not datagrams[transmission] then
      datagrams[transmission] = { frame = frame, time = pinfo.rel_ts }
    end
    for _, key in ipairs({ answers or false, echoed or false, answers and echoed and answers .. echoed or false }) do
      if key then
        answered[key] = answered[key] or frame
      end
    end
  end
  local retransmission = own and first_sent[own] and first_sent[own] < frame and not duplicate
  if retransmission then
    conclude(tree, "cistern.retransmission_of", first_sent[own])
    tree:add_proto_expert_info(experts.retransmission)
  end
  local request = echoed and datagrams[echoed] or answers and first_sent[answers] and { frame = first_sent[answers] }
  if request and request.frame < frame then
    conclude(tree, "cistern.request_in", request.frame)
    if request.time then
      conclude(tree, "cistern.time", NSTime.new(math.floor(pinfo.rel_ts - request.time),
        math.floor((pinfo.rel_ts - request.time) % 1 * 1000000000 + 0.5)))
    end
  end
  if own and not answers then
    -- Without an echo of this transmission: the first answer to the message; that names a control message only by the echo if it is a NACK.
    local response = answered[own .. transmission] or answered[own] or kind.lane ~= "Notice" and answered[transmission]
    if response and response > frame then
      conclude(tree, "cistern.response_in", response)
    end
  end
  return retransmission
end

-- Messages ---------------------------------------------------------------------------------------------------------------------------

-- Whether the message may stand in a datagram with this header.
local function in_place(kind, header)
  local handshake = kind.lane == "Handshake"
  return handshake == header.sessionless and (kind.direction == "server") == header.from_server
end

local numbers = {
  { "nonce", { "ask.nonce", "nonce" } }, { "serial", { "serial" } }, { "seq", { "seq" } }, { "echo", { "echo" } },
}

-- What people should look at in a sound message.
local function remark(item, kind, facts)
  local path = "cistern." .. kind.field .. "."
  local reply = facts[path .. "reply.kind"] and number_at(facts[path .. "reply.kind"], 0, 1)
  if experts[kind.name:lower()] and (kind.name == "NACK" or kind.name == "HINT" or kind.name == "REFUSE") then
    item:add_proto_expert_info(experts[kind.name:lower()])
  elseif reply and (facts[path .. "reply.failed.status"] or facts[path .. "reply.batch_failed.status"]) then
    item:add_proto_expert_info(experts.failed)
  end
end

-- Reads the message at w.at, of which a header's worth of bytes is there. Returns its line and why the datagram is dropped for it; the
-- line is nil where no message can be told from what is left.
local function message(w, pinfo, tree, header, first_time, duplicate)
  local start, code = w.at, number_at(w.raw, w.at, 1)
  local kind, reserved, length = kinds[code], number_at(w.raw, w.at + 1, 1), number_at(w.raw, w.at + 2, 2)
  if length > w.stop - start - 4 then
    if kind and reserved == 0 and not w.cut then
      return nil, "bad_length"
    end
    length = w.stop - start - 4
  end
  local item = tree:add(fields["cistern.message"], w.buffer(start, 4 + length))
  w.facts, w.words, w.several = {}, {}, 0
  walk_fields(w, "cistern", message_header_type, item)
  w.words = {}
  if not kind then
    item:set_text(string.format("Message: unknown kind 0x%02x", code))
    undecoded(w, "cistern", item, w.at + length)
    return string.format("kind 0x%02x", code), "unknown_kind", string.format("unknown message kind 0x%02x", code)
  end
  local stop = w.stop
  w.stop = w.at + length
  local path = "cistern." .. kind.field
  local body = item:add(fields[path], w.buffer(w.at, length))
  local fault = walk_fields(w, path, kind.body, body)
  if not fault and w.at < w.stop then
    fault = { fault = "is followed by bytes that belong to nothing", place = kind.name .. ".end" }
  end
  local cut = fault and w.cut and w.stop == stop
  undecoded(w, path, body, w.stop)
  w.stop = stop
  for _, entry in ipairs(numbers) do
    for _, leaf_path in ipairs(entry[2]) do
      local bytes = w.facts[path .. "." .. leaf_path]
      if bytes then
        item:add(fields["cistern." .. entry[1]], UInt64(number_at(bytes, 4, 4), number_at(bytes, 0, 4))):set_hidden()
        break
      end
    end
  end
  local line = table.concat({ kind.name, table.concat(w.words, " ") }, " "):gsub("%s+$", "")
  if reserved ~= 0 then
    item:set_text("Message: " .. line)
    return line, "reserved_bits"
  elseif not in_place(kind, header) then
    item:set_text("Message: " .. line)
    return line, "misplaced", kind.name .. " does not belong in this datagram"
  elseif fault and not cut then
    item:set_text("Message: " .. line)
    return line, "malformed", "malformed: " .. fault.place .. " " .. fault.fault
  end
  if header.sound then
    if link(item, pinfo, kind, header, w.facts, first_time, duplicate) then
      line = line .. " [again]"
    end
    remark(item, kind, w.facts)
  end
  item:set_text("Message: " .. line)
  return line
end

-- Datagrams --------------------------------------------------------------------------------------------------------------------------

-- The first fault of the datagram outside of its messages, in the order of wire-spec.md section 3.5: a reason, and it in words.
local function envelope(raw, length, cut)
  if length < HEADER_LEN + CHECKSUM_LEN then
    return "too_short"
  elseif length > DATAGRAM_MAX then
    return "too_long"
  elseif raw:byte(1) ~= MAGIC then
    return "bad_magic"
  elseif raw:byte(2) ~= VERSION then
    return "unknown_version", "unknown version " .. raw:byte(2)
  elseif raw:byte(3) ~= 0 then
    return "unknown_form", "unknown form " .. raw:byte(3)
  elseif not cut and crc32(raw, length - CHECKSUM_LEN) ~= number_at(raw, length - CHECKSUM_LEN, CHECKSUM_LEN) then
    return "bad_checksum"
  elseif raw:byte(4) > 1 then
    return "reserved_bits"
  elseif raw:sub(13, 20) == string.rep("\0", 8) then
    return "bad_packet_number"
  end
end

-- Whether a datagram of this header was seen in an earlier frame; remembers it. Numbers mean nothing in handshakes and in HINTs.
local function seen_before(pinfo, raw, header, first_time)
  if header.sessionless or raw:byte(HEADER_LEN + 1) == 0x89 then
    return nil
  end
  local key = (header.from_server and "server" or "agent") .. header.session .. header.packet
  if first_time and not datagrams[key] then
    datagrams[key] = { frame = pinfo.number, time = pinfo.rel_ts }
  end
  local first = datagrams[key]
  return first and first.frame < pinfo.number and first.frame or nil
end

-- Shows why every receiver drops the datagram.
local function dropped(tree, reason, words)
  if reason then
    conclude(tree, "cistern.dropped", reason)
    tree:add_proto_expert_info(experts[reason], "Every receiver drops this: " .. (words or reason))
  end
end

-- Shows the datagram; returns its line.
local function datagram(buffer, pinfo, tree)
  local length, have = buffer:reported_len(), buffer:captured_len()
  local w = { buffer = buffer, raw = buffer:raw(0, have), at = 0, stop = have, cut = have < length, facts = {}, words = {}, several = 0 }
  if w.cut then
    tree:add_proto_expert_info(experts.cut)
  end
  if w.cut and have < HEADER_LEN then
    undecoded(w, "cistern", tree, have)
    return "cut short by the capture"
  end
  local reason, words = envelope(w.raw, length, w.cut)
  if reason == "too_short" or w.raw:byte(1) ~= MAGIC then
    undecoded(w, "cistern", tree, have)
    dropped(tree, reason, words)
    return words or reason
  end
  walk_fields(w, "cistern", header_type, tree)
  if reason == "unknown_version" or reason == "unknown_form" then
    undecoded(w, "cistern", tree, have)
    dropped(tree, reason, words)
    return words or reason
  end
  local session = w.raw:sub(5, 12)
  local header = {
    session = session, sessionless = session == string.rep("\0", 8), packet = w.raw:sub(13, 20), from_server = w.raw:byte(4) % 2 == 1,
    sound = reason == nil,
  }
  local quoted = quotes[1]() or quotes[2]()
  local first_time = not pinfo.visited and not quoted and header.sound
  local duplicate = header.sound and not quoted and seen_before(pinfo, w.raw, header, first_time)
  if duplicate then
    conclude(tree, "cistern.duplicate_of", duplicate)
    tree:add_proto_expert_info(experts.duplicate)
  end
  w.stop = math.min(have, length - CHECKSUM_LEN)
  local lines = {}
  while w.stop - w.at >= 4 do
    local line, fault, fault_words = message(w, pinfo, tree, header, first_time, duplicate)
    if not reason then
      reason, words = fault, fault_words
    end
    if not line then
      break
    end
    lines[#lines + 1] = line
  end
  if w.at < w.stop then
    if not w.cut then
      reason = reason or "bad_length"
    end
    undecoded(w, "cistern", tree, w.stop)
  elseif #lines == 0 and not w.cut then
    reason = reason or "empty"
  end
  w.at, w.stop = length - CHECKSUM_LEN, have
  if w.stop - w.at >= CHECKSUM_LEN then
    leaf(w, "cistern.checksum", { is = "number", bytes = CHECKSUM_LEN }, { shown = "hex" }, tree)
  end
  dropped(tree, reason, words)
  local line = table.concat(lines, " | ")
  if reason then
    return "[" .. (words or reason) .. "] " .. line
  end
  return duplicate and "[same datagram again] " .. line or line
end

function cistern.dissector(buffer, pinfo, root)
  local tree = root:add(cistern, buffer())
  pinfo.cols.protocol = "Cistern"
  local done, line = pcall(datagram, buffer, pinfo, tree)
  if not done then
    tree:add_proto_expert_info(experts.fault, "The dissector failed, please report this: " .. tostring(line))
    line = "[the dissector failed]"
  end
  pinfo.cols.info = line
  return buffer:captured_len()
end

-- Whether a datagram of a port that nobody named is Cistern's.
local function heuristic(buffer, pinfo, root)
  local length, have = buffer:reported_len(), buffer:captured_len()
  if have < HEADER_LEN + CHECKSUM_LEN then
    return false
  end
  local raw = buffer:raw(0, have)
  if envelope(raw, length, have < length) then
    return false
  end
  -- The rest of the conversation is Cistern's, too, damaged datagrams included.
  pinfo.conversation = cistern
  cistern.dissector(buffer, pinfo, root)
  return true
end

cistern:register_heuristic("udp", heuristic)

local table_of_ports = DissectorTable.get("udp.port")
local ports

local function choose_ports()
  if ports ~= cistern.prefs.ports then
    if ports and ports ~= "" then
      table_of_ports:remove(ports, cistern)
    end
    ports = cistern.prefs.ports
    if ports ~= "" then
      table_of_ports:add(ports, cistern)
    end
  end
end

cistern.prefs_changed = choose_ports
choose_ports()
