-- KEYS[1] the record. ARGV: new state and kind of result, result; or '' and '' to release it.
-- Gives 1 resolved, 0 absent, the state where it is not in doubt, -1 no record of ours.
local old = redis.call('GET', KEYS[1])
if not old then return 0 end
local version, state = string.byte(old, 1, 2)
if (version ~= 1 and version ~= 2) or #old < 80 then return -1 end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local ttl, _, ends = struct.unpack('>I8I8I8', old, 57)
if ends ~= 0 and ends <= now then return 0 end
if state ~= 68 then return state end
local expires = now + ttl
if expires <= now then
  redis.call('DEL', KEYS[1])
  return 1
end
-- The owner goes too: the worker in doubt must not take this for its own.
local owner, new = string.rep('\0', 16), nil
if ARGV[1] == '' then
  new = string.sub(old, 1, 1) .. 'R' .. string.sub(old, 3, 4) .. owner .. string.sub(old, 21, 40) .. '\0\0\0\0\0\0\0\0'
    .. string.sub(old, 49, 72) .. struct.pack('>I8', expires) .. string.sub(old, 81)
else
  new = '\1' .. ARGV[1] .. string.sub(old, 4, 4) .. owner .. string.sub(old, 21, 64)
    .. struct.pack('>I8I8', now, expires) .. string.sub(old, 81, math.floor(string.byte(old, 4) / 4) % 2 == 1 and 112 or 80) .. ARGV[2]
end
redis.call('SET', KEYS[1], new, 'PXAT', math.max(math.ceil(expires / 1000), math.floor(now / 1000) + 2) - 1)
return 1
