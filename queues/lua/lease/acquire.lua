-- Takes a lease that nobody holds. The number must also pass what was last written under it: a control
-- server that came back empty counts from zero again, and all of its holders would be fenced out for
-- ever.
-- KEYS    the lease, its fencing number
-- ARGV    token, ms, a number that is to be passed
-- Answer  the fencing number, or 0 while another holds it
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local fence = math.max(redis.call('INCR', KEYS[2]), tonumber(ARGV[3]) + 1)
redis.call('SET', KEYS[2], string.format('%d', fence))
redis.call('SET', KEYS[1], ARGV[1] .. ':' .. string.format('%d', fence), 'PX', ARGV[2])
return fence
