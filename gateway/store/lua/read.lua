-- Read a record.
-- KEYS  1 record
-- Returns the record, or nil.

return pack_record(KEYS[1])
