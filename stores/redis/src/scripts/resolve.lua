-- KEYS[1]: the record. ARGV: new state and kind of result, and the result; or '' and '' to release the key;
-- or 'forget' and ''. Then state, fence and attempt as the operator saw them, or ''.
-- Returns 1: resolved; 0: absent; the state, if it is not in doubt; minus the state, if the record has
-- changed; -1: the value is not a record of this version.
local old = redis.call('GET', KEYS[1])
if not old then return 0 end
local version, state = string.byte(old, VERSION_FROM, STATE_TO)
if version ~= THIS_VERSION or #old < HEADER then return -1 end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local ttl, _, ends = struct.unpack('>I8I8I8', old, TTL_FROM)
if ends ~= 0 and ends <= now then return 0 end
if ARGV[3] ~= '' and ARGV[3] ~= string.char(state) .. string.sub(old, FENCE_FROM, ATTEMPT_TO) then return -state end
if ARGV[1] == 'forget' then
  redis.call('DEL', KEYS[1])
  return 1
end
if state ~= IN_DOUBT then return state end
local expires = now + ttl
if expires <= now then
  redis.call('DEL', KEYS[1])
  return 1
end
-- Removes the owner, too: the worker whose claim was in doubt must not take this record for its own.
local owner, new = string.rep('\0', 16), nil
if ARGV[1] == '' then
  local flags = string.byte(old, FLAGS_FROM)
  new = string.sub(old, VERSION_FROM, VERSION_TO) .. AS_RELEASED .. string.sub(old, KIND_FROM, KIND_TO) .. string.char(flags - flags % FLAG_IN_DOUBT) .. owner .. string.sub(old, FENCE_FROM, LEASE_UNTIL_TO) .. '\0\0\0\0\0\0\0\0'
    .. string.sub(old, CREATED_AT_FROM, COMPLETED_AT_TO) .. struct.pack('>I8', expires) .. string.sub(old, BEHIND_HEADER)
else
  new = AS_THIS_VERSION .. ARGV[1] .. string.sub(old, FLAGS_FROM, FLAGS_TO) .. owner .. string.sub(old, FENCE_FROM, TTL_TO)
    .. struct.pack('>I8I8', now, expires) .. string.sub(old, BEHIND_HEADER, string.byte(old, FLAGS_FROM) % (2 * FLAG_FINGERPRINT) >= FLAG_FINGERPRINT and FINGERPRINT_TO or EXPIRES_AT_TO) .. ARGV[2]
end
redis.call('SET', KEYS[1], new, 'PXAT', math.max(math.ceil(expires / 1000), math.floor(now / 1000) + 2) - 1)
return 1
