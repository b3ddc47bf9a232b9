-- Publishes a batch's result, once.
-- KEYS    room, results
-- ARGV    replica, tick, events worked, bytes, result
-- Answer  1, or 0 when it was published before
local field = 'published:' .. ARGV[1]
if tonumber(redis.call('HGET', KEYS[1], field) or '0') >= tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], field, ARGV[2])
redis.call('HINCRBY', KEYS[1], 'in_flight_events', -tonumber(ARGV[3]))
redis.call('HINCRBY', KEYS[1], 'used_bytes', ARGV[4])
redis.call('HINCRBY', KEYS[1], 'bytes', ARGV[4])
redis.call('HINCRBY', KEYS[1], 'events', ARGV[3])
redis.call('XADD', KEYS[2], '*', 'd', ARGV[5])
return 1
