-- Own a link no more.
-- KEYS  1 owner of a link
-- ARGV  1 the replica that owned it
-- Returns how many were given up.

if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
