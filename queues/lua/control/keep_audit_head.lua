-- Keeps the head of the longest audit log: several processes report at once.
-- KEYS    the audit's head
-- ARGV    its sequence, what would be written
-- Answer  1, or 0 when it is no longer than the known one
local known = redis.call('GET', KEYS[1])
if known then
  local found, document = pcall(cjson.decode, known)
  local sequence = found and type(document) == 'table' and tonumber(document.sequence) or 0
  if sequence >= tonumber(ARGV[1]) then return 0 end
end
redis.call('SET', KEYS[1], ARGV[2])
return 1
