-- Changes an application's controls, if they are what they were.
-- KEYS    controls
-- ARGV    what they were, what they are to be
-- Answer  1, or 0 when somebody else has changed them
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
