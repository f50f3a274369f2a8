-- Write leases.
-- KEYS  1 leases
-- ARGV  1 how long, in ms, 2 'NX' to leave leases alone that are there, else '', 3… leases
-- Returns how many were new.

-- Full memory refuses only a script's first write; this one changes nothing, so that leases are kept.
redis.call('ZREM', KEYS[1], '')
local at, new = whole(millis() + tonumber(ARGV[1])), 0
for i = 3, #ARGV do
  if ARGV[2] == 'NX' then
    new = new + redis.call('ZADD', KEYS[1], 'NX', at, ARGV[i])
  else
    new = new + redis.call('ZADD', KEYS[1], at, ARGV[i])
  end
end
return new
