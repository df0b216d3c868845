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
