-- Tell the time.
-- KEYS  1 any key, for a cluster to know whom to ask
-- Returns milliseconds since the epoch.

return millis()
