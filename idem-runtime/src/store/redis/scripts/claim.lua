-- KEYS[1] the record. ARGV: the first 20 bytes of a first grant (version, state, no result, flags, owner), lease and
-- ttl in microseconds, and, up to the last that is not as usual: fingerprint or '', '1' from one that settles a
-- doubt, most attempts (0 no limit), '1' to have what is answered replicated though nothing changes.
-- Gives the time of a first grant; the old record, where it needs no clock; or {old record, time}, from
-- which the client tells what this did.
local key, head = KEYS[1], ARGV[1]
local old = redis.call('GET', key)
if old then
  local version, state = string.byte(old, 1, 2)
  local settled = state ~= 73 and state ~= 82 and (state ~= 68 or ARGV[5] ~= '1')
  if (version ~= 1 and version ~= 2) or #old < 80 or settled then
    if ARGV[7] == '1' then redis.call('SET', key, old, 'KEEPTTL') end
    return old
  end
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local lease, ttl, policy, asked = now + ARGV[2], ARGV[3] + 0, string.byte(head, 4) % 4, ARGV[4] or ''

-- The usual case first, with nothing it does not need: a number that is not made text here the server writes with
-- seventeen digits, which takes it a third as long as the SET. Redis drops a key in the millisecond after `PXAT`,
-- and at once if that is not ahead.
local ahead = now / 1000 + 1
if not old and policy == 0 then
  local expires = lease + ttl
  if expires > now then
    local at = (expires - 1) / 1000
    if at < ahead then at = ahead end
    redis.call('SET', key, struct.pack('>c20I8I4I8I8I8I8I8I8', head, now, 1, lease, now, now, ttl, 0, expires) .. asked,
      'PXAT', string.format('%d', at))
  end
  return now
end

local function put(new, expires)
  if expires <= now then return redis.call('DEL', key) end
  redis.call('SET', key, new, 'PXAT', string.format('%d', math.max((expires - 1) / 1000, ahead)))
end

local owner = string.sub(head, 5)
local function grant(fence, attempt, created, recovered, print, steps)
  local expires = policy == 0 and lease + ttl or 0
  local new = struct.pack('>BBBBc16I8I4I8I8I8I8I8I8', steps == '' and 1 or 2, 73, 0, recovered + policy + (print == '' and 0 or 4),
    owner, fence, attempt, lease, now, created, ttl, 0, expires) .. print .. steps
  if expires == 0 then redis.call('SET', key, new) else put(new, expires) end
end

if not old then
  grant(now, 1, now, 0, asked, '')
  return now
end
local fence, attempt, lease_until, retry_at, created, _, _, ends = struct.unpack('>I8I4I8I8I8I8I8I8', old, 21)
fence = math.max(fence + 1, now)
if ends ~= 0 and ends <= now then
  grant(fence, 1, now, 0, asked, '')
  return {old, now}
end
local state, flags = string.byte(old, 2), string.byte(old, 4)
local rest = flags % 8 >= 4 and 113 or 81
local print, steps = string.sub(old, 81, rest - 1), string.sub(old, rest)
if print ~= '' and asked ~= '' and print ~= asked then return {old, now} end
local most = tonumber(ARGV[6] or 0)
local over, mine = most > 0 and attempt >= most, string.sub(old, 5, 20) == owner
local recovered = state == 82 and 0 or 1
if state == 68 and (mine or over) then return {old, now} end
if state == 73 then
  if mine then
    if ARGV[7] == '1' then redis.call('SET', key, old, 'KEEPTTL') end
    return {old, now}
  end
  if now < lease_until then return {old, now} end
  if (policy == 2 or flags % 4 >= 2) and (over or ARGV[5] ~= '1') then
    redis.call('SET', key, string.sub(old, 1, 1) .. 'D' .. string.sub(old, 3, 72) .. '\0\0\0\0\0\0\0\0'
      .. print .. steps)
    return {old, now}
  end
end
if over then
  put('\1F\4' .. string.sub(old, 4, 4) .. string.rep('\0', 16) .. string.sub(old, 21, 56)
    .. struct.pack('>I8I8I8', ttl, now, now + ttl) .. print, now + ttl)
  return {old, now}
end
if state == 82 and now < retry_at then return {old, now} end
grant(fence, math.min(attempt + 1, 4294967295), created, recovered, asked == '' and print or asked, steps)
return {old, now}
