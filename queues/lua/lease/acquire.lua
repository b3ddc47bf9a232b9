-- Takes a free lease. Its number exceeds all that were ever given, even by a server that has forgotten them since
-- (it came back empty, or another took its place): none is less than the server's clock in microseconds, and no lease
-- changes its holder as often. It also exceeds what was written under it, since a clock may have been set back. If
-- the holder requests it again, it never received the answer: it keeps the lease for its full time.
-- KEYS    the lease, its fencing number
-- ARGV    token, ms, a number to exceed
-- Answer  the fencing number, or 0 while another process holds it
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
