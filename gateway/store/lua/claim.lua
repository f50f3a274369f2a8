-- Take over a task whose lease has ended: a new owner, the next epoch.
-- KEYS  a scope's and a task's (shared_scope)
-- ARGV  3 the owner whose lease it was, 4 the new one
-- Returns the record; '=' where the new one has it already, '+' where the old one has taken hold of it again;
-- nil where the task is gone, ended or a third's.

local record = redis.call('HMGET', RECORD, 'status', 'owner', 'held_until')
if not record[1] or ended(record[1]) then return false end
if record[2] ~= ARGV[3] then return record[2] == ARGV[4] and '=' end
local now = millis()
if record[3] and tonumber(record[3]) > now then return '+' end
redis.call('HSET', RECORD, 'owner', ARGV[4], 'updated', whole(now))
redis.call('HINCRBY', RECORD, 'epoch', 1)
keep_running(now)
ring()
return pack_record(RECORD)
