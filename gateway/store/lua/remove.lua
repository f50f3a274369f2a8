-- Delete everything about a task.
-- KEYS  a scope's and a task's (shared_scope)
-- Returns the record as it was, or nil where there was none.

local packed = pack_record(RECORD)
redis.call('DEL', RECORD, OUTCOME, LOG)
forget(DIGEST)
sweep(millis())
if packed then ring() end
return packed
