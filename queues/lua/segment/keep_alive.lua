#!lua flags=allow-oom
-- Records that a worker is still processing its entries.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, worker, ids
-- Answer  the ids that are still its own
-- include parts/segment
local held = {}
if #ARGV > 2 and redis.call('EXISTS', stream) == 1 then followed_clock() end
for i = 3, #ARGV do
  -- Only entries that are still this worker's: a worker that was paused must not steal its entry back.
  if is_held(ARGV[i], ARGV[2]) then
    redis.call('XCLAIM', stream, group, ARGV[2], 0, ARGV[i], 'JUSTID')
    held[#held + 1] = ARGV[i]
  end
end
return held
