#!lua flags=allow-oom
-- Deletes dead letters for good, if they are as they were shown.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, then for each: dead id, its digest as shown
-- Answer  for each: its events (at least 1), 0 when it is gone, -1 when it has changed, -3 when it is being moved
-- include parts/segment
-- include parts/dead_letter
local gone = {}
for i = 2, #ARGV, 2 do
  local got, why = shown(ARGV[i], ARGV[i + 1])
  if got then redis.call('XDEL', dead, ARGV[i]) end
  gone[#gone + 1] = got and math.max(1, got.n) or why
end
return gone
