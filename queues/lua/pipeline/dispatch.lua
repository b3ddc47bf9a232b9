-- Moves the cursor and stores a dispatch, if no other process did so in the meantime.
-- KEYS    cursor, room, then a stream for each assignment
-- ARGV    tick before, tick, cursor, events, then an assignment each
-- Answer  1 (also when this very dispatch was stored before), or 0 when another process has dispatched
local stored = redis.call('HMGET', KEYS[1], 'tick', 'cursor')
if (stored[1] or '0') ~= ARGV[1] then return stored[2] == ARGV[3] and 1 or 0 end
redis.call('HSET', KEYS[1], 'tick', ARGV[2], 'cursor', ARGV[3])
redis.call('HINCRBY', KEYS[2], 'in_flight_events', ARGV[4])
for i = 3, #KEYS do redis.call('XADD', KEYS[i], ARGV[2] .. '-0', 'd', ARGV[i + 2]) end
return 1
