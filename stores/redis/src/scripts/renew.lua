-- KEYS[1]: the record. ARGV: owner and fence, lease in microseconds.
-- Returns 1: held; 2: held in doubt; 0: lost; -1: the value is not a record of this version.
local key = KEYS[1]
-- Steps may be large, so the script reads and writes only the first bytes of a large record.
local old = redis.call('GETRANGE', key, '0', 'LAST_OF_WINDOW')
if old == '' then return 0 end
local version, state = string.byte(old, VERSION_FROM, STATE_TO)
if version ~= THIS_VERSION or #old < HEADER then return -1 end
if (state ~= IN_FLIGHT and state ~= IN_DOUBT) or string.sub(old, OWNER_FROM, FENCE_TO) ~= ARGV[1] then return 0 end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local ttl, _, ends = struct.unpack('>I8I8I8', old, TTL_FROM)
if ends ~= 0 and ends <= now then return 0 end
local lease = now + ARGV[2]
local expires = (state == IN_DOUBT or string.byte(old, FLAGS_FROM) % FLAG_FINGERPRINT >= FLAG_IN_DOUBT) and 0 or lease + ttl
local fields = struct.pack('>I8', lease) .. string.sub(old, RETRY_AT_FROM, COMPLETED_AT_TO) .. struct.pack('>I8', expires)
local at = string.format('%d', math.max(math.ceil(expires / 1000), math.floor(now / 1000) + 2) - 1)
if expires ~= 0 and expires <= now then
  redis.call('DEL', key)
elseif #old == WINDOW then
  -- The order matters: a server without memory refuses the first command, and then nothing has changed.
  redis.call('SETRANGE', key, LEASE_UNTIL_FROM - 1, fields)
  -- A record that gets no expiry here had none before, either.
  if expires ~= 0 then redis.call('PEXPIREAT', key, at) end
else
  local new = string.sub(old, VERSION_FROM, ATTEMPT_TO) .. fields .. string.sub(old, BEHIND_HEADER)
  if expires == 0 then redis.call('SET', key, new) else redis.call('SET', key, new, 'PXAT', at) end
end
return state == IN_DOUBT and 2 or 1
