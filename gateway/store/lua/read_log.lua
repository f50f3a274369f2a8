-- Read a task's log.
-- KEYS  1 log
-- ARGV  1 first offset as XRANGE takes it, 2 how many entries at most
-- Returns offset, message, offset, message, … packed.

local values = {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])) do
  values[#values + 1] = entry[1]
  values[#values + 1] = entry[2][2]
end
return pack(values, #values)
