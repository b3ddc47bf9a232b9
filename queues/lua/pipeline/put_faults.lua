-- Keeps the events that a task of an attempt could not process.
-- KEYS    room, faults of the batch, the batches that have any
-- ARGV    replica, attempt, tick, then for each fault: its place, its cause and rows
-- Answer  1, or 0 when this attempt is over: another has started, or the batch was published
if redis.call('HGET', KEYS[1], 'attempt:' .. ARGV[1]) ~= ARGV[2] then return 0 end
for i = 4, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
redis.call('SADD', KEYS[3], ARGV[1] .. ':' .. ARGV[3])
return 1
