-- Writes the results of a task for a batch, atomically.
-- KEYS    state, pending, between, outbox, late
-- ARGV    batch, places, then for each place: its name, its state, when it is due (µs) or ''; then two
--         counted lists of name and blob: between, outbox; then 1, late events, how many, the maximum to
--         keep, or 0
-- Answer  1 (also when the batch was written before: nothing is written twice), or 0 when a later batch has
local batch, count, at, written = ARGV[1], tonumber(ARGV[2]), 3, false
for i = 0, count - 1 do
  local stored = tonumber(redis.call('HGET', KEYS[1], ARGV[at + 3 * i] .. ':batch') or '-1')
  if stored > tonumber(batch) then return 0 end
  written = written or stored == tonumber(batch)
end
if written then return 1 end
for i = 1, count do
  local place = ARGV[at]
  redis.call('HSET', KEYS[1], place, ARGV[at + 1], place .. ':batch', batch)
  if ARGV[at + 2] == '' then redis.call('HDEL', KEYS[2], place)
  else redis.call('HSET', KEYS[2], place, ARGV[at + 2]) end
  at = at + 3
end
for _, key in ipairs({KEYS[3], KEYS[4]}) do
  local blobs = tonumber(ARGV[at])
  at = at + 1
  for i = 1, blobs do
    redis.call('HSET', key, ARGV[at], ARGV[at + 1])
    at = at + 2
  end
end
if ARGV[at] == '1' then
  redis.call('XADD', KEYS[5], 'MAXLEN', '~', ARGV[at + 3], '*', 'd', ARGV[at + 1], 'n', ARGV[at + 2])
end
return 1
