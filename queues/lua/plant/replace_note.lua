-- Replaces a note, unless it has changed since it was read.
-- KEYS    a hash
-- ARGV    field, the value as read, the new value (nothing: the field is removed)
-- Answer  1, or 0 if it has another value
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
if ARGV[3] == '' then return redis.call('HDEL', KEYS[1], ARGV[1]) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
