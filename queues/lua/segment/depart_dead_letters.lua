#!lua flags=allow-oom
-- Marks dead letters for another node, and returns them for transfer; those marked before come first.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, maximum letters, maximum bytes, the node for letters without a mark ('': none of them departs), then
--         the nodes whose marked letters are returned
-- Answer  {{id, node, fields}, …}
-- include parts/segment
local most_letters, most_bytes, target = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local PAGE = 16
local rows, bytes, known = {}, 0, {}
for i = 5, #ARGV do known[ARGV[i]] = true end
local function has_room() return #rows < most_letters and bytes < most_bytes end
local function add(entry, node)
  rows[#rows + 1] = {entry[1], node, entry[2]}
  bytes = bytes + #(fields(entry).e or '')
end
local marked = redis.call('HGETALL', leaving_letters)
for i = 1, #marked, 2 do
  if known[marked[i + 1]] and has_room() then
    local entry = redis.call('XRANGE', dead, marked[i], marked[i])[1]
    if entry then add(entry, marked[i + 1]) else redis.call('HDEL', leaving_letters, marked[i]) end
  end
end
local from = '-'
while target ~= '' and has_room() do
  local entries = redis.call('XRANGE', dead, from, '+', 'COUNT', PAGE)
  for _, entry in ipairs(entries) do
    if has_room() and redis.call('HSETNX', leaving_letters, entry[1], target) == 1 then add(entry, target) end
    from = '(' .. entry[1]
  end
  if #entries < PAGE then break end
end
return rows
