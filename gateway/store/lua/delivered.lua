-- Let go of an answer that has reached the upstream.
-- KEYS  a scope's and a task's (shared_scope)
-- ARGV  3 owner, 4 epoch, 5 relay id
-- Returns 1, or nil where the task is gone, ended or not the claimant's.

if not held(ARGV[3], ARGV[4]) then return false end
redis.call('HDEL', RECORD, 'a:' .. ARGV[5])
return 1
