-- Moves the oldest messages of a list to the lists of the queues that they name, for a Celery app on Redis.
-- KEYS    the list
-- ARGV    the maximum number, the prefix of the app's keys
-- Answer  the number moved, the number left
local moved = 0
for _ = 1, tonumber(ARGV[1]) do
    local message = redis.call('LINDEX', KEYS[1], -1)
    if not message then break end
    local queue = cjson.decode(message).properties.delivery_info.routing_key
    redis.call('LMOVE', KEYS[1], ARGV[2] .. queue, 'RIGHT', 'LEFT')
    moved = moved + 1
end
return {moved, redis.call('LLEN', KEYS[1])}
