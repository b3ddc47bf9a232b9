-- Takes a lease that nobody holds. The number must also pass what was last written under it: a control
-- server that came back empty counts from zero again, and all of its holders would be fenced out for
-- ever. Whoever holds it already never heard the answer: it holds it on, for its full time.
-- KEYS    the lease, its fencing number
-- ARGV    token, ms, a number that is to be passed
-- Answer  the fencing number, or 0 while another holds it
local held = redis.call('GET', KEYS[1])
if held then
  local token, number = string.match(held, '^(.*):(%d+)$')
  if token ~= ARGV[1] then return 0 end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return tonumber(number)
end
local fence = math.max(redis.call('INCR', KEYS[2]), tonumber(ARGV[3]) + 1)
redis.call('SET', KEYS[2], string.format('%d', fence))
redis.call('SET', KEYS[1], ARGV[1] .. ':' .. string.format('%d', fence), 'PX', ARGV[2])
return fence
