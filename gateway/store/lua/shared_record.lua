-- In front of every script. Packed values: their lengths with commas between ('-' for none), a newline,
-- then the values themselves: one bulk string, since reading many costs the client more than the task.

local FIELDS = {'version', 'made', 'keep_alive', 'timeout', 'status', 'created', 'updated', 'started',
                'ended', 'error', 'words', 'is_error', 'owner', 'epoch', 'waiting'}

local function whole(number) return string.format('%.0f', number) end

local function micros()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function millis() return math.floor(micros() / 1000) end

local function pack(values, count)
  local lengths, present = {}, {}
  for i = 1, count do
    local value = values[i]
    lengths[i] = value and #value or '-'
    if value then present[#present + 1] = value end
  end
  return table.concat(lengths, ',') .. '\n' .. table.concat(present)
end

-- The record in the order of FIELDS, then its pending requests; false where there is none.
local function pack_record(key)
  local values, count = redis.call('HMGET', key, unpack(FIELDS)), #FIELDS
  if not values[1] then return false end
  if tonumber(values[count] or '0') > 0 then
    for _, field in ipairs(redis.call('HKEYS', key)) do
      if string.sub(field, 1, 2) == 'p:' then
        count = count + 1
        values[count] = redis.call('HGET', key, field)
      end
    end
  end
  return pack(values, count)
end
