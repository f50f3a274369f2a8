-- Move submitted → working; a task that is past that only gets its time of start.
-- KEYS  a scope's and a task's (shared_scope)
-- ARGV  3 owner, 4 epoch
-- Returns the record, or nil where the task is gone, ended or not the claimant's.

local status = held(ARGV[3], ARGV[4])
if not status then return false end
local now = millis()
if status == 'submitted' then move(status, 'working', now) end
redis.call('HSETNX', RECORD, 'started', whole(now))
keep_running(now)
ring()
return pack_record(RECORD)
