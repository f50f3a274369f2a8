-- Take leases that have ended, for one replica to look at: each is put off, so that no other replica takes
-- it too, and the replica gets a lease of its own beside it before it owns anything.
-- KEYS  1 leases
-- ARGV  1 how long, in ms, 2 how many at most, 3 the replica, as leases spell it
-- Returns the leases.

local now = millis()
local at = whole(now + tonumber(ARGV[1]))
local over = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', whole(now), 'LIMIT', 0, ARGV[2])
for _, lease in ipairs(over) do
  redis.call('ZADD', KEYS[1], at, lease)
  redis.call('ZADD', KEYS[1], at, ARGV[3] .. string.sub(lease, (string.find(lease, ':', 1, true))))
end
return over
