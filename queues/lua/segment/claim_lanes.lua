#!lua flags=allow-oom
-- Gives a worker its due retries and the entries of dead workers, then new entries of a fair queue: ordinary ones first,
-- and diverted ones by deficit round robin over lanes. Without parked entries, ordinary ones cost a single read.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, worker, maximum events, maximum bytes, after how many ms of silence a worker is dead, maximum events of
--         diverted lanes if ordinary entries don't fill the claim, weight of lane 0, maximum weight of all diverted lanes
--         together, then for each lane with a weight of its own: its number, its weight
-- Answer  {{id, fields, tries}, …}
-- include parts/segment
-- include parts/reclaim
local diverted_left, ordinary_weight, pool, own = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), {}
for i = 9, #ARGV, 2 do own[tonumber(ARGV[i])] = tonumber(ARGV[i + 1]) end
local credits = cjson.decode(redis.call('HGET', counters, 'lane_credits') or '{}')
local diverted = {}
local function add(entry, list)
  list[#list + 1] = {entry[1], entry[2], 1}
  local got = fields(entry)
  local events, bytes = events_of(got), bytes_of(got)
  events_left, bytes_left = events_left - events, bytes_left - bytes
  return events, bytes
end
local function park(id, lane)
  redis.call('XCLAIM', stream, group, 'lanes', 0, id, 'JUSTID')
  redis.call('ZADD', lanes, lane, id)
end
-- Gives the worker ordinary entries, and parks the diverted ones before them. Returns whether none is left.
local function take_ordinary()
  -- Parking holds up the node: a limited number at a time.
  local parks_left, largest_events, largest_bytes = 1000, 512, 2^20
  while has_room() do
    if parks_left <= 0 then return false end
    local count = math.min(events_left / largest_events, bytes_left / largest_bytes, parks_left)
    count = math.max(1, math.floor(count))
    local reply = redis.call('XREADGROUP', 'GROUP', group, worker, 'COUNT', count, 'STREAMS', stream, '>')
    local entries = reply and reply[1][2] or {}
    local most_events, most_bytes = 1, 1
    for _, entry in ipairs(entries) do
      local lane = tonumber(string.match(fields(entry).i or '', '^(%d+)~')) or 0
      if lane == 0 then
        local events, bytes = add(entry, found)
        most_events, most_bytes = math.max(most_events, events), math.max(most_bytes, bytes)
      else
        park(entry[1], lane)
        parks_left = parks_left - 1
      end
    end
    if #entries < count then return true end
    if most_bytes > 1 then largest_events, largest_bytes = most_events, most_bytes end
  end
  return false
end
local function peek(lane)
  while true do
    local id = redis.call('ZRANGEBYSCORE', lanes, lane, lane, 'LIMIT', 0, 1)[1]
    if not id then return nil end
    local entry = redis.call('XRANGE', stream, id, id)[1]
    if entry then return entry end
    redis.call('ZREM', lanes, id)
  end
end
local function take_parked(entry)
  redis.call('ZREM', lanes, entry[1])
  redis.call('XCLAIM', stream, group, worker, 0, entry[1], 'JUSTID')
  -- An entry without a readable count must not hold up the lanes.
  return math.max(1, (add(entry, diverted)))
end
-- Returns the lanes with entries, and their weights.
local function list_lanes()
  local active, weights, shared, from = {}, {}, 0, '(0'
  while true do
    local first = redis.call('ZRANGEBYSCORE', lanes, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not first[2] then break end
    local lane = tonumber(first[2])
    active[#active + 1] = lane
    if not own[lane] then shared = shared + 1 end
    from = '(' .. first[2]
  end
  for _, lane in ipairs(active) do weights[lane] = own[lane] or math.min(1, pool / shared) end
  return active, weights
end
local function credit_of(lane) return credits[tostring(lane)] or 0 end
-- Gives the worker what the lanes have earned.
local function take_earned()
  local active = list_lanes()
  for _, lane in ipairs(active) do
    local credit = credit_of(lane)
    while has_room() do
      local entry = peek(lane)
      if not entry or events_of(fields(entry)) > credit then break end
      credit = credit - take_parked(entry)
    end
    credits[tostring(lane)] = credit
  end
end
-- Lets each lane earn its weight relative to the ordinary events that the worker gets.
local function earn(ordinary_events)
  local active, weights = list_lanes()
  for _, lane in ipairs(active) do
    credits[tostring(lane)] = credit_of(lane) + ordinary_events * weights[lane] / ordinary_weight
  end
end
-- Gives the worker diverted entries that no ordinary one waits for. It returns soon for the next ordinary ones.
local function take_spare()
  while has_room() and diverted_left > 0 do
    local active, weights = list_lanes()
    if #active == 0 then break end
    local unit = math.huge
    for _, lane in ipairs(active) do unit = math.min(unit, (1 - credit_of(lane)) / weights[lane]) end
    for _, lane in ipairs(active) do
      local credit = credit_of(lane) + math.max(0, unit) * weights[lane]
      local entry = credit > 0.999 and has_room() and diverted_left > 0 and peek(lane)
      if entry then
        local events = take_parked(entry)
        credit, diverted_left = credit - events, diverted_left - events
      end
      credits[tostring(lane)] = credit
    end
  end
end
-- The worker handles ordinary entries first: the earned ones would hold them up.
take_earned()
local room_events = events_left
local is_drained = take_ordinary()
earn(room_events - events_left)
if is_drained or #found + #diverted == 0 then take_spare() end
for _, row in ipairs(diverted) do found[#found + 1] = row end
-- A lane without entries keeps its debt and no credit.
local kept, active = {}, list_lanes()
for _, lane in ipairs(active) do kept[tostring(lane)] = credit_of(lane) end
if next(kept) then
  for name, credit in pairs(credits) do
    if credit < 0 then kept[name] = credit end
  end
  redis.call('HSET', counters, 'lane_credits', cjson.encode(kept))
else
  redis.call('HDEL', counters, 'lane_credits')
end
return found
