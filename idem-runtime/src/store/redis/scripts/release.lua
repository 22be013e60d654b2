-- KEYS[1] the record. ARGV: owner and fence, cause (F failed, A abandoned, D doubtful, U unused), pause in microseconds.
-- Gives 1 released, 2 in doubt, 0 lost, -1 no record of ours.
local old = redis.call('GET', KEYS[1])
if not old then return 0 end
local version, state = string.byte(old, 1, 2)
if (version ~= 1 and version ~= 2) or #old < 80 then return -1 end
if string.sub(old, 5, 28) ~= ARGV[1] then return 0 end
local cause = ARGV[2]
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local attempt = struct.unpack('>I4', old, 29)
local ttl, _, ends = struct.unpack('>I8I8I8', old, 57)
if ends ~= 0 and ends <= now then return 0 end
if state == 82 then return 1 end
if state == 68 then return (cause == 'A' or cause == 'D') and 2 or 0 end
if state ~= 73 then return 0 end
-- What follows the header stays: the fingerprint and the steps, and so does the version that says which.
local flags, first, rest = string.byte(old, 4), string.sub(old, 1, 1), string.sub(old, 81)
if cause == 'D' or (cause == 'A' and flags % 4 >= 2) then
  redis.call('SET', KEYS[1], first .. 'D' .. string.sub(old, 3, 72) .. '\0\0\0\0\0\0\0\0' .. rest)
  return 2
end
local pause = tonumber(ARGV[3])
local next_state, owner, lease = 'R', string.sub(old, 5, 20), string.sub(old, 33, 40)
if cause == 'U' then
  pause, attempt = 0, math.max(attempt - 1, 0)
  if flags % 2 == 1 then
    next_state, owner, lease = 'I', string.rep('\0', 16), struct.pack('>I8', now)
  end
end
-- Due at once is due by any clock, also one that is set back meanwhile.
local retry_at = pause == 0 and 0 or now + pause
local kept_from = math.max(now, retry_at)
local expires = kept_from + ttl
if expires <= now then
  redis.call('DEL', KEYS[1])
  return 1
end
redis.call('SET', KEYS[1], first .. next_state .. string.sub(old, 3, 4) .. owner .. string.sub(old, 21, 28)
  .. struct.pack('>I4', attempt) .. lease .. struct.pack('>I8', retry_at) .. string.sub(old, 49, 72)
  .. struct.pack('>I8', expires) .. rest, 'PXAT', math.max(math.ceil(expires / 1000), math.floor(now / 1000) + 2) - 1)
return 1
