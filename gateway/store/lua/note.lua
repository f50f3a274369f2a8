-- Set the status message.
-- KEYS  a scope's and a task's (shared_scope)
-- ARGV  3 owner, 4 epoch, 5 words
-- Returns 1, or nil where the task is gone, ended or not the claimant's.

if not held(ARGV[3], ARGV[4]) then return false end
redis.call('HSET', RECORD, 'words', ARGV[5], 'updated', whole(millis()))
ring()
return 1
