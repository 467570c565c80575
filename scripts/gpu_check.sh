#!/bin/sh
# Compares a CUDA device with the CPU, token for token, and measures what CUDA graphs give; every step has a time box.
# Needs torch, transformers, safetensors and rich (train: accelerate too); no gradio, no plotly, no network.
#
#   scripts/gpu_check.sh              correctness, peers, bench, profile, recording, goals: 8 files in OUT, at most 8 minutes
#   scripts/gpu_check.sh train        distils, captures features, trains every method: the heads and train.json in OUT
#   DRY=1 scripts/gpu_check.sh        the same steps on the CPU with tiny limits, to see that they work
#
#   PYTHON         the interpreter                              (python3)
#   OUT            where the results are written                (runs/gpu)
#   LIMIT          seconds for all of it, converting the weights included    (450, train: 540; six times as much in a dry run)
#   STEPS          only these, of: correctness peers bench profile overhead bfloat16 static goals    (all)
#   DRY            1: on the CPU with tiny limits               (0; without CUDA: on the CPU with the usual limits)
#   WEIGHTS_PARTS  a folder with the default target's GGUF file, in one piece or cut up as weights.part*: joined, checked
#                  and converted when models/ has no weights yet (needs the package gguf, this once)
# Options after the mode go on to gpu_check.py or gpu_train.py. Steps write their result as it comes: a step that runs over its box keeps
# what it had. Exit status: 1 when tokens or rounds differ beyond rounding, 2 when that comparison ran over its box.
set -eu
cd "$(dirname "$0")/.."
now() { date +%s; }
begun=$(now) # before the weights are converted: the machine is lent by the clock
PYTHON=${PYTHON:-python3}
OUT=${OUT:-runs/gpu}
PARTS=${WEIGHTS_PARTS:-.}
DRY=${DRY:-0}
if [ "$DRY" = 1 ]; then ROOMY=6; else ROOMY=1; fi # a dry run shows that the steps work: it may take its time
MODE=check USUAL=450
if [ "${1:-}" = train ]; then MODE=train USUAL=540; shift; fi
LIMIT=${LIMIT:-$((USUAL * ROOMY))}
STEPS=${STEPS:-correctness peers bench profile overhead bfloat16 static goals}
WEIGHTS=${SPECVIZ_MODELS:-models}/smollm2-135m-instruct/model.safetensors
mkdir -p "$OUT"
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 PYTHONUNBUFFERED=1 PIP_RETRIES=0 PIP_DEFAULT_TIMEOUT=5
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
SPECVIZ_CACHE=${SPECVIZ_CACHE:-$(mktemp -d)} # what an earlier run measured of this machine is not taken for this one's
export SPECVIZ_CACHE
if [ "$DRY" = 1 ]; then export CUDA_VISIBLE_DEVICES=""; fi

if [ ! -e "$WEIGHTS" ] && ls "$PARTS"/weights.part* >/dev/null 2>&1; then
  joined=$(mktemp)
  trap 'rm -f "$joined"' EXIT
  cat "$PARTS"/weights.part* >"$joined"
  "$PYTHON" -m specviz fetch --gguf "$joined" # about 40 s
fi

status=0
# step NAME SECONDS COMMAND...: runs it within its box (rest: what is left of LIMIT); one that fails or runs over costs no other step its result
step() {
  name=$1 box=$2 status=0
  shift 2
  case " $STEPS train " in *" $name "*) ;; *) return 0 ;; esac
  left=$((LIMIT - $(now) + begun))
  if [ "$box" = rest ]; then box=$left; else box=$((box * ROOMY)); fi
  if [ "$left" -lt 5 ]; then echo "== $name: left out, $LIMIT s are spent"; return 0; fi
  if [ "$box" -gt "$left" ]; then box=$left; fi
  echo "== $name (at most $box s)"
  from=$(now)
  timeout --kill-after=5 "$box" "$@" || status=$?
  if [ "$status" = 124 ] || [ "$status" = 137 ]; then echo "== $name: stopped after $box s"; else echo "== $name: $(($(now) - from)) s, exit status $status"; fi
  return 0
}

if [ "$MODE" = train ]; then
  if [ "$DRY" = 1 ]; then set -- --tiny "$@"; fi
  step train rest "$PYTHON" scripts/gpu_train.py --out "$OUT" --limit "$((LIMIT - $(now) + begun))" "$@"
  exit "$status"
fi

if [ "$DRY" = 1 ]; then
  CHECK="--tokens 8 --drafters autoregressive,prompt_lookup,eagle" SIZE="--limit 1 --max-new-tokens 8" REPEATS="--repeats 1" PROFILE="--quick --drafters none"
  SPECS=prompt_lookup,eagle@dynamic:nodes=8,depth=3,top_k=4
else
  CHECK="" SIZE="--limit 6 --max-new-tokens 128" REPEATS="--repeats 3" PROFILE="--batch 1"
  SPECS=$(timeout 20 "$PYTHON" scripts/gpu_check.py --specs) || { SPECS=prompt_lookup; echo "== no list of drafters: bench measures prompt_lookup alone"; }
fi

# The boxes, the conversion (45 s) and the list of drafters (20 s) leave the last step at least 50 s; what the others do not use is its own too.
step correctness 100 "$PYTHON" scripts/gpu_check.py --out "$OUT" $CHECK "$@"
verdict=$status
if [ "$verdict" = 124 ] || [ "$verdict" = 137 ]; then verdict=2; fi # which would read as the whole script's time being over
step peers 75 "$PYTHON" -m specviz bench --peers --only transformers_generate,transformers_prompt_lookup --drafters autoregressive $SIZE --json "$OUT/peers.json"
step bench 70 "$PYTHON" -m specviz bench --drafters "$SPECS" $SIZE --explain --json "$OUT/bench.json"
step profile 35 "$PYTHON" -m specviz profile $PROFILE --json "$OUT/profile.json"
step overhead 25 "$PYTHON" -m specviz bench --trace-overhead --drafters prompt_lookup $SIZE $REPEATS --json "$OUT/overhead.json"
step bfloat16 30 "$PYTHON" -m specviz profile --quick --drafters none --dtype bfloat16 --json "$OUT/profile_bf16.json"
# last, as compiling may take as long as everything else
step static rest "$PYTHON" -m specviz bench --peers --only transformers_static_cache --drafters autoregressive $SIZE --json "$OUT/peers_static.json"
case " $STEPS " in *" goals "*) "$PYTHON" scripts/gpu_goals.py "$OUT" || echo "== goals: exit status $?" ;; esac # not a step: it takes no time, and runs when none is left
exit "$verdict"
