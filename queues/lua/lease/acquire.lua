-- Takes a lease that nobody holds. Its number passes all that were ever given, also by a server that has
-- forgotten them since (it came back empty, or another took its place): none is less than the server's clock in
-- microseconds, and no lease changes hands as often. It passes what was written under it, too: a clock may
-- have been set back. Whoever holds it already never heard the answer: it holds it on, for its full time.
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
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local fence = math.max(tonumber(redis.call('GET', KEYS[2]) or 0) + 1, tonumber(ARGV[3]) + 1, now)
redis.call('SET', KEYS[2], string.format('%d', fence))
redis.call('SET', KEYS[1], ARGV[1] .. ':' .. string.format('%d', fence), 'PX', ARGV[2])
return fence
