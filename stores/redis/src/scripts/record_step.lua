-- KEYS[1]: the record. ARGV: owner and fence, position, the step after its length, '1' if a `WAIT` follows
-- (see `unchanged.lua`). Returns 1: recorded; 0: lost; -1: the value is not a record of this version; -2: the
-- record has no room for the step.
local key = KEYS[1]
-- Steps may be large. So after the first bytes, the script reads only the lengths of steps, and the step at
-- `position` if there is one.
local old = redis.call('GETRANGE', key, '0', 'LAST_OF_WINDOW')
if old == '' then return 0 end
local version, state = string.byte(old, VERSION_FROM, STATE_TO)
if version ~= THIS_VERSION or #old < HEADER then return -1 end
if (state ~= IN_FLIGHT and state ~= IN_DOUBT) or string.sub(old, OWNER_FROM, FENCE_TO) ~= ARGV[1] then return 0 end
local ends = struct.unpack('>I8', old, EXPIRES_AT_FROM)
if ends ~= 0 then
  local clock = redis.call('TIME')
  if ends <= clock[1] * 1000000 + clock[2] then return 0 end
end
local position, step, size = tonumber(ARGV[2]), ARGV[3], #old
if size == WINDOW then size = redis.call('STRLEN', key) end
local has_fingerprint = string.byte(old, FLAGS_FROM) % (2 * FLAG_FINGERPRINT) >= FLAG_FINGERPRINT
local at = has_fingerprint and BEHIND_FINGERPRINT or BEHIND_HEADER
for _ = 1, position do
  if at > size then return 0 end
  local length = at + 3 <= #old and string.sub(old, at, at + 3) or redis.call('GETRANGE', key, at - 1, at + 2)
  at = at + 4 + struct.unpack('>I4', length)
end
if at <= size then
  if redis.call('GETRANGE', key, at - 1, at + #step - 2) ~= step then return 0 end
  if ARGV[4] == '1' then
    WRITE_UNCHANGED
  end
  return 1
end
if size + #step > LARGEST then return -2 end
redis.call('APPEND', key, step)
return 1
