-- KEYS[1] the record. ARGV: owner and fence, lease in microseconds. Gives 1 held, 0 lost, -1 no record of ours.
local old = redis.call('GET', KEYS[1])
if not old then return 0 end
local version, state = string.byte(old, 1, 2)
if (version ~= 1 and version ~= 2) or #old < 80 then return -1 end
if state ~= 73 or string.sub(old, 5, 28) ~= ARGV[1] then return 0 end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local ttl, _, ends = struct.unpack('>I8I8I8', old, 57)
if ends ~= 0 and ends <= now then return 0 end
local lease = now + ARGV[2]
local expires = string.byte(old, 4) % 4 >= 2 and 0 or lease + ttl
local new = string.sub(old, 1, 32) .. struct.pack('>I8', lease) .. string.sub(old, 41, 72)
  .. struct.pack('>I8', expires) .. string.sub(old, 81)
if expires == 0 then
  redis.call('SET', KEYS[1], new)
elseif expires <= now then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], new, 'PXAT', math.max(math.ceil(expires / 1000), math.floor(now / 1000) + 2) - 1)
end
return 1
