#!lua flags=allow-oom
-- Delays an entry until it is due to be claimed again.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, id, worker, ms to wait, 1: its last claim does not count as a try
-- Answer  1, or 0 when it is gone or another worker has it
-- include parts/segment
if not is_held(ARGV[2], ARGV[3]) then return 0 end
-- The entry moves to a consumer of its own, so that an ended worker holds nothing.
local claims = redis.call('XPENDING', stream, group, ARGV[2], ARGV[2], 1)[1][4]
local moved = redis.pcall('XCLAIM', stream, group, 'retry', 0, ARGV[2], 'RETRYCOUNT', claims - ARGV[5], 'JUSTID')
if moved.err or #moved == 0 then return 0 end
redis.call('ZADD', retry, followed_clock() + tonumber(ARGV[4]), ARGV[2])
return 1
