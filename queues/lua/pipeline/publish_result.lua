-- Publishes a batch's result, once.
-- KEYS    room, results
-- ARGV    replica, tick, attempt, events processed, bytes, result, factor of earlier results in the mean size
-- Answer  1, 0 when it was published before, or -1 when another attempt has started
local field, attempt = 'published:' .. ARGV[1], 'attempt:' .. ARGV[1]
if tonumber(redis.call('HGET', KEYS[1], field) or '0') >= tonumber(ARGV[2]) then return 0 end
if redis.call('HGET', KEYS[1], attempt) ~= ARGV[3] then return -1 end
redis.call('HDEL', KEYS[1], attempt)
redis.call('HSET', KEYS[1], field, ARGV[2])
redis.call('HINCRBY', KEYS[1], 'in_flight_events', -tonumber(ARGV[4]))
redis.call('HINCRBY', KEYS[1], 'used_bytes', ARGV[5])
redis.call('HINCRBY', KEYS[1], 'bytes', ARGV[5])
if tonumber(ARGV[4]) > 0 then
  for name, amount in pairs({ recent_events = ARGV[4], recent_bytes = ARGV[5] }) do
    local earlier = tonumber(redis.call('HGET', KEYS[1], name) or '0')
    redis.call('HSET', KEYS[1], name, earlier * tonumber(ARGV[7]) + tonumber(amount))
  end
end
redis.call('XADD', KEYS[2], '*', 'd', ARGV[6])
return 1
