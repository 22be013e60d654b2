-- A write that changes nothing and takes no memory, so that `WAIT` has a write to wait for.
local expires = redis.call('PEXPIRETIME', key)
redis.call('PEXPIREAT', key, expires < 0 and FAR_AWAY or expires)
if expires < 0 then redis.call('PERSIST', key) end
