#!lua flags=allow-oom
-- Replaces the events of a dead letter, if it is as it was shown.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, dead id, its digest as shown, then the new batch, events, newest time, checksum
-- Answer  its new id, 0 when it is gone, -1 when it has changed, -3 when it is being moved
-- include parts/segment
-- include parts/dead_letter
local got, why = shown(ARGV[2], ARGV[3])
if not got then return why end
local since = got.since or string.match(ARGV[2], '^%d+')
-- An entry of a stream can't be changed: the dead letter moves to the stream's end, and keeps its age.
local id = redis.call('XADD', dead, '*', 'c', ARGV[7], 'e', ARGV[4], 'error', got.error or '', 'n', ARGV[5],
  't', ARGV[6], 'tries', count(got.tries), 'worker', got.worker or '', 'block', got.block or '', 'since', since,
  'fixes', (tonumber(got.fixes) or 0) + 1)
redis.call('XDEL', dead, ARGV[2])
return id
