-- Find the task that a request made.
-- KEYS  1 expiries, 2 request map
-- ARGV  1 field of the request
-- Returns the task id, or nil.

local made = redis.call('HGET', KEYS[2], ARGV[1])
if not made then return false end
local score = redis.call('ZSCORE', KEYS[1], string.sub(made, 1, 32))
if not score or tonumber(score) <= millis() then return false end
return string.sub(made, 33)
