-- Takes what a request costs from two token buckets, of events and of bytes. What is not asked for is
-- taken in any case.
-- KEYS    the subject's quota
-- ARGV    events and bytes per second, burst (s), events and bytes to take, 1 to ask first
-- Answer  ms to wait; 0 when it was taken
local now = redis.call('TIME')
now = now[1] + now[2] / 1e6
local burst = tonumber(ARGV[3])
local kept = redis.call('HMGET', KEYS[1], 'at', 'events', 'bytes')
local at = tonumber(kept[1]) or now
-- After the clock was set back a debt would stand until it is where it was.
if at > now then redis.call('HSET', KEYS[1], 'at', string.format('%.6f', now)) end
local elapsed = math.max(0, now - at)
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
