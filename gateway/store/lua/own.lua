-- Own a link, or hear who does.
-- KEYS  1 owner of a link
-- ARGV  1 the replica that asks, 2 how long, in ms, 3 a replica that is gone and owns nothing more, else ''
-- Returns the owner.

local owner = redis.call('GET', KEYS[1])
if not owner or owner == ARGV[1] or owner == ARGV[3] then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return ARGV[1]
end
return owner
