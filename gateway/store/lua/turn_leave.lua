-- Give turns back, or leave the queue; who waits next gets its turn.
-- KEYS  a line's (shared_turns)
-- ARGV  6… two for each: ticket; how long it had its turn, in ms, or ''
-- Returns nothing.

bury(millis())
for i = 6, #ARGV, 2 do
  local who = REPLICA .. ':' .. ARGV[i]
  leave_queue(who)
  local took = tonumber(ARGV[i + 1])
  if give_back(who) and took then
    local mean = tonumber(redis.call('HGET', NUMBERS, 'mean') or '-1')
    if mean >= 0 then took = mean * 0.8 + took * 0.2 end
    redis.call('HSET', NUMBERS, 'mean', whole(took))
  end
end
pass_on()
keep()
return false
