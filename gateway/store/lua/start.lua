-- Move submitted → working; a task that is past that only gets its time of start. A request that was kept
-- for this alone is let go of.
-- KEYS  a scope's and a task's (shared_scope)
-- ARGV  3 owner, 4 epoch
-- Returns the record, or nil where the task is gone, ended or not the claimant's.

local status = held(ARGV[3], ARGV[4])
if not status then return false end
local now = millis()
if status == 'submitted' then move(status, 'working', now) end
-- What was said of its waiting is over; a call that is made again keeps what it has said itself.
if redis.call('HSETNX', RECORD, 'started', whole(now)) == 1 then redis.call('HDEL', RECORD, 'words') end
redis.call('HINCRBY', RECORD, 'starts', 1)
if redis.call('HGET', RECORD, 'kept') ~= '1' then redis.call('HDEL', RECORD, 'request') end
keep_running(now)
ring()
return pack_record(RECORD)
