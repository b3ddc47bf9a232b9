-- Takes each free lease. Its number exceeds all that were ever given, even by a server that has forgotten them since
-- (it came back empty, or another took its place): none is less than the server's clock in microseconds, and no lease
-- changes its holder as often. It also exceeds what was written under it, since a clock may have been set back. If
-- the holder requests it again, it never received the answer: it keeps the lease for its full time.
-- KEYS    for each lease: the lease, its fencing number
-- ARGV    ms, then for each lease: token, a number to exceed
-- Answer  for each lease: the fencing number, or 0 while another process holds it
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local answer = {}
for first = 1, #KEYS, 2 do
  local lease, number, token = KEYS[first], KEYS[first + 1], ARGV[first + 1]
  local held = redis.call('GET', lease)
  local holder, fence = string.match(held or '', '^(.*):(%d+)$')
  if holder == nil then
    fence = math.max(tonumber(redis.call('GET', number) or 0) + 1, tonumber(ARGV[first + 2]) + 1, now)
    redis.call('SET', number, string.format('%d', fence))
    redis.call('SET', lease, token .. ':' .. string.format('%d', fence), 'PX', ARGV[1])
  elseif holder == token then
    redis.call('PEXPIRE', lease, ARGV[1])
  else
    fence = 0
    -- The clock was set back, and the lease would outlast its holder by as much. Its full time is from now on.
    if redis.call('PTTL', lease) > tonumber(ARGV[1]) then redis.call('PEXPIRE', lease, ARGV[1]) end
  end
  answer[#answer + 1] = tonumber(fence)
end
return answer
