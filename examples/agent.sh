#!/bin/sh
# An agent in shell: takes tasks of plans until none comes for $WAIT seconds. Needs $API, $TOKEN (role agent), curl and jq.
call() { curl --silent --show-error --fail-with-body -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" "$@"; }
of() { printf %s "$claim" | jq --raw-output "$1"; }
say() { jq --null-input --argjson token "$token" "$@"; }
call -X PUT "$API/api/agent" --data '{}' >/dev/null || exit
while claim=$(call -X POST "$API/api/agent/claims?wait=${WAIT:-30}") && [ -n "$claim" ]; do
    token=$(of .token)
    say --arg text "at work on $(of .task)
" '{$token, $text}' | call --data @- "$API/api/agent/log" >/dev/null
    output=$(of .context.agent.instructions | ${AGENT:-cat} 2>&1) # AGENT: the program that does it
    say --argjson exit_code $? --arg stdout "$output" '{$token, $exit_code, output: {$stdout}}' |
        call --data @- "$API/api/agent/finish" >/dev/null
done
call -X DELETE "$API/api/agent" >/dev/null
