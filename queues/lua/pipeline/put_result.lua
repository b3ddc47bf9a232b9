-- Keeps blobs of a batch that is being processed.
-- KEYS    room, blobs
-- ARGV    replica, attempt, then for each blob: its name, its content
-- Answer  1, or 0 when this attempt is over: another has started, or the batch was published
if redis.call('HGET', KEYS[1], 'attempt:' .. ARGV[1]) ~= ARGV[2] then return 0 end
for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
return 1
