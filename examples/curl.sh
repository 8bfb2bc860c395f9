#!/usr/bin/env bash
# The protocol without a client library: a call, an error, a batch, a notification, a task and a tensor, with curl only.
#
#     shared-tensor-server --load libexample_plugin.so &
#     examples/curl.sh
#
# docs/protocol.md is the full description. With --unix-socket PATH: curl --unix-socket PATH http://localhost/jsonrpc
set -euo pipefail
url=${SHARED_TENSOR_URL:-http://127.0.0.1:2537}

post() {
  curl -sS --fail-with-body --noproxy '*' --max-time 20 "$url/jsonrpc" -H 'Content-Type: application/json' "${@:2}" -d "$1"
}
show() {
  echo "> $1"
  echo "< $(post "$@")"
}

echo "# a call, by position and by name"
show '{"jsonrpc":"2.0","id":1,"method":"add","params":[1,2]}'
show '{"jsonrpc":"2.0","id":2,"method":"add","params":{"b":40,"a":2}}'

echo "# an error"
show '{"jsonrpc":"2.0","id":3,"method":"add","params":[1,"two"]}'

echo "# a batch: the answers carry their requests' ids"
show '[{"jsonrpc":"2.0","id":"a","method":"add","params":[1,1]},{"jsonrpc":"2.0","id":"b","method":"nobody"}]'

echo "# a notification: no id, no answer"
show '{"jsonrpc":"2.0","method":"echo","params":["heard"]}'

echo "# a tensor"
show '{"jsonrpc":"2.0","id":4,"method":"scale","params":[{"$tensor":{"dtype":"float32","shape":[2,2],"data":[[1,2],[3,4]]}},10]}'

echo "# a deadline of 100 ms for a call that takes 10 s"
show '{"jsonrpc":"2.0","id":5,"method":"sleep","params":[10]}' -H 'Request-Timeout: 100'

echo "# a task: submitted, waited for, its result"
task=$(post '{"jsonrpc":"2.0","id":6,"method":"task.submit","params":{"method":"sleep","params":[0.5]}}' |
  sed -n 's/.*"id":"\(t-[0-9a-f]*\)".*/\1/p')
[ -n "$task" ] || { echo "curl.sh: no task" >&2; exit 1; }
show '{"jsonrpc":"2.0","id":7,"method":"task.wait","params":{"id":"'"$task"'","timeout_ms":10000}}'
show '{"jsonrpc":"2.0","id":8,"method":"task.result","params":["'"$task"'"]}'

echo "# what there is"
curl -sS --fail-with-body --noproxy '*' --max-time 20 "$url/openrpc.json" | cut -c1-400
