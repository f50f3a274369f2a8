-- In front of every script that writes to a scope.
-- KEYS  1 index, 2 expiries, 3 active set, 4 request map; where one task is meant also 5 record,
--       6 outcome, 7 log
-- ARGV  1 channel of wake-ups, 2 name of the task in them, ending with its digest; then the script's own

local INDEX, EXPIRIES, ACTIVE, REQUESTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local RECORD, OUTCOME, LOG = KEYS[5], KEYS[6], KEYS[7]
local CHANNEL, MEMBER = ARGV[1], ARGV[2]
local DIGEST = MEMBER and string.sub(MEMBER, -32)

local function ring() redis.call('PUBLISH', CHANNEL, MEMBER) end

local function ended(status) return next(MOVES[status] or {}) == nil end

-- The status of a task that goes on and is still the claimant's, else false.
local function held(owner, epoch)
  local record = redis.call('HMGET', RECORD, 'status', 'owner', 'epoch')
  if not record[1] or ended(record[1]) then return false end
  if record[2] ~= owner or record[3] ~= epoch then return false end
  return record[1]
end

-- Whether the move is in the table; it is made if so.
local function move(status, target, now)
  if not (MOVES[status] or {})[target] then return false end
  redis.call('HSET', RECORD, 'status', target, 'updated', whole(now))
  return true
end

-- A small sorted set is a list: to take a member out by its name reads it all.
local function unlist(digest)
  redis.call('ZREM', INDEX, digest)
  redis.call('SREM', ACTIVE, digest)
  local request = redis.call('HGET', REQUESTS, digest)
  if request then
    local made = redis.call('HGET', REQUESTS, request)
    if made and string.sub(made, 1, 32) == digest then redis.call('HDEL', REQUESTS, request) end
    redis.call('HDEL', REQUESTS, digest)
  end
end

local function forget(digest)
  redis.call('ZREM', EXPIRIES, digest)
  unlist(digest)
end

-- Forget tasks whose life has ended; the scope's keys then live as long as the longest of the others.
local function sweep(now, added)
  local over = redis.call('ZRANGEBYSCORE', EXPIRIES, '-inf', whole(now), 'LIMIT', 0, 256)
  if over[1] then redis.call('ZREMRANGEBYRANK', EXPIRIES, 0, #over - 1) end
  for _, digest in ipairs(over) do unlist(digest) end
  local last = redis.call('ZREVRANGE', EXPIRIES, 0, 0, 'WITHSCORES')
  if not last[1] then
    redis.call('DEL', INDEX, EXPIRIES, ACTIVE, REQUESTS)
    return
  end
  local score = tonumber(last[2])
  -- Where nothing was added and the longest life is what it was, the keys have it already.
  if not added and redis.call('PTTL', INDEX) == score - now then return end
  for i = 1, 4 do
    if score >= FOREVER then
      redis.call('PERSIST', KEYS[i])
    else
      redis.call('PEXPIREAT', KEYS[i], whole(score))
    end
  end
end

-- All keys of the task get one expiry, in milliseconds since the epoch.
local function keep_until(at)
  at = math.min(at, FOREVER)
  redis.call('ZADD', EXPIRIES, whole(at), DIGEST)
  for i = 5, 7 do
    if at >= FOREVER then
      redis.call('PERSIST', KEYS[i])
    else
      redis.call('PEXPIREAT', KEYS[i], whole(at))
    end
  end
end

-- A task that runs lives for its time limit, its keep-alive and some slack: nothing stays if all replicas die.
-- What it has is left alone while the slack is hardly touched.
local function keep_running(now, new)
  local life = redis.call('HMGET', RECORD, 'timeout', 'keep_alive')
  local keep_alive = life[2] ~= '' and tonumber(life[2]) or 0
  local at = math.min(now + tonumber(life[1]) + keep_alive + SLACK, FOREVER - 1)
  local has = not new and redis.call('ZSCORE', EXPIRIES, DIGEST)
  if has and at - tonumber(has) < SLACK / 4 then return end
  keep_until(at)
  sweep(now, true)
end

-- The end of a task: nothing is pending, nobody takes it up, it is not active, and only its keep-alive is left.
-- Returns the record.
local function settle(now)
  local fields = redis.call('HKEYS', RECORD)
  for _, field in ipairs(fields) do
    local kind = string.sub(field, 1, 2)
    if kind == 'p:' or kind == 'a:' or kind == 'w:' then redis.call('HDEL', RECORD, field) end
  end
  redis.call('HDEL', RECORD, 'course', 'request', 'kept', 'place', 'held_until')
  redis.call('HSET', RECORD, 'ended', whole(now), 'waiting', '0')
  redis.call('SREM', ACTIVE, DIGEST)
  local packed = pack_record(RECORD)
  local life = redis.call('HMGET', RECORD, 'keep_alive', 'kept_from', 'created')
  local since = life[2] == 'creation' and tonumber(life[3]) or now
  if life[1] == '' then
    keep_until(FOREVER)
  elseif since + tonumber(life[1]) <= now then
    redis.call('DEL', RECORD, OUTCOME, LOG)
    forget(DIGEST)
  else
    keep_until(math.min(since + tonumber(life[1]), FOREVER - 1))
  end
  sweep(now)
  ring()
  return packed
end
