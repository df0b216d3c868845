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
