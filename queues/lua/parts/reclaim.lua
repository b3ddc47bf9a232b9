-- Gives a worker its due retries, and the entries of dead workers: `found` has {id, fields, tries} of each.
-- ARGV[2..5]: the worker, its maximum events and bytes, and after how many ms of silence a worker is dead.
grouped()
local worker, idle = ARGV[2], tonumber(ARGV[5])
-- What is left of the limits: the last block may exceed them, so that a large one is taken too.
local events_left, bytes_left = tonumber(ARGV[3]), tonumber(ARGV[4])
local found, now = {}, followed_clock()
local function has_room() return events_left > 0 and bytes_left > 0 end
local function take_back(id)
  local tries = redis.call('XPENDING', stream, group, id, id, 1)
  local entry = redis.call('XCLAIM', stream, group, worker, 0, id)[1]
  redis.call('ZREM', retry, id)
  if not entry or not entry[2] then return end
  found[#found + 1] = {id, entry[2], (tries[1] and tries[1][4] or 0) + 1}
  local got = fields(entry)
  events_left, bytes_left = events_left - events_of(got), bytes_left - bytes_of(got)
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', retry, '-inf', now, 'LIMIT', 0, 1000)) do
  if not has_room() then break end
  take_back(id)
end
-- More at a time would hold up the node. If more are idle, the next claim continues after them.
-- Parked entries are idle too, and the claims of a fair queue are small.
local from, left = redis.call('HGET', counters, 'reclaim_from') or '-', redis.call('ZCARD', lanes) > 0 and 2 or 20
while has_room() and left > 0 do
  local pending = redis.call('XPENDING', stream, group, 'IDLE', idle, from, '+', 100)
  for _, each in ipairs(pending) do
    -- A block that waits for its retry or in a lane, or is being transferred, is idle but not abandoned.
    local is_parked = redis.call('ZSCORE', lanes, each[1])
    local kept = is_parked or redis.call('ZSCORE', retry, each[1]) or redis.call('HEXISTS', leaving, each[1]) == 1
    if has_room() and not kept then take_back(each[1]) end
    from = '(' .. each[1]
  end
  left = left - 1
  if #pending < 100 then from, left = '-', 0 end
end
if from == '-' then redis.call('HDEL', counters, 'reclaim_from') end
if left == 0 and from ~= '-' then redis.call('HSET', counters, 'reclaim_from', from) end
