-- Take a pending request out; back to working when it was the last. The answer stays until it was delivered.
-- KEYS  a scope's and a task's (shared_scope)
-- ARGV  3 relay id, 4 the answer or ''
-- Returns {record, pending request}, or nil where there is none, or the task is gone or ended.

local status = redis.call('HGET', RECORD, 'status')
if not status or ended(status) then return false end
local pending = redis.call('HGET', RECORD, 'p:' .. ARGV[3])
if not pending then return false end
redis.call('HDEL', RECORD, 'p:' .. ARGV[3], 'w:' .. ARGV[3])
if ARGV[4] ~= '' then
  local _, head, length = string.find(pending, '^%d+:(%d+):')
  local ident = string.sub(pending, head + 1, head + tonumber(length))
  redis.call('HSET', RECORD, 'a:' .. ARGV[3], length .. ':' .. ident .. ARGV[4])
end
if redis.call('HINCRBY', RECORD, 'waiting', -1) <= 0 then move(status, 'working', millis()) end
ring()
return {pack_record(RECORD), pending}
