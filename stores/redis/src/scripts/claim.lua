-- KEYS[1]: the record. ARGV: the first 20 bytes of a first grant (version, state, no result, flags, owner),
-- lease, ttl (both in microseconds). Then follow arguments that have defaults; trailing defaults are left
-- out: fingerprint or '', '1' if the claim has a `recover`, the most attempts (0 for no limit), '1' if a
-- `WAIT` follows (see `unchanged.lua`). Returns the time of a first grant; or the old record, if the answer
-- does not depend on the time; or {old record, time}. From these the client computes the answer, by the
-- protocol's own function.
local key, head = KEYS[1], ARGV[1]
local old, policy, recovers = redis.call('GET', key), string.byte(head, FLAGS_FROM) % FLAG_FINGERPRINT, ARGV[5] == '1'
local settles = recovers and policy == FLAG_IN_DOUBT
if old then
  local version, state = string.byte(old, VERSION_FROM, STATE_TO)
  local decided = state ~= IN_FLIGHT and state ~= RELEASED and (state ~= IN_DOUBT or not settles)
  if version ~= THIS_VERSION or #old < HEADER or decided then
    if ARGV[7] == '1' then
      WRITE_UNCHANGED
    end
    return old
  end
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local lease, ttl, asked = now + ARGV[2], ARGV[3] + 0, ARGV[4] or ''

-- The usual case comes first, and does only what it needs. It formats the expiry as text. Otherwise the
-- server would write the number with seventeen digits, which takes a third of the time of a SET. Redis drops
-- a key in the millisecond after `PXAT`, or at once if that time is not in the future.
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

local owner = string.sub(head, OWNER_FROM)
local function grant(fence, attempt, created, recovered, print, steps)
  local expires = policy == 0 and lease + ttl or 0
  local new = struct.pack('>BBBBc16I8I4I8I8I8I8I8I8', THIS_VERSION, IN_FLIGHT, KIND_NONE, recovered + policy + (print == '' and 0 or FLAG_FINGERPRINT),
    owner, fence, attempt, lease, now, created, ttl, 0, expires) .. print .. steps
  if expires == 0 then redis.call('SET', key, new) else put(new, expires) end
end

if not old then
  grant(now, 1, now, 0, asked, '')
  return now
end
local fence, attempt, lease_until, retry_at, created, _, _, ends = struct.unpack('>I8I4I8I8I8I8I8I8', old, FENCE_FROM)
fence = math.max(fence + 1, now)
if ends ~= 0 and ends <= now then
  grant(fence, 1, now, 0, asked, '')
  return {old, now}
end
local state, flags = string.byte(old, STATE_FROM), string.byte(old, FLAGS_FROM)
local rest = flags % (2 * FLAG_FINGERPRINT) >= FLAG_FINGERPRINT and BEHIND_FINGERPRINT or BEHIND_HEADER
local print, steps = string.sub(old, BEHIND_HEADER, rest - 1), string.sub(old, rest)
if print ~= '' and asked ~= '' and print ~= asked then return {old, now} end
if string.sub(old, OWNER_FROM, OWNER_TO) == owner then
  if state == IN_FLIGHT and ARGV[7] == '1' then
    WRITE_UNCHANGED
  end
  return {old, now}
end
if state ~= RELEASED and now < lease_until then return {old, now} end
local most = tonumber(ARGV[6] or 0)
local over = most > 0 and attempt >= most
-- Whether the last run of the body began and did not end.
local open = state ~= RELEASED or flags % FLAG_IN_DOUBT == FLAG_RECOVERED
if state == RELEASED and now < retry_at and (open or not over) then return {old, now} end
if open and (policy == FLAG_IN_DOUBT or flags % FLAG_FINGERPRINT >= FLAG_IN_DOUBT) and not settles then
  redis.call('SET', key, string.sub(old, VERSION_FROM, VERSION_TO) .. AS_IN_DOUBT .. string.sub(old, KIND_FROM, ATTEMPT_TO)
    .. struct.pack('>I8', math.min(lease_until, now)) .. string.sub(old, RETRY_AT_FROM, COMPLETED_AT_TO) .. '\0\0\0\0\0\0\0\0' .. print .. steps)
  return {old, now}
end
if over and not (open and recovers) then
  put(string.sub(old, VERSION_FROM, VERSION_TO) .. AS_FAILED .. AS_KIND_EXHAUSTED .. string.sub(old, FLAGS_FROM, FLAGS_TO)
    .. string.rep('\0', 16) .. string.sub(old, FENCE_FROM, CREATED_AT_TO)
    .. struct.pack('>I8I8I8', ttl, now, now + ttl) .. print .. steps, now + ttl)
  return {old, now}
end
if not over or attempt == most then attempt = math.min(attempt + 1, 4294967295) end
grant(fence, attempt, created, open and FLAG_RECOVERED or 0, asked == '' and print or asked, steps)
return {old, now}
