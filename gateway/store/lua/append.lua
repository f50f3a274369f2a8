-- Append a message to the task's log; the oldest goes when it is full.
-- KEYS  a scope's and a task's (shared_scope)
-- ARGV  3 owner, 4 epoch, 5 message, 6 how many messages the log holds
-- Returns the offset, or nil where the task is gone, ended or not the claimant's.

if not held(ARGV[3], ARGV[4]) then return false end
local offset = redis.call('XADD', LOG, 'MAXLEN', ARGV[6], '*', 'm', ARGV[5])
if redis.call('XLEN', LOG) == 1 then
  local at = redis.call('ZSCORE', EXPIRIES, DIGEST)
  if at then redis.call('PEXPIREAT', LOG, whole(tonumber(at))) end
end
ring()
return offset
