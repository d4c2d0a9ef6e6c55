#!/bin/sh
# Runs a command without its output, which is shown only if the command fails.
# Usage: scripts/quietly.sh COMMAND [ARGUMENT...]
set -u
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM

"$@" >"$log" 2>&1 </dev/null
status=$?
[ "$status" -eq 0 ] || cat "$log" >&2
exit "$status"
