-- Takes the cost of a request from two token buckets, of events and of bytes. Without a check first, it is taken in
-- any case.
-- KEYS    the subject's quota
-- ARGV    events and bytes per second, burst (s), events and bytes to take, 1 to check first
-- Answer  ms to wait; 0 when it was taken
local now = redis.call('TIME')
now = now[1] + now[2] / 1e6
local burst = tonumber(ARGV[3])
local kept = redis.call('HMGET', KEYS[1], 'at', 'events', 'bytes')
local elapsed = now - (tonumber(kept[1]) or now)
if elapsed < 0 then -- the clock was set back, or is another server's: the debt is paid off from now on
  elapsed = 0
  redis.call('HSET', KEYS[1], 'at', string.format('%.6f', now))
end
local levels, wait, full = {}, 0, 0
for i = 1, 2 do
  local rate = tonumber(ARGV[i])
  local level = math.min(burst * rate, (tonumber(kept[i + 1]) or burst * rate) + elapsed * rate)
  if level < 0 then wait = math.max(wait, -level / rate) end
  levels[i] = level - tonumber(ARGV[3 + i])
  full = math.max(full, burst - levels[i] / rate)
end
if ARGV[6] == '1' and wait > 0 then return math.ceil(wait * 1000) + 1 end
redis.call('HSET', KEYS[1], 'at', string.format('%.6f', now), 'events', string.format('%.6f', levels[1]),
  'bytes', string.format('%.6f', levels[2]))
redis.call('PEXPIRE', KEYS[1], math.ceil(full * 1000) + 1000)
return 0
