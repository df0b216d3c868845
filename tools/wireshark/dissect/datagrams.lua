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
