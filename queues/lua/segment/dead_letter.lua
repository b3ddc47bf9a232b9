#!lua flags=allow-oom
-- Removes an entry and keeps its poison rows as dead letters, in one step, if the worker holds it.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, id, worker, tries, block, then for each dead letter: batch, error, events, newest time, checksum
-- Answer  {events, blocks} that were still there and belonged to the worker
-- include parts/segment
if not is_held(ARGV[2], ARGV[3]) then return {0, 0} end
local events, blocks = remove(ARGV[2])
if blocks == 0 then return {0, 0} end
for i = 6, #ARGV, 5 do
  redis.call('XADD', dead, '*', 'c', ARGV[i + 4], 'e', ARGV[i], 'error', ARGV[i + 1], 'n', ARGV[i + 2],
    't', ARGV[i + 3], 'tries', ARGV[4], 'worker', ARGV[3], 'block', ARGV[5])
  redis.call('HINCRBY', counters, 'dead_events', ARGV[i + 2])
end
return {events, blocks}
