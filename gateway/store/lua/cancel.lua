-- Move to cancelled, whoever runs the task.
-- KEYS  a scope's and a task's (shared_scope)
-- ARGV  3 outcome (msgpack), 4 words
-- Returns the record; nil where the task is gone; '!' and the status where it has ended.

local status = redis.call('HGET', RECORD, 'status')
if not status then return false end
local now = millis()
if not move(status, 'cancelled', now) then return '!' .. status end
redis.call('HSET', RECORD, 'error', ARGV[4], 'words', ARGV[4])
redis.call('SET', OUTCOME, ARGV[3])
return settle(now)
