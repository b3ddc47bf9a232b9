-- Adds to what a producer has published to a queue: two processes under one name count together, and a
-- restart goes on.
-- KEYS    producers
-- ARGV    producer|queue, instant (s), events, blocks, rejected, rerouted
-- Answer  nothing
local old = redis.call('HGET', KEYS[1], ARGV[1])
local ok, row = pcall(cjson.decode, old or '{}')
if not ok then row = {} end
for i, name in ipairs({'events', 'blocks', 'rejected', 'rerouted'}) do
  row[name] = (row[name] or 0) + tonumber(ARGV[i + 2])
end
row.at = tonumber(ARGV[2])
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(row))
