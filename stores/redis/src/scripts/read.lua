-- KEYS[1]: the record. Returns the record, and replicates it.
local key = KEYS[1]
local old = redis.call('GET', key)
if old then
  WRITE_UNCHANGED
end
return old
