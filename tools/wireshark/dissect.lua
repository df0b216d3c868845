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
  local handshake = kind.lane == "Handshake" or kind.name == "WELCOME"
  local placed = handshake == header.sessionless or kind.name == "PADDING"
  return placed and (kind.direction == "both" or (kind.direction == "server") == header.from_server)
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
