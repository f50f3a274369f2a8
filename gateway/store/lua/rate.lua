-- Count hits in a window that began with its first one.
-- KEYS  1 the counter
-- ARGV  1 how many hits, 2 the length of the window, in ms
-- Returns {hits in this window, what is left of it in ms}.

local count = redis.call('INCRBY', KEYS[1], ARGV[1])
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
  left = tonumber(ARGV[2])
  redis.call('PEXPIRE', KEYS[1], left)
end
return {count, left}
