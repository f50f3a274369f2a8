-- Take a pending request out; back to working when it was the last.
-- KEYS  a scope's and a task's (shared_scope)
-- ARGV  3 relay id
-- Returns {record, pending request}, or nil where there is none, or the task is gone or ended.

local status = redis.call('HGET', RECORD, 'status')
if not status or ended(status) then return false end
local pending = redis.call('HGET', RECORD, 'p:' .. ARGV[3])
if not pending then return false end
redis.call('HDEL', RECORD, 'p:' .. ARGV[3])
if redis.call('HINCRBY', RECORD, 'waiting', -1) <= 0 then move(status, 'working', millis()) end
ring()
return {pack_record(RECORD), pending}
