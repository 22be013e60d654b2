-- KEYS[1] the record. ARGV: owner and fence, position, the step, its length in front, '1' to have what is
-- answered replicated though nothing changes.
-- Gives 1 recorded, 0 lost, -1 no record of ours, -2 too large beside what is there.
local old = redis.call('GET', KEYS[1])
if not old then return 0 end
local version, state = string.byte(old, 1, 2)
if (version ~= 1 and version ~= 2) or #old < 80 then return -1 end
if state ~= 73 or string.sub(old, 5, 28) ~= ARGV[1] then return 0 end
local ends = struct.unpack('>I8', old, 73)
if ends ~= 0 then
  local clock = redis.call('TIME')
  if ends <= clock[1] * 1000000 + clock[2] then return 0 end
end
local position, step, at = tonumber(ARGV[2]), ARGV[3], math.floor(string.byte(old, 4) / 4) % 2 == 1 and 113 or 81
for _ = 1, position do
  if at > #old then return 0 end
  at = at + 4 + struct.unpack('>I4', old, at)
end
if at <= #old then
  if string.sub(old, at, at + #step - 1) ~= step then return 0 end
  if ARGV[4] == '1' then redis.call('SET', KEYS[1], old, 'KEEPTTL') end
  return 1
end
-- The longest string a server takes, unless it is told otherwise.
if #old + #step > 536870912 then return -2 end
if version == 1 then
  redis.call('SET', KEYS[1], '\2' .. string.sub(old, 2) .. step, 'KEEPTTL')
else
  redis.call('APPEND', KEYS[1], step)
end
return 1
