-- Note how far the upstream's stream was heard.
-- KEYS  a scope's and a task's (shared_scope)
-- ARGV  3 owner, 4 epoch, 5 place, 6 a new course or ''
-- Returns 1, or nil where the task is gone, ended or not the claimant's.

if not held(ARGV[3], ARGV[4]) then return false end
redis.call('HSET', RECORD, 'place', ARGV[5])
if ARGV[6] ~= '' then redis.call('HSET', RECORD, 'course', ARGV[6]) end
return 1
