-- Move to a terminal status with the outcome; the keep-alive begins.
-- KEYS  a scope's and a task's (shared_scope)
-- ARGV  3 owner, 4 epoch, 5 status, 6 outcome (msgpack), 7 error in words or '', 8 '1' for a result with isError
-- Returns the record; nil where the task is gone, ended or not the claimant's; '!' and the status where
-- the move is not legal.

local status = held(ARGV[3], ARGV[4])
if not status then return false end
local now = millis()
if not ended(ARGV[5]) or not move(status, ARGV[5], now) then return '!' .. status end
redis.call('HSET', RECORD, 'is_error', ARGV[8])
if ARGV[7] ~= '' then redis.call('HSET', RECORD, 'error', ARGV[7]) end
redis.call('SET', OUTCOME, ARGV[6])
return settle(now)
