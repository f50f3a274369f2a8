-- Ask for turns, say which are used, and hear which have been given.
-- KEYS  a line's (shared_turns)
-- ARGV  6 how many may wait or '', 7 'all' where the replica names all that it has: what it does not name is
--       let go of; 'some' where it has more; 8… three for each: 'w' it waits, 'h' it has its turn, 'k' it
--       is known; scope; ticket
-- Returns nil for a replica that names some and is not known; else how many wait, the mean time of a turn in ms or -1, and for each: -1 has its turn, -2 may not even
-- wait, else how many are about to go before it (where it asks alone, else 0).

local now = millis()
local bound = tonumber(ARGV[6])
bury(now)
if ARGV[7] == 'some' and not redis.call('ZSCORE', REPLICAS, REPLICA) then return false end
redis.call('ZADD', REPLICAS, whole(now + tonumber(ARGV[3])), REPLICA)

for i = 8, #ARGV, 3 do ASKED[REPLICA .. ':' .. ARGV[i + 2]] = true end

if ARGV[7] == 'all' then
  for _, names in ipairs({PLACES, HOLDERS}) do
    for _, who in ipairs(redis.call('HKEYS', names)) do
      if before_colon(who) == REPLICA and not ASKED[who] then
        leave_queue(who)
        give_back(who)
      end
    end
  end
end

-- One that has no other waiting gets a place beyond the bound: no scope can lock the others out.
local function full(scope)
  if not bound or (room() and may(scope)) then return false end
  local waiting = redis.call('HLEN', PLACES)
  return waiting >= bound and (waiting >= 2 * bound or waiting_of(scope) > 0)
end

local function ask(kind, scope, who)
  local has = redis.call('HEXISTS', HOLDERS, who) == 1
  if kind == 'h' and not has then
    leave_queue(who)
    hold(who, scope)
  elseif kind == 'w' and not has and redis.call('HEXISTS', PLACES, who) == 0 and not full(scope) then
    queue(who, scope)
  end
end

-- Where each scope goes once in a round: those of its own before it, and as many of each other scope.
local function before(place, who)
  local scope = before_colon(place)
  local own = redis.call('ZLEXCOUNT', WAITING, '[' .. scope .. ':', '(' .. place .. ':' .. who)
  local others = redis.call('HLEN', PLACES) - waiting_of(scope)
  return own + math.min(others, math.max(redis.call('ZCARD', RING) - 1, 0) * (own + 1))
end

for i = 8, #ARGV, 3 do ask(ARGV[i], ARGV[i + 1], REPLICA .. ':' .. ARGV[i + 2]) end
pass_on()

local reply = {redis.call('HLEN', PLACES), tonumber(redis.call('HGET', NUMBERS, 'mean') or '-1')}
for i = 8, #ARGV, 3 do
  local who = REPLICA .. ':' .. ARGV[i + 2]
  local place = redis.call('HGET', PLACES, who)
  if place then
    reply[#reply + 1] = #ARGV == 10 and before(place, who) or 0
  else
    reply[#reply + 1] = redis.call('HEXISTS', HOLDERS, who) == 1 and -1 or -2
  end
end
keep()
return reply
