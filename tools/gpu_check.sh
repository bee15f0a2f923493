#!/usr/bin/env bash
# Runs the packed GPU tests and benchmarks (./dev gpu-check) and prints one table. Needs a driver and the libraries of CUDA 13, but
# neither Bazel nor packages: everything else is in this folder. --sanitizer: the tests alone, three times, by the tools of
# compute-sanitizer, which is slow. GPU_CHECK_SECONDS limits each line of the table.
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

limit=${GPU_CHECK_SECONDS:-1500}

suites() {  # PROGRAM: of gtest's list, whose suites are "Conv." or "Conv/0.  # TypeParam = float"
  "$1" --gtest_list_tests 2>/dev/null | sed -n 's/^\([^ ]*\.\)\( .*\)\{0,1\}$/\1/p'
}

# A line for one suite of a test program; a suite of its own process loses nothing when another one hangs.
check_suite() {  # PROGRAM SUITE [TOOL]
  local program=$1 suite=$2 tool=${3:-} sanitizer=() name log begin seconds result note=
  name=${program#bin/}${suite:+ ${suite%.}}
  if [[ -n $tool ]]; then
    name+=", $tool"
    sanitizer=(compute-sanitizer "--tool=$tool" --error-exitcode=1)
  fi
  log=logs/${name//[^[:alnum:]_]/_}.txt
  begin=$(date +%s.%N)
  timeout "$limit" "${sanitizer[@]}" "$program" "--gtest_filter=$suite*" >"$log" 2>&1
  result=$?
  seconds=$(printf '%.1f' "$(awk "BEGIN { print $(date +%s.%N) - $begin }")")
  if grep -q '^\[  SKIPPED' "$log"; then
    note=$(grep -A 1 -E 'Skipped$' "$log" | grep -vE 'Skipped$|^--' | head -n 1)
  fi
  if ((result == 124)); then
    note="not done in $limit s"
  elif ((result)); then
    note="status $result: $(grep -E 'Failure|=+ +(Invalid|Error|Race|Barrier)|error while loading|ERROR|terminate' "$log" | head -n 1)"
  fi
  printf '%-52s %7s %8s %7s %8s  %s\n' "$name" "$(count PASSED "$log")" "$(count SKIPPED "$log")" \
    "$(count FAILED "$log")" "$seconds" "$note"
  return "$((result != 0))"
}

check_programs() {  # [TOOL]
  local program suite found failed=0
  for program in bin/*; do
    mapfile -t found < <(suites "$program")
    # What has no list does not start: the whole program says why.
    for suite in "${found[@]-}"; do
      check_suite "$program" "$suite" "$@" || failed=1
    done
  done
  return "$failed"
}

tools=()
if [[ ${1:-} == --sanitizer ]]; then
  tools=(memcheck racecheck synccheck)
  PATH=$PATH:${CUDA_PATH:-/usr/local/cuda}/bin
  if ! command -v compute-sanitizer >/dev/null; then
    echo "there is no compute-sanitizer in PATH, nor in ${CUDA_PATH:-/usr/local/cuda}/bin" >&2
    exit 2
  fi
fi
mkdir -p logs
status=0
printf '%-52s %7s %8s %7s %8s  %s\n' "program and suite" passed skipped failed seconds note
if ((${#tools[@]})); then
  for tool in "${tools[@]}"; do
    check_programs "$tool" || status=1
  done
  echo "details: $PWD/logs"
  exit "$status"
fi
check_programs || status=1
# Training steps on the first card: float32 with and without TF32, and 16-bit products with float32 weights; beside PyTorch where
# Python has one that sees the card. GPU_CHECK_MODELS are the models, all by default.
benchmark() {  # WHO PRECISION LOG COMMAND...
  local log=logs/$3.txt result note
  timeout "$limit" "${@:4}" >"$log" 2>&1
  result=$?
  note=$(sed -n 's/^ratio.* \(cohort.torch=[0-9.]*\).*/\1/p' "$log")
  if ((result)); then
    # Without a card there is nothing to measure, as tests are skipped then.
    note="status $result: $(grep -E 'error|Error|ERROR|terminate|no device' "$log" | head -n 1)"
    grep -q 'no GPU' "$log" || status=1
  fi
  printf '%-28s %14s %10s %12s  %s\n' "$1" "$2" "$(field median_ms "$log")" "$(field examples_per_s "$log")" "$note"
}

versions() {  # of the libraries that the programs find
  python3 - 2>/dev/null <<'EOF'
import ctypes
for name, file, function in (("cuBLASLt", "libcublasLt.so.13", "cublasLtGetVersion"),
                             ("cuDNN", "libcudnn.so.9", "cudnnGetVersion"), ("NCCL", "libnccl.so.2", "ncclGetVersion")):
    try:
        call, number = getattr(ctypes.CDLL(file), function), ctypes.c_int()
        call.restype = ctypes.c_size_t  # a version; NCCL's is a status, and the version is written
        print(name, number.value if call(ctypes.byref(number)) == 0 else call())
    except OSError:
        print(name, "-")
EOF
}

printf '\ndriver %s\n' "$(nvidia-smi --query-gpu=driver_version,name --format=csv,noheader 2>/dev/null | head -n 1 | grep . || echo -)"
versions

# What buckets of gradients cost, with one rank and with a card for each.
printf '\nall-reduces by NCCL\n'
timeout "$limit" ./nccl_allreduce >logs/nccl_allreduce.txt 2>&1 || {
  grep -q 'no GPU' logs/nccl_allreduce.txt || status=1
}
cat logs/nccl_allreduce.txt

# PyTorch brings libraries of its own.
export PYTHON=${PYTHON:-env -u LD_LIBRARY_PATH python3}
has_torch=$($PYTHON -c 'import torch; print(int(torch.cuda.is_available()))' 2>/dev/null)
printf '\n%-28s %14s %10s %12s  %s\n' benchmark precision ms/step examples/s note
for model in ${GPU_CHECK_MODELS:-mlp cnn resnet20 gpt resnet50 gpt2}; do
  for precision in float32 tf32 mixed_bfloat16 mixed_float16; do
    flags=(--device=gpu:0 "--model=$model" "--precision=${precision/#tf32/float32}")
    [[ $precision != tf32 ]] || flags+=(--tf32)
    benchmark "train $model gpu:0" "$precision" "train_${model}_$precision" ./train "${flags[@]}"
    [[ $has_torch == 1 ]] || continue
    # The last line of times is the peer's.
    flags+=(--vs-torch --rounds=1 "--peer=$PWD/torch_train.py" --channels-last)
    benchmark "  PyTorch, eager" "$precision" "torch_${model}_$precision" ./train "${flags[@]}"
    benchmark "  PyTorch, compiled" "$precision" "compiled_${model}_$precision" ./train "${flags[@]}" --compile
  done
done
echo "details: $PWD/logs"
exit "$status"
