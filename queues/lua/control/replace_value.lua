-- Replaces a value, unless it has changed since it was read.
-- KEYS    a string
-- ARGV    the value as read ('' if there was none), the new value, its time to live in ms
-- Answer  1, or 0 if it has another value
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
