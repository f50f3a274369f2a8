-- Store a new task, unless the scope has one of that id or as many as it may.
-- KEYS  a scope's and a task's (shared_scope)
-- ARGV  3 owner, 4 what is known of it (msgpack), 5 keep-alive ms or '', 6 time limit ms, 7 first status,
--       8 field of its request, 9 task id, 10 bound of active tasks, 11 bound of stored tasks,
--       12 what the keep-alive is counted from, 'end' or 'creation', 13 course or '', 14 request or '',
--       15 '1' where the request is kept when the call has started
-- Returns the record; '=' where it exists; '<active' or '<stored' where a bound is met.

-- Full memory refuses only the first write of a script: this one changes nothing, but can be refused.
redis.call('SETRANGE', OUTCOME, 0, '')
local now_us = micros()
local now = math.floor(now_us / 1000)
sweep(now)
if redis.call('EXISTS', RECORD) == 1 then return '=' end
if redis.call('SCARD', ACTIVE) >= tonumber(ARGV[10]) then return '<active' end
-- To count those that live takes long in a small set, which is a list; how many there are is known.
if redis.call('ZCARD', EXPIRIES) >= tonumber(ARGV[11])
  and redis.call('ZCOUNT', EXPIRIES, '(' .. whole(now), '+inf') >= tonumber(ARGV[11]) then return '<stored' end

-- What an eviction left of a task of that id: all but the request is written anew below.
if redis.call('HEXISTS', REQUESTS, DIGEST) == 1 then forget(DIGEST) end
redis.call('DEL', OUTCOME, LOG)
redis.call('HSET', RECORD, 'version', '1', 'made', ARGV[4], 'keep_alive', ARGV[5], 'timeout', ARGV[6],
           'status', ARGV[7], 'created', whole(now), 'updated', whole(now), 'owner', ARGV[3], 'epoch', '1',
           'kept_from', ARGV[12])
if ARGV[13] ~= '' then redis.call('HSET', RECORD, 'course', ARGV[13]) end
if ARGV[14] ~= '' then redis.call('HSET', RECORD, 'request', ARGV[14], 'kept', ARGV[15]) end
-- The place in the index grows even if the clock does not, so that a cursor never skips a later task.
local last = redis.call('ZREVRANGE', INDEX, 0, 0, 'WITHSCORES')
local place = now_us
if last[2] and tonumber(last[2]) >= place then place = tonumber(last[2]) + 1 end
redis.call('ZADD', INDEX, whole(place), DIGEST)
redis.call('SADD', ACTIVE, DIGEST)
redis.call('HSET', REQUESTS, DIGEST, ARGV[8], ARGV[8], DIGEST .. ARGV[9])
keep_running(now, true)
return pack_record(RECORD)
