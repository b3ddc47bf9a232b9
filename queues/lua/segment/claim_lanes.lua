#!lua flags=allow-oom
-- Gives a worker new entries of a fair queue, by deficit round robin over lanes: a lane's credit rises with its weight.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, worker, maximum events, maximum bytes, maximum events of diverted lanes if ordinary entries don't fill
--         the claim, weight of lane 0, maximum weight of all diverted lanes together, then for each lane with a weight of
--         its own: its number, its weight
-- Answer  {{id, fields}, …}
-- include parts/segment
grouped()
local worker, events_left, bytes_left = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local diverted_left, pool, own = tonumber(ARGV[5]), tonumber(ARGV[7]), {[0] = tonumber(ARGV[6])}
for i = 8, #ARGV, 2 do own[tonumber(ARGV[i])] = tonumber(ARGV[i + 1]) end
local credits = cjson.decode(redis.call('HGET', counters, 'lane_credits') or '{}')
local last
for _, each in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local about = {}
  for i = 1, #each, 2 do about[each[i]] = each[i + 1] end
  if about.name == group then last = about['last-delivered-id'] end
end
-- Delivers the next new entry without a second copy of its payload.
local function deliver(id, consumer)
  redis.call('XCLAIM', stream, group, consumer, 0, id, 'RETRYCOUNT', 1, 'FORCE', 'JUSTID', 'LASTID', id)
  last = id
end
-- Returns the next new ordinary entry. It parks diverted ones before it: a limited number, as they hold up the node.
local parks_left = 1000
local function peek()
  while parks_left > 0 do
    local entry = redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', 1)[1]
    if not entry then return nil end
    local lane = tonumber(string.match(fields(entry).i or '', '^(%d+)~')) or 0
    if lane == 0 then return entry end
    deliver(entry[1], 'lanes')
    redis.call('ZADD', lanes, lane, entry[1])
    parks_left = parks_left - 1
  end
end
local head = peek()
local function list_lanes()
  local active, from = head and {0} or {}, '(0'
  while true do
    local first = redis.call('ZRANGEBYSCORE', lanes, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not first[2] then return active end
    active[#active + 1] = tonumber(first[2])
    from = '(' .. first[2]
  end
end
local found = {}
-- Gives the worker the oldest entry of a lane, and returns its events; nil if the lane is empty.
local function take(lane)
  local entry = head
  if lane == 0 then
    if not entry then return nil end
    deliver(entry[1], worker)
    head = peek()
  else
    repeat
      local id = redis.call('ZRANGEBYSCORE', lanes, lane, lane, 'LIMIT', 0, 1)[1]
      if not id then return nil end
      redis.call('ZREM', lanes, id)
      entry = redis.call('XRANGE', stream, id, id)[1]
    until entry
    redis.call('XCLAIM', stream, group, worker, 0, entry[1], 'RETRYCOUNT', 1, 'FORCE', 'JUSTID')
  end
  found[#found + 1] = {entry[1], entry[2]}
  local got = fields(entry)
  local events = events_of(got)
  events_left, bytes_left = events_left - events, bytes_left - bytes_of(got)
  if lane ~= 0 then diverted_left = diverted_left - events end
  return events
end
local is_contended = head ~= nil
while events_left > 0 and bytes_left > 0 do
  local active, weights, total, shared = list_lanes(), {}, 0, 0
  -- A worker that finds no ordinary entry returns soon for the next: it takes only a few diverted ones.
  if #active == 0 or (not head and diverted_left <= 0) then break end
  for _, lane in ipairs(active) do if not own[lane] then shared = shared + 1 end end
  for _, lane in ipairs(active) do
    weights[lane] = own[lane] or math.min(1, pool / shared)
    total = total + weights[lane]
  end
  -- At least as much as makes one lane's credit positive, so that something is taken as long as anything waits.
  local unit = events_left / total
  local needed = math.huge
  for _, lane in ipairs(active) do
    needed = math.min(needed, (1 - (credits[tostring(lane)] or 0)) / weights[lane])
  end
  unit = math.max(unit, needed)
  for _, lane in ipairs(active) do
    local name = tostring(lane)
    local credit = (credits[name] or 0) + unit * weights[lane]
    while credit > 0 and events_left > 0 and bytes_left > 0 and (head or diverted_left > 0) do
      local events = take(lane)
      if not events then break end
      -- An entry without a readable count must not hold up the lanes.
      credit = credit - math.max(1, events)
    end
    credits[name] = credit
  end
end
-- A lane without entries keeps its debt and no credit; without contention, neither.
local kept = {}
if is_contended then
  local active = {}
  for _, lane in ipairs(list_lanes()) do active[tostring(lane)] = true end
  for name, credit in pairs(credits) do
    if active[name] or credit < 0 then kept[name] = credit end
  end
end
if next(kept) then
  redis.call('HSET', counters, 'lane_credits', cjson.encode(kept))
else
  redis.call('HDEL', counters, 'lane_credits')
end
return found
