-- KEYS[1] the record. Gives it, and has it replicated.
local key = KEYS[1]
local old = redis.call('GET', key)
if old then
  WRITE_UNCHANGED
end
return old
