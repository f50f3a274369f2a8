-- Hold on to a task though its lease may have ended: nobody takes it over for so long.
-- KEYS  a scope's and a task's (shared_scope)
-- ARGV  3 owner, 4 epoch, 5 how long, in ms
-- Returns the record, or nil where the task is gone, ended or not the claimant's.

if not held(ARGV[3], ARGV[4]) then return false end
redis.call('HSET', RECORD, 'held_until', whole(millis() + tonumber(ARGV[5])))
return pack_record(RECORD)
