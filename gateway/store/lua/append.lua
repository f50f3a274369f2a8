-- Append a message to the task's log; the oldest goes when it is full.
-- KEYS  a scope's and a task's (shared_scope)
-- ARGV  3 owner, 4 epoch, 5 message, 6 how many messages the log holds, 7 place in the upstream's stream or ''
-- Returns the offset, or nil where the task is gone, ended or not the claimant's.

if not held(ARGV[3], ARGV[4]) then return false end
if ARGV[7] ~= '' then redis.call('HSET', RECORD, 'place', ARGV[7]) end
local offset = redis.call('XADD', LOG, 'MAXLEN', ARGV[6], '*', 'm', ARGV[5])
if redis.call('XLEN', LOG) == 1 then
  -- The record knows how long it lives even where the scope's own keys have been evicted.
  local left = redis.call('PTTL', RECORD)
  if left > 0 then redis.call('PEXPIRE', LOG, left) end
end
ring()
return offset
