-- Replaces what is noted, unless it has become something else since it was read.
-- KEYS    a hash
-- ARGV    field, what was read, what stands there from now on (nothing: the field is removed)
-- Answer  1, or 0 where something else stands there
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
if ARGV[3] == '' then return redis.call('HDEL', KEYS[1], ARGV[1]) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
