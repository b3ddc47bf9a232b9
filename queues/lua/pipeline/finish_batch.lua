-- Records that an inter-event batch is finished, unless a later batch is planned, which implies that it is finished.
-- KEYS    planned
-- ARGV    the batch
-- Answer  1, or 0 when another batch is the newest one
if redis.call('HGET', KEYS[1], 'batch') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'done', ARGV[1])
return 1
