-- KEYS[1] the record. ARGV: owner and fence, new state and kind of result, ttl in microseconds, result, '1' to
-- have what is answered replicated though nothing changes.
-- Gives 1 done, 0 lost, -1 no record of ours.
local old = redis.call('GET', KEYS[1])
if not old then return 0 end
local version, state = string.byte(old, 1, 2)
if (version ~= 1 and version ~= 2) or #old < 80 then return -1 end
if string.sub(old, 5, 28) ~= ARGV[1] then return 0 end
if state ~= 73 then
  if ARGV[5] == '1' then redis.call('SET', KEYS[1], old, 'KEEPTTL') end
  return (state == 67 or state == 70) and 1 or 0
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local ends = struct.unpack('>I8', old, 73)
if ends ~= 0 and ends <= now then return 0 end
local expires = now + ARGV[3]
if expires <= now then
  redis.call('DEL', KEYS[1])
  return 1
end
redis.call('SET', KEYS[1], '\1' .. ARGV[2] .. string.sub(old, 4, 56) .. struct.pack('>I8I8I8', ARGV[3], now, expires)
  .. string.sub(old, 81, math.floor(string.byte(old, 4) / 4) % 2 == 1 and 112 or 80) .. ARGV[4], 'PXAT', math.max(math.ceil(expires / 1000), math.floor(now / 1000) + 2) - 1)
return 1
