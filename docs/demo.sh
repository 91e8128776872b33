#!/usr/bin/env bash
# The demo of `make demo`: trains the preset nano on two ranks and shows what came of it.
set -euo pipefail

build=${1:-build}
lockstep=$build/bin/lockstep
export LC_ALL=C

summary=$("$lockstep" train --preset nano -n 2 --json)
field() { printf '%s' "$summary" | sed -n "s/.*\"$1\":\"\\{0,1\\}\\([^,\"}]*\\).*/\\1/p"; }
run=$(field run)

echo
echo "validation loss   $(printf '%.4f' "$(field val_loss)") nats per byte"
echo "throughput        $(printf '%.0f' "$(field tokens_per_second)") tokens/s"
echo "param_digest      $(field param_digest)   (the same on 1, 2, 3 or 4 ranks)"
echo "run folder        $run"
echo
echo "A sample of what it writes:"
"$lockstep" generate "$run" --prompt "It was " --tokens 300
