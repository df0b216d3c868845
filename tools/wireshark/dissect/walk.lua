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
