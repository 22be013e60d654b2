-- KEYS: the records. ARGV: for each key the letter of its script, how many arguments that has, and these.
-- Gives for each key what its script gives. An error is that key's alone. All have one time.
local answers, at = {}, 1
for number = 1, #KEYS do
  local script, count = scripts[ARGV[at]], ARGV[at + 1] + 0
  local done, answer = pcall(script, {KEYS[number]}, {unpack(ARGV, at + 2, at + 1 + count)})
  if not done and type(answer) ~= 'table' then answer = redis.error_reply(answer) end
  answers[number] = answer
  at = at + 2 + count
end
return answers
