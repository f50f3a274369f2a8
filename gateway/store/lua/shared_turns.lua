-- In front of every script about turns, whose keys are those of one line: the calls of one rule.
-- KEYS  1 replicas and when they count as gone (sorted set, ms), 2 who has a turn → its scope (hash), 3 how
--       many of a scope have one (hash), 4 who waits, as scope:number:who (sorted set, in this order),
--       5 who waits → scope:number (hash), 6 scopes that may have the next turn, in order (sorted set),
--       7 numbers: the last one given, the mean time of a turn (hash)
-- ARGV  1 channel of wake-ups, 2 replica, 3 how long it counts as alive, in ms, 4 turns at the same time or
--       '', 5 those of one scope or ''; then the script's own
-- Who: replica:ticket. In the ring is each scope that waits and has not as many turns as it may.

local REPLICAS, HOLDERS, HELD_OF, WAITING, PLACES, RING, NUMBERS = unpack(KEYS)
local CHANNEL, REPLICA = ARGV[1], ARGV[2]
local MOST, MOST_OF_SCOPE = tonumber(ARGV[4]), tonumber(ARGV[5])
local ASKED = {}

local function before_colon(text) return string.sub(text, 1, string.find(text, ':', 1, true) - 1) end

local function number() return redis.call('HINCRBY', NUMBERS, 'last', 1) end

local function may(scope)
  return not MOST_OF_SCOPE or tonumber(redis.call('HGET', HELD_OF, scope) or '0') < MOST_OF_SCOPE
end

local function room() return not MOST or redis.call('HLEN', HOLDERS) < MOST end

-- A scope's places, first to last: ':' goes before ';' and is in no scope's name.
local function first_of(scope)
  return redis.call('ZRANGEBYLEX', WAITING, '[' .. scope .. ':', '(' .. scope .. ';', 'LIMIT', 0, 1)[1]
end

local function waiting_of(scope)
  return redis.call('ZLEXCOUNT', WAITING, '[' .. scope .. ':', '(' .. scope .. ';')
end

-- A scope that may have a turn now, and waits for one, goes behind the others.
local function line_up(scope)
  if redis.call('ZSCORE', RING, scope) or not may(scope) or not first_of(scope) then return end
  redis.call('ZADD', RING, number(), scope)
end

local function hold(who, scope)
  if redis.call('HSETNX', HOLDERS, who, scope) == 1 then redis.call('HINCRBY', HELD_OF, scope, 1) end
end

local function give_back(who)
  local scope = redis.call('HGET', HOLDERS, who)
  if not scope then return false end
  redis.call('HDEL', HOLDERS, who)
  if redis.call('HINCRBY', HELD_OF, scope, -1) <= 0 then redis.call('HDEL', HELD_OF, scope) end
  line_up(scope)
  return true
end

local function queue(who, scope)
  local place = scope .. ':' .. string.format('%016.0f', number())
  redis.call('HSET', PLACES, who, place)
  redis.call('ZADD', WAITING, 0, place .. ':' .. who)
  line_up(scope)
end

local function leave_queue(who)
  local place = redis.call('HGET', PLACES, who)
  if not place then return end
  redis.call('HDEL', PLACES, who)
  redis.call('ZREM', WAITING, place .. ':' .. who)
  local scope = before_colon(place)
  if not first_of(scope) then redis.call('ZREM', RING, scope) end
end

-- Give free turns to those who wait: one to each scope in the ring, round and round.
local function pass_on()
  while room() do
    local scope = redis.call('ZRANGE', RING, 0, 0)[1]
    if not scope then return end
    redis.call('ZREM', RING, scope)
    local first = may(scope) and first_of(scope)
    if first then
      local who = string.match(first, '^[^:]*:[^:]*:(.*)$')
      leave_queue(who)
      hold(who, scope)
      line_up(scope)
      if not ASKED[who] then redis.call('PUBLISH', CHANNEL, 'turns:' .. who) end
    end
  end
end

-- Take the replicas out that have not been heard of, and all that was theirs.
local function bury(now)
  local dead = redis.call('ZRANGEBYSCORE', REPLICAS, '-inf', whole(now))
  if not dead[1] then return end
  local gone = {}
  for _, replica in ipairs(dead) do gone[replica] = true end
  redis.call('ZREM', REPLICAS, unpack(dead))
  for _, who in ipairs(redis.call('HKEYS', PLACES)) do
    if gone[before_colon(who)] then leave_queue(who) end
  end
  for _, who in ipairs(redis.call('HKEYS', HOLDERS)) do
    if gone[before_colon(who)] then give_back(who) end
  end
end

-- Nothing stays when nobody comes any more.
local function keep()
  for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, whole(tonumber(ARGV[3]) * 4)) end
end
