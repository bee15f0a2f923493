#!/usr/bin/env bash
# Runs the packed GPU tests and benchmarks (./dev gpu-check) and prints one table. Needs a driver and the libraries of CUDA 13, but
# neither Bazel nor packages: everything else is in this folder.
set -uo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" || exit

# The folders that may have the CUDA libraries: the toolkit's, and those of Python's nvidia-* packages.
cuda_folders() {
  echo "${CUDA_PATH:-/usr/local/cuda}/lib64"
  python3 - 2>/dev/null <<'EOF'
import glob, os, site, sys
for root in {*site.getsitepackages(), *sys.path}:
    for folder in sorted(glob.glob(os.path.join(root, "nvidia", "*", "lib"))):
        print(folder)
EOF
}
LD_LIBRARY_PATH=$PWD/lib:$(cuda_folders | sort -u | paste -sd:)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH

count() {  # KIND LOG: of gtest's closing lines, "[  PASSED  ] 7 tests."
  sed -n "s/^\[  $1 *\] \([0-9]*\) test.*/\1/p" "$2" | tail -n 1 | grep . || echo 0
}

field() {  # NAME LOG: of train's line, "median_ms=1.25"
  sed -n "s/.* $1=\([0-9.]*\).*/\1/p" "$2" | tail -n 1 | grep . || echo -
}

mkdir -p logs
status=0
printf '%-28s %7s %8s %7s %8s  %s\n' program passed skipped failed seconds note
for program in bin/*; do
  name=${program#bin/}
  log=logs/$name.txt
  begin=$(date +%s.%N)
  timeout "${GPU_CHECK_SECONDS:-300}" "$program" >"$log" 2>&1
  result=$?
  seconds=$(printf '%.1f' "$(awk "BEGIN { print $(date +%s.%N) - $begin }")")
  note=
  if grep -q '^\[  SKIPPED' "$log"; then
    note=$(grep -A 1 -E 'Skipped$' "$log" | grep -vE 'Skipped$|^--' | head -n 1)
  fi
  if ((result)); then
    status=1
    note="status $result: $(grep -E 'Failure|error while loading|ERROR|terminate' "$log" | head -n 1)"
  fi
  printf '%-28s %7s %8s %7s %8s  %s\n' "$name" "$(count PASSED "$log")" "$(count SKIPPED "$log")" \
    "$(count FAILED "$log")" "$seconds" "$note"
done
# Training steps on the first card: float32, and 16-bit products with float32 weights.
printf '\n%-28s %14s %10s %12s  %s\n' benchmark precision ms/step examples/s note
for model in mlp cnn resnet20 gpt; do
  for precision in float32 mixed_bfloat16 mixed_float16; do
    log=logs/train_${model}_$precision.txt
    timeout "${GPU_CHECK_SECONDS:-300}" ./train --device=gpu:0 "--model=$model" "--precision=$precision" >"$log" 2>&1
    result=$?
    note=
    if ((result)); then
      # Without a card there is nothing to measure, as tests are skipped then.
      note="status $result: $(grep -E 'error|ERROR|terminate|no device' "$log" | head -n 1)"
      grep -q 'no GPU' "$log" || status=1
    fi
    printf '%-28s %14s %10s %12s  %s\n' "train $model gpu:0" "$precision" "$(field median_ms "$log")" \
      "$(field examples_per_s "$log")" "$note"
  done
done
echo "details: $PWD/logs"
exit "$status"
