-- Moves messages of a list to another list, or deletes them, for a Celery app on Redis.
-- KEYS    the list, the destination (none: the messages are deleted)
-- ARGV    how many of the oldest messages are searched, each message as it is and as it becomes
-- Answer  the number taken; a worker has taken the others
local taken = 0
for index = 2, #ARGV, 2 do
    if redis.call('LPOS', KEYS[1], ARGV[index], 'RANK', -1, 'MAXLEN', ARGV[1]) then
        -- If this fails, the message is still in its list: a script isn't rolled back.
        if KEYS[2] then redis.call('LPUSH', KEYS[2], ARGV[index + 1]) end
        redis.call('LREM', KEYS[1], -1, ARGV[index])
        taken = taken + 1
    end
end
return taken
