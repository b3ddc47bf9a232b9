-- Publishes a batch's result, once.
-- KEYS    room, results
-- ARGV    replica, tick, attempt, events processed, bytes, result
-- Answer  1, 0 when it was published before, or -1 when another attempt has started
local field, attempt = 'published:' .. ARGV[1], 'attempt:' .. ARGV[1]
if tonumber(redis.call('HGET', KEYS[1], field) or '0') >= tonumber(ARGV[2]) then return 0 end
if redis.call('HGET', KEYS[1], attempt) ~= ARGV[3] then return -1 end
redis.call('HDEL', KEYS[1], attempt)
redis.call('HSET', KEYS[1], field, ARGV[2])
redis.call('HINCRBY', KEYS[1], 'in_flight_events', -tonumber(ARGV[4]))
redis.call('HINCRBY', KEYS[1], 'used_bytes', ARGV[5])
redis.call('HINCRBY', KEYS[1], 'bytes', ARGV[5])
redis.call('HINCRBY', KEYS[1], 'events', ARGV[4])
redis.call('XADD', KEYS[2], '*', 'd', ARGV[6])
return 1
