-- List a scope's tasks in the order of creation.
-- KEYS  a scope's (shared_scope)
-- ARGV  1 place to go on after, or '-inf', 2 how many at most
-- Returns digest, place, digest, place, …; one more than asked for tells that there is more.

sweep(millis())
local from = ARGV[1] == '-inf' and ARGV[1] or '(' .. ARGV[1]
local found = redis.call('ZRANGEBYSCORE', INDEX, from, '+inf', 'WITHSCORES', 'LIMIT', 0, tonumber(ARGV[2]) + 1)
for i = 2, #found, 2 do found[i] = whole(tonumber(found[i])) end
return found
