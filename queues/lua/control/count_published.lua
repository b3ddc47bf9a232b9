-- Adds to the counts of what a producer has published to a queue, once for each report, even if it is repeated.
-- Two processes under one name count together, and a restart continues the counts.
-- KEYS    producers
-- ARGV    producer|queue, instant (s), events, blocks, rejected, rerouted, process, number of its report, s that
--         a process is known without one, how many processes are known, what a sample of the events is made of
--         (JSON of at most 16384 bytes; "": the last one stays)
-- Answer  nothing
-- An invalid count or report in a row is ignored, since it would otherwise block all later reports.
local function object(value) return type(value) == 'table' and value or {} end
local function count(value) return type(value) == 'number' and value or 0 end

local _, stored = pcall(cjson.decode, redis.call('HGET', KEYS[1], ARGV[1]) or '{}')
local row = object(stored)
if row[1] ~= nil then row = {} end  -- a list
local at, number = tonumber(ARGV[2]), tonumber(ARGV[8])
local reported = {}
for process, last in pairs(object(row.reported)) do
  if type(object(last)[1]) == 'number' and type(last[2]) == 'number' then reported[process] = last end
end
local before = reported[ARGV[7]]
if before and before[1] >= number then return end
local known, oldest = 0, nil
for process, last in pairs(reported) do
  if math.abs(at - last[2]) > tonumber(ARGV[9]) then
    reported[process] = nil
  else
    known = known + 1
    if not oldest or last[2] < reported[oldest][2] then oldest = process end
  end
end
if known >= tonumber(ARGV[10]) and not before then reported[oldest] = nil end
reported[ARGV[7]] = {number, at}
row.reported = reported
for i, name in ipairs({'events', 'blocks', 'rejected', 'rerouted'}) do
  row[name] = count(row[name]) + tonumber(ARGV[i + 2])
end
row.at = at
local is_one, sample = pcall(cjson.decode, #ARGV[11] <= 16384 and ARGV[11] or '')
if is_one and type(sample) == 'table' then row.sample = sample end
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(row))
