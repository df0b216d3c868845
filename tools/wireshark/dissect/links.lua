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
