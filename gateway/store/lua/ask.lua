-- Add a pending request and move to input_required.
-- KEYS  a scope's and a task's (shared_scope)
-- ARGV  3 owner, 4 epoch, 5 relay id, 6 the pending request, 7 place in the upstream's stream or ''
-- Returns the record, or nil where the task is gone, ended or not the claimant's.

local status = held(ARGV[3], ARGV[4])
if not status then return false end
if status ~= 'input_required' and not move(status, 'input_required', millis()) then return '!' .. status end
if ARGV[7] ~= '' then redis.call('HSET', RECORD, 'place', ARGV[7]) end
local order = redis.call('HINCRBY', RECORD, 'asked', 1)
if redis.call('HSET', RECORD, 'p:' .. ARGV[5], order .. ':' .. ARGV[6]) == 1 then
  redis.call('HINCRBY', RECORD, 'waiting', 1)
end
ring()
return pack_record(RECORD)
