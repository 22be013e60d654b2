-- KEYS[1]: the record. ARGV: owner and fence, the first 3 bytes of the new record (version, state, kind of
-- result), ttl in microseconds, result, '1' if a `WAIT` follows (see `unchanged.lua`). Returns 1: done; 0:
-- lost; -1: the value is not a record of this version.
local key = KEYS[1]
local old = redis.call('GET', key)
if not old then return 0 end
if #old < HEADER then return -1 end
local version, state, _, flags, holder, attempt, _, ends = struct.unpack('>BBBBc24c28c16I8', old)
if version ~= THIS_VERSION then return -1 end
if holder ~= ARGV[1] then return 0 end
if state ~= IN_FLIGHT and state ~= IN_DOUBT then
  if ARGV[5] == '1' then
    WRITE_UNCHANGED
  end
  return (state == COMPLETED or state == FAILED) and 1 or 0
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
if ends ~= 0 and ends <= now then return 0 end
local ttl = ARGV[3] + 0
local expires = now + ttl
if expires <= now then
  redis.call('DEL', key)
  return 1
end
local at, ahead = (expires - 1) / 1000, now / 1000 + 1
if at < ahead then at = ahead end
-- `claim.lua` says why the number is formatted as text.
redis.call('SET', key, struct.pack('>c3Bc24c28I8I8I8', ARGV[2], flags, holder, attempt, ttl, now, expires)
  .. (flags % (2 * FLAG_FINGERPRINT) >= FLAG_FINGERPRINT and string.sub(old, BEHIND_HEADER, FINGERPRINT_TO) or '') .. ARGV[4], 'PXAT', string.format('%d', at))
return 1
