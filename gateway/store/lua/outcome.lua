-- Read a record with its outcome.
-- KEYS  1 record, 2 outcome
-- Returns {record or nil, outcome or nil}.

return {pack_record(KEYS[1]), redis.call('GET', KEYS[2])}
