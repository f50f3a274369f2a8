-- Let one replica ask the client a pending request, for as long as it says so; or let go of that.
-- KEYS  a scope's and a task's (shared_scope)
-- ARGV  3 relay id, 4 replica, 5 who waits there or '', 6 lease (ms), 0 to let go
-- Returns 0 where it is the replica's, else for how long (ms) it is another's yet; nil where it does not wait.
-- One that waited elsewhere and is here now has the request with it.

local field, name, waiter = 'w:' .. ARGV[3], ARGV[4], ARGV[5]
if redis.call('HEXISTS', RECORD, 'p:' .. ARGV[3]) == 0 then return false end
local now, lease, said = millis(), tonumber(ARGV[6]), redis.call('HGET', RECORD, field)
local mine = not said
if said then
  local till, length, rest = string.match(said, '^(%d+):(%d+):(.*)$')
  local has, waits = string.sub(rest, 1, tonumber(length)), string.sub(rest, tonumber(length) + 1)
  mine = has == name
  local along = waiter ~= '' and waiter == waits
  if not mine and not along and tonumber(till) > now then return math.ceil(tonumber(till) - now) end
  if mine and waiter == '' then waiter = waits end
end
if lease > 0 then
  redis.call('HSET', RECORD, field, whole(now + lease) .. ':' .. #name .. ':' .. name .. waiter)
elseif said and mine then
  redis.call('HDEL', RECORD, field)
  ring()
end
return 0
