-- KEYS[1]: the record. ARGV: owner and fence, cause (F: failed, A: abandoned, D: doubtful, U: unused, N:
-- unused, and an earlier run did nothing), pause in microseconds.
-- Returns 1: released; 2: in doubt; 0: lost; -1: the value is not a record of this version.
local key = KEYS[1]
-- Steps may be large, so the script reads and writes only the first bytes of a large record, except to remove
-- the fingerprint.
local old = redis.call('GETRANGE', key, '0', 'LAST_OF_WINDOW')
if old == '' then return 0 end
local version, state = string.byte(old, VERSION_FROM, STATE_TO)
if version ~= THIS_VERSION or #old < HEADER then return -1 end
if string.sub(old, OWNER_FROM, FENCE_TO) ~= ARGV[1] then return 0 end
local cause = ARGV[2]
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local fence, attempt, lease_until = struct.unpack('>I8I4I8', old, FENCE_FROM)
local ttl, _, ends = struct.unpack('>I8I8I8', old, TTL_FROM)
if ends ~= 0 and ends <= now then return 0 end
if state == RELEASED then return 1 end
if state ~= IN_FLIGHT and state ~= IN_DOUBT then return 0 end
local flags = string.byte(old, FLAGS_FROM)
local recovered, in_doubt = flags % FLAG_IN_DOUBT == FLAG_RECOVERED, flags % FLAG_FINGERPRINT >= FLAG_IN_DOUBT
local pause = tonumber(ARGV[3])
-- Writes a new header. The bytes after the header stay: the fingerprint (except after an unused first
-- attempt) and the steps.
local is_large, rest = #old == WINDOW, string.sub(old, BEHIND_HEADER)
local function put(header, expires)
  local at = string.format('%d', math.max(math.ceil(expires / 1000), math.floor(now / 1000) + 2) - 1)
  if is_large then
    -- The order matters: a server without memory refuses the first command, and then nothing has changed.
    redis.call('SETRANGE', key, 0, header)
    if expires == 0 then redis.call('PERSIST', key) else redis.call('PEXPIREAT', key, at) end
  elseif expires == 0 then
    redis.call('SET', key, header .. rest)
  else
    redis.call('SET', key, header .. rest, 'PXAT', at)
  end
end
if cause == 'N' then cause, recovered = 'U', false end
local started = cause ~= 'U' and not (cause == 'D' and recovered and state == IN_FLIGHT)
if not started then
  attempt = math.max(attempt - 1, 0)
  -- If `recovered`, an attempt of an earlier owner remains. The fence rises, so that the owner that gives the
  -- key back no longer holds the key.
  if recovered then fence = fence + 1 end
end
local first, doubtful = string.sub(old, VERSION_FROM, VERSION_TO), in_doubt or state == IN_DOUBT
if cause == 'D' or (cause == 'A' and doubtful) or (cause == 'U' and recovered and doubtful) then
  put(first .. AS_IN_DOUBT .. string.sub(old, KIND_FROM, OWNER_TO)
    .. struct.pack('>I8I4I8', fence, attempt, math.min(lease_until, now))
    .. string.sub(old, RETRY_AT_FROM, COMPLETED_AT_TO) .. '\0\0\0\0\0\0\0\0', 0)
  return cause == 'U' and 1 or 2
end
flags = flags - flags % FLAG_IN_DOUBT
if cause == 'A' or (cause == 'U' and recovered) then flags = flags + FLAG_RECOVERED end
if cause == 'U' then
  pause = 0
  if attempt == 0 and flags % (2 * FLAG_FINGERPRINT) >= FLAG_FINGERPRINT then
    flags, is_large, rest = flags - FLAG_FINGERPRINT, false, redis.call('GETRANGE', key, FINGERPRINT_TO, -1)
  end
end
-- Without a pause, `retry_at` is 0. So a retry may start by any clock, even by a clock that is set back.
local retry_at = pause == 0 and 0 or now + pause
local expires = math.max(now, retry_at) + ttl
if expires <= now then
  redis.call('DEL', key)
  return 1
end
put(first .. AS_RELEASED .. string.sub(old, KIND_FROM, KIND_TO) .. string.char(flags) .. string.sub(old, OWNER_FROM, OWNER_TO)
  .. struct.pack('>I8I4', fence, attempt) .. string.sub(old, LEASE_UNTIL_FROM, LEASE_UNTIL_TO) .. struct.pack('>I8', retry_at)
  .. string.sub(old, CREATED_AT_FROM, COMPLETED_AT_TO) .. struct.pack('>I8', expires), expires)
return 1
