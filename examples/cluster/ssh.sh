#!/bin/bash
# Hosts without a scheduler: cohort-run as a node on each of them, over ssh, with as many workers as are asked for.
#
#   WORKERS=2 ssh.sh host1,host2 PROGRAM [ARGS...]
#
# The program and cohort-run (COHORT_RUN, by default found in PATH) have to be at the same place on all hosts. The nodes
# meet on the first host. When this script ends, the connections end, and with them the job.
#
# Nodes and tasks talk in plain text, on a network where everybody may be trusted, unless the hosts' environment names
# certificates (docs/cluster.md).

set -euo pipefail
: "${2:?usage: ssh.sh HOST,... PROGRAM [ARGS...]}"

IFS=, read -ra hosts <<<"$1"
flags=(--nnodes="${#hosts[@]}" --rendezvous="${hosts[0]}:${PORT:-29400}" --workers="${WORKERS:-1}")
flags+=(--job_id="$RANDOM$RANDOM$RANDOM")

nodes=()
for rank in "${!hosts[@]}"; do
  node=("${COHORT_RUN:-cohort-run}" --node_rank="$rank" "${flags[@]}" -- "${@:2}")
  start="env COHORT_ALLOW_PLAINTEXT=1 $(printf '%q ' "${node[@]}")"
  # A terminal (-tt), so that the end of the connection is a SIGHUP for cohort-run.
  ssh -tt "${hosts[rank]}" "cd $(printf %q "$PWD") && $start" </dev/null &
  nodes+=($!)
done
trap 'kill "${nodes[@]}" 2>/dev/null || true' EXIT

status=0
for node in "${nodes[@]}"; do
  wait "$node" || status=$?
done
exit "$status"
