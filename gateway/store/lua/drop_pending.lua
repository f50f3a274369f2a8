-- Drop the pending request of an upstream's id, if it is still there; back to working when it was the last.
-- KEYS  a scope's and a task's (shared_scope)
-- ARGV  3 owner, 4 epoch, 5 the upstream's id
-- Returns the record, or nil where the task is gone, ended or not the claimant's.

local status = held(ARGV[3], ARGV[4])
if not status then return false end
local fields = redis.call('HGETALL', RECORD)
for i = 1, #fields, 2 do
  if string.sub(fields[i], 1, 2) == 'p:' then
    local _, head, length = string.find(fields[i + 1], '^%d+:(%d+):')
    if string.sub(fields[i + 1], head + 1, head + tonumber(length)) == ARGV[5] then
      redis.call('HDEL', RECORD, fields[i], 'w:' .. string.sub(fields[i], 3))
      if redis.call('HINCRBY', RECORD, 'waiting', -1) <= 0 then move(status, 'working', millis()) end
      ring()
    end
  end
end
return pack_record(RECORD)
