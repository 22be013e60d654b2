-- KEYS[1] the record. ARGV: owner, fingerprint or '', lease and ttl in microseconds,
-- policy ('1' in doubt), most attempts ('0' no limit).
-- Gives the time of a first grant; the old record, where it needs no clock; or {old record, time}, from
-- which the client tells what this did.
local key = KEYS[1]
local old = redis.call('GET', key)
local version, state
if old then
  version, state = string.byte(old, 1, 2)
  if version ~= 1 or #old < 80 or (state ~= 73 and state ~= 82) then return old end
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local policy = ARGV[5] == '1' and 2 or 0
local fence, attempt, created, recovered, print = now, 0, now, 0, ARGV[2]
if old then
  local flags = string.byte(old, 4)
  local fence_of_old, attempts, lease_until, retry_at, created_at = struct.unpack('>I8I4I8I8I8', old, 21)
  local ends = struct.unpack('>I8', old, 73)
  fence = math.max(fence_of_old + 1, now)
  if ends == 0 or now < ends then
    local kept = string.sub(old, 81)
    if kept ~= '' and print ~= '' and kept ~= print then return {old, now} end
    if state == 73 then
      if string.sub(old, 5, 20) == ARGV[1] or now < lease_until then return {old, now} end
      if policy == 2 or flags % 4 >= 2 then
        redis.call('SET', key, '\1D' .. string.sub(old, 3, 72) .. '\0\0\0\0\0\0\0\0' .. kept)
        return {old, now}
      end
      recovered = 1
    end
    local most = tonumber(ARGV[6])
    if most > 0 and attempts >= most then
      local ttl = math.min(tonumber(ARGV[4]), 18446744073709549568)
      if ttl == 0 then
        redis.call('DEL', key)
        return {old, now}
      end
      local expires = math.min(now + ttl, 18446744073709549568)
      redis.call('SET', key, '\1F\4' .. string.sub(old, 4, 4) .. string.rep('\0', 16) .. string.sub(old, 21, 56)
        .. struct.pack('>I8I8I8', ttl, now, expires) .. kept, 'PXAT', math.max(math.ceil(expires / 1000), math.floor(now / 1000) + 2) - 1)
      return {old, now}
    end
    if state == 82 and now < retry_at then return {old, now} end
    attempt, created = attempts, created_at
    if print == '' then print = kept end
  end
end
local last = 18446744073709549568
local ttl = math.min(tonumber(ARGV[4]), last)
local lease_until = math.min(now + ARGV[3], last)
local expires = 0
if policy == 0 then
  if lease_until + ttl <= now then
    if old then redis.call('DEL', key) end
    return old and {old, now} or now
  end
  expires = math.min(lease_until + ttl, last)
end
local flags = recovered + policy + (print ~= '' and 4 or 0)
local new = struct.pack('>BBBBc16I8I4I8I8I8I8I8I8', 1, 73, 0, flags, ARGV[1], fence,
  math.min(attempt + 1, 4294967295), lease_until, now, created, ttl, 0, expires) .. print
if expires == 0 then
  redis.call('SET', key, new)
else
  redis.call('SET', key, new, 'PXAT', math.max(math.ceil(expires / 1000), math.floor(now / 1000) + 2) - 1)
end
return old and {old, now} or now
