#!/bin/bash
# run.sh FOLDER_OF_PROGRAMS SECONDS: every fuzz_NAME there for its share of the time, on the seeds of
# corpus/NAME/. New inputs are kept beside the programs, not in the tree. Fails at the first fault;
# the input that showed it lies in FOLDER/found/NAME/.
set -euo pipefail
programs=$1
seconds=$2
corpus=$(cd "$(dirname "$0")" && pwd)/corpus
names=$(ls "$corpus")
share=$((seconds / $(echo "$names" | wc -l)))
for name in $names; do
  found=$programs/found/$name
  mkdir -p "$found/new"
  "$programs/fuzz_$name" -max_total_time="$share" -max_len=16384 -timeout=10 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="$found/" "$found/new" "$corpus/$name" \
    > "$found/log" 2>&1 || { tail -40 "$found/log"; exit 1; }
  echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$found/log") executions in $share s"
done
