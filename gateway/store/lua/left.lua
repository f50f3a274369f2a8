-- Read what the replica that ran a task left for the one that takes it up.
-- KEYS  a scope's and a task's (shared_scope)
-- ARGV  3 owner, 4 epoch
-- Returns course, request, place (each may be ''), number of starts, and relay id, answer, … that were not
-- delivered; nil where the task is gone, ended or not the claimant's.

if not held(ARGV[3], ARGV[4]) then return false end
local found = redis.call('HMGET', RECORD, 'course', 'request', 'place', 'starts')
local left = {found[1] or '', found[2] or '', found[3] or '', found[4] or '0'}
for _, field in ipairs(redis.call('HKEYS', RECORD)) do
  if string.sub(field, 1, 2) == 'a:' then
    left[#left + 1] = string.sub(field, 3)
    left[#left + 1] = redis.call('HGET', RECORD, field)
  end
end
return left
