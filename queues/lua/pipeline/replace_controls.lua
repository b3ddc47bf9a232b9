-- Changes an application's controls, if they are as they were read.
-- KEYS    controls
-- ARGV    the controls as read, the new controls
-- Answer  1, or 0 when another process has changed them
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
