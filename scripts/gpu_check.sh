#!/bin/sh
# Compares a CUDA device with the CPU, token for token, and measures both shortly: scripts/gpu_check.py says how.
# Needs torch, transformers, safetensors and rich; no gradio, no plotly, no network. Options go on to gpu_check.py.
#
#   PYTHON         the interpreter                              (python3)
#   OUT            where gpu_check.json is written              (runs/gpu)
#   WEIGHTS_PARTS  a folder with the default target's GGUF file, in one piece or cut up as weights.part*: joined, checked
#                  and converted when models/ has no weights yet (needs the package gguf, this once)
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
OUT=${OUT:-runs/gpu}
PARTS=${WEIGHTS_PARTS:-.}
WEIGHTS=${SPECVIZ_MODELS:-models}/smollm2-135m-instruct/model.safetensors
mkdir -p "$OUT"
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 PYTHONUNBUFFERED=1 OMP_WAIT_POLICY=passive
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

if [ ! -e "$WEIGHTS" ] && ls "$PARTS"/weights.part* >/dev/null 2>&1; then
  joined=$(mktemp)
  trap 'rm -f "$joined"' EXIT
  cat "$PARTS"/weights.part* >"$joined"
  "$PYTHON" -m specviz fetch --gguf "$joined"
fi
"$PYTHON" scripts/gpu_check.py --out "$OUT" "$@"
