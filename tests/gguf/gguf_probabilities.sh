#!/bin/bash
# gguf_probabilities.sh PROGRAM: llama.cpp's opinion on exported models, through node-llama-cpp. Exits
# with 77 (skipped) where that is not installed: in a folder of one's own,
#   npm install --omit=optional node-llama-cpp@3.21.1 @node-llama-cpp/linux-x64@3.21.1
# and its node_modules in LOCKSTEP_NODE_MODULES.
set -euo pipefail
modules=${LOCKSTEP_NODE_MODULES:-}
if [ -z "$modules" ] || [ ! -d "$modules/node-llama-cpp" ] || ! command -v node > /dev/null; then
  echo "node-llama-cpp is not installed (LOCKSTEP_NODE_MODULES)"
  exit 77
fi
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for dtype in F32 F16; do
  for head in tied untied; do
    "$1" "$folder" "$dtype" "$head"
    echo "$dtype, head $head:"
    node "$here/gguf_probabilities.mjs" "$folder" "$modules"
  done
done
