#!/usr/bin/env bash
# Runs the packed GPU tests and benchmarks (./dev gpu-check) and prints one table. Needs a driver, the libraries of CUDA 13, bash,
# tar and gzip, but neither Bazel nor packages: everything else is in this folder. --tests, --benchmarks: these alone.
# --sanitizer[=TOOL]: the tests alone, by all three tools of compute-sanitizer or by one, which is slow. GPU_CHECK_SECONDS limits each
# process, GPU_CHECK_TOTAL_SECONDS all of them, and GPU_CHECK_JOBS tests run at once; of the suites those run whose program and name
# match GPU_CHECK_SUITES, an extended regular expression ('^gpu_kernels_test (Conv2D|MatMul)'). GPU_CHECK_MODELS and
# GPU_CHECK_PRECISIONS are what is measured, and PYTHON is the interpreter that has PyTorch. -- COMMAND runs a command in this folder
# with the libraries of the tests. What has failed is listed at the end, each test with its reason.
set -uo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" || exit
wanted=${1:-all}
case $wanted in
  all | --tests | --benchmarks | --) tools=("") ;;
  --sanitizer) tools=(memcheck racecheck synccheck) ;;
  --sanitizer=?*) tools=("${wanted#*=}") ;;
  *)
    echo "usage: $0 [--tests | --benchmarks | --sanitizer[=TOOL] | -- COMMAND...]" >&2
    exit 2
    ;;
esac
PATH=$PATH:${CUDA_PATH:-/usr/local/cuda}/bin
if [[ $wanted == --sanitizer* ]]; then
  if ! command -v compute-sanitizer >/dev/null; then
    echo "there is no compute-sanitizer in PATH, nor in ${CUDA_PATH:-/usr/local/cuda}/bin" >&2
    exit 2
  fi
fi
if [[ -f programs.tar.gz ]]; then
  tar --extract --gzip --no-same-owner --file programs.tar.gz || exit
fi
mkdir -p logs
python=${PYTHON:-python3}

limit=${GPU_CHECK_SECONDS:-240} total=${GPU_CHECK_TOTAL_SECONDS:-570}
[[ $wanted != --sanitizer* ]] || total=${GPU_CHECK_TOTAL_SECONDS:-14400}
jobs=${GPU_CHECK_JOBS:-$((($(nproc) + 1) / 2))}
((jobs > 0)) || jobs=1
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM

# The folders that may have the CUDA libraries: the toolkit's, and those of Python's nvidia-* packages.
cuda_folders() {
  echo "${CUDA_PATH:-/usr/local/cuda}/lib64"
  # shellcheck disable=SC2086  # PYTHON may be several words
  $python - 2>/dev/null <<'PYTHON'
import glob, os, site, sys
for root in {*site.getsitepackages(), *sys.path}:
    for folder in sorted(glob.glob(os.path.join(root, "nvidia", "*", "lib"))):
        print(folder)
PYTHON
}
# For our programs alone: others have libraries of their own.
ours=(env "LD_LIBRARY_PATH=$PWD/lib:$(cuda_folders | sort -u | paste -sd:)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
[[ $wanted != -- ]] || exec "${ours[@]}" "${@:2}"
rm -f logs/failed

# Runs a process as long as it may. What does not end when it is told to is killed.
limited() {  # LOG COMMAND...
  local seconds=$((total - SECONDS)) result
  ((seconds < limit)) || seconds=$limit
  if ((seconds <= 0)); then
    echo "no time left: GPU_CHECK_TOTAL_SECONDS is $total" >"$1"
    return 124
  fi
  # The shell tells of what a signal ends on its own standard error.
  {
    timeout --kill-after=5 "$seconds" "${@:2}" >"$1" 2>&1 &
    process=$!
    wait "$process"
  } 2>/dev/null
  result=$?
  ((result != 124 && result != 137)) || echo "not done in $seconds s" >>"$1"
  return "$result"
}

count() {  # KIND LOG: of gtest's closing lines, "[  PASSED  ] 7 tests."
  sed -n "s/^\[  $1 *\] \([0-9]*\) test.*/\1/p" "$2" | tail -n 1 | grep . || echo 0
}

field() {  # NAME LOG: of a line like train's, "median_ms=1.25"
  sed -n "s/.* $1=\([0-9.]*\).*/\1/p" "$2" 2>/dev/null | tail -n 1 | grep . || echo -
}

# What went wrong first, in one line.
reason() {  # LOG
  local pattern='^no time left|^not done in|Failure$|=+ +(Invalid|Error|Race|Barrier)|not found|rror|ERROR|terminate'
  grep -v '^\[' "$1" | grep -m 1 -A 2 -E "$pattern" | tr -s '\n ' ' ' | cut -c 1-240
}

note_failure() {  # LINE
  echo "$1" >>logs/failed
}

# At the end, which is what is seen first: what there was no time for is counted, for it would hide the rest.
show_failures() {
  local most=40 failures unstarted
  [[ -e logs/failed ]] || return
  mapfile -t failures < <(grep -v 'no time left' logs/failed)
  unstarted=$(grep -c 'no time left' logs/failed)
  ((${#failures[@]} == 0)) || printf 'failed: %s\n' "${failures[@]:0:most}"
  ((${#failures[@]} <= most)) || echo "failed: and $((${#failures[@]} - most)) more: logs/failed"
  ((unstarted == 0)) || echo "failed: $unstarted had no time left"
}

# A line for each suite of gtest's list, with its number and tests: "Conv. 1 SamePadding Strides". Of long suites each 16 tests are a
# part with a line of its own, so that they do not keep one process busy alone: "Conv. 2 Dilations".
suites() {  # PROGRAM
  "${ours[@]}" timeout --kill-after=5 "$limit" "$1" --gtest_list_tests 2>/dev/null |
    awk -v most=16 '/^[^ ]+\.( |$)/ { suite = $1; tests = 0 }
      /^  / {
        if (tests % most == 0) { printf "%s%s %d", end, suite, tests / most + 1; end = "\n" }
        printf " %s", $1; ++tests
      }
      END { printf "%s", end }'
}

# A line of the table for one part of a suite. Each test has a process of its own: it loses nothing when another one hangs or breaks
# the device's context. A program without a list does not start, and says why. Threads of the host do not spin: others want the cores.
check_suite() {  # PROGRAM TOOL SUITE PART TESTS...
  # Processes in the background hear nothing of the keyboard: told to end, they tell what they run.
  trap 'kill "${process:-}" 2>/dev/null; exit 143' TERM
  local program=$1 tool=$2 suite=$3 part=$4 run=("${ours[@]}" OMP_WAIT_POLICY=passive) name log begin note="" test passed=0 skipped=0 failed=0 result
  local why
  name=${program#bin/}${suite:+ ${suite%.}}
  [[ $part == 1 ]] || name+=" $part"
  name+=${tool:+, $tool}
  [[ -z $tool ]] || run+=(compute-sanitizer "--tool=$tool" --error-exitcode=1)
  # Libraries try calls of the driver that may fail, which memcheck would count. What fails of our own calls, programs throw.
  [[ $tool != memcheck ]] || run+=(--report-api-errors=no)
  log=logs/${name//[^[:alnum:]_]/_}
  begin=$SECONDS
  : >"$log.txt"
  shift 4
  for test in "${@:-*}"; do
    limited "$log.part" "${run[@]}" "$program" "--gtest_filter=$suite$test"
    result=$?
    cat "$log.part" >>"$log.txt"
    skipped=$((skipped + $(count SKIPPED "$log.part")))
    if ((result == 0)); then
      passed=$((passed + $(count PASSED "$log.part")))
      [[ -n $note ]] || note=$(grep -A 1 -E 'Skipped$' "$log.part" | sed -n 2p)
      [[ -n $note ]] || note=$(grep -m 1 warning: "$log.part")
    else
      why="$test: status $result: $(reason "$log.part")"
      ((failed)) || note=$why
      failed=$((failed + 1))
      note_failure "$name $why"
    fi
  done
  rm -f "$log.part"
  printf '%-52s %7s %8s %7s %8s  %s\n' "$name" "$passed" "$skipped" "$failed" "$((SECONDS - begin))" "$note"
}

check_programs() {  # TOOL
  local program lines words line started=0
  for program in bin/*; do
    mapfile -t lines < <(suites "$program")
    for line in "${lines[@]:-}"; do
      read -r -a words <<<"$line"
      # A program that does not start has no suites, and says why.
      [[ -z ${words[0]:-} || "${program#bin/} ${words[0]}" =~ ${GPU_CHECK_SUITES:-.} ]] || continue
      started=1
      while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done
      check_suite "$program" "$1" "${words[0]:-}" "${words[1]:-1}" "${words[@]:2}" &
    done
  done
  wait
  if ((!started)); then
    echo "no suite is one of GPU_CHECK_SUITES=$GPU_CHECK_SUITES"
    note_failure "no suite is one of GPU_CHECK_SUITES"
  fi
}

show_versions() {  # of the libraries that the programs find
  "${ours[@]}" python3 - 2>/dev/null <<'PYTHON'
import ctypes
for name, file, function in (("cuBLASLt", "libcublasLt.so.13", "cublasLtGetVersion"),
                             ("cuDNN", "libcudnn.so.9", "cudnnGetVersion"), ("NCCL", "libnccl.so.2", "ncclGetVersion")):
    try:
        call, number = getattr(ctypes.CDLL(file), function), ctypes.c_int()
        call.restype = ctypes.c_size_t  # a version; NCCL's is a status, and the version is written
        print(name, number.value if call(ctypes.byref(number)) == 0 else call())
    except OSError:
        print(name, "-")
PYTHON
}

# A line of the table for one way to train a model.
show_benchmark() {  # WHO PRECISION LOG STATUS NOTE
  local note=$5 warning
  if (($4)); then
    note="status $4: $(reason "$3")"
    # Without a card there is nothing to measure, as tests are skipped then.
    grep -q 'no GPU' "$3" || note_failure "$1 $2: $note"
  elif warning=$(grep -m 1 warning: "$3"); then
    note+=" $warning"
  fi
  printf '%-28s %14s %10s %12s  %s\n' "$1" "$2" "$(field median_ms "$3")" "$(field examples_per_s "$3")" "$note"
}

measure_ours() {  # MODEL PRECISION FLAGS...
  local log=logs/train_$1_$2.txt
  limited "$log" "${ours[@]}" ./train --device=gpu:0 "--model=$1" "${@:3}"
  show_benchmark "train $1 gpu:0" "$2" "$log" "$?" ""
}

# On the batch that ours had, right after it.
measure_peer() {  # WHO MODEL PRECISION FLAGS...
  local own=logs/train_$2_$3.txt log=logs/$1_$2_$3.txt batch times status
  batch=$(field local_batch "$own")
  [[ $batch != - ]] || return
  # shellcheck disable=SC2086  # PYTHON may be several words
  limited "$log" $python torch_train.py --device=cuda:0 "--model=$2" "--batch=$batch" --channels-last "${@:4}"
  status=$?
  times=$(awk -v own="$(field median_ms "$own")" -v peer="$(field median_ms "$log")" \
    'BEGIN { if (own > 0 && peer > 0) printf "cohort/torch=%.2f", peer / own }')
  show_benchmark "  PyTorch, $1" "$3" "$log" "$status" "$times"
}

measure_buckets() {  # LOG FLAGS...
  local log=logs/$1.txt
  limited "$log" "${ours[@]}" ./nccl_allreduce "${@:2}" || grep -q 'no GPU' "$log" || note_failure "$1: $(reason "$log")"
  cat "$log"
}

run_benchmarks() {
  local model precision flags torch=-
  # shellcheck disable=SC2086  # PYTHON may be several words
  if limited logs/torch.txt $python -c 'import torch; print(torch.__version__ if torch.cuda.is_available() else "-")'; then
    torch=$(tail -n 1 logs/torch.txt)
  fi
  printf '\ndriver %s\n' "$(nvidia-smi --query-gpu=driver_version,name --format=csv,noheader 2>/dev/null | head -n 1 | grep . || echo -)"
  show_versions
  printf 'PyTorch %s\n' "$torch"

  # What buckets of gradients cost, with one rank and with a card for each, by NCCL; between two logical GPUs of the first card, which
  # add up there; and by NCCL between two processes that share it.
  printf '\nall-reduces on GPUs\n'
  measure_buckets nccl_allreduce
  measure_buckets shared_card --shared=2
  # Contexts take turns on a card, so that these wait long for each other.
  measure_buckets nccl_processes --processes=2 --buckets=1 --repetitions=3

  # Training steps on the first card: float32 with and without TF32, and 16-bit products with float32 weights; beside PyTorch where
  # Python has one that sees the card. What is asked about most comes first, for the time may not suffice for all.
  printf '\n%-28s %14s %10s %12s  %s\n' benchmark precision ms/step examples/s note
  for precision in ${GPU_CHECK_PRECISIONS:-mixed_bfloat16 tf32 float32 mixed_float16}; do
    flags=("--precision=${precision/#tf32/float32}")
    [[ $precision != tf32 ]] || flags+=(--tf32)
    for model in ${GPU_CHECK_MODELS:-gpt2 resnet50 gpt resnet20 cnn mlp}; do
      measure_ours "$model" "$precision" "${flags[@]}"
      [[ $torch != - ]] || continue
      measure_peer eager "$model" "$precision" "${flags[@]}"
      measure_peer compiled "$model" "$precision" "${flags[@]}" --compile
    done
  done
}

if [[ $wanted != --benchmarks ]]; then
  printf '%-52s %7s %8s %7s %8s  %s\n' "program and suite" passed skipped failed seconds note
  for tool in "${tools[@]}"; do
    check_programs "$tool"
  done
fi
[[ $wanted != all && $wanted != --benchmarks ]] || run_benchmarks
show_failures
echo "details: $PWD/logs"
[[ ! -e logs/failed ]]
