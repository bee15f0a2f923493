#!/bin/bash
# Open MPI's mpirun, with as many ranks on each host as it has slots:
#
#   mpirun.sh host1:2,host2:2 PROGRAM [ARGS...]
#
# Rank 0 is on the first host. MPI tells nobody where that is, so that it has to be said.

set -euo pipefail
: "${2:?usage: mpirun.sh HOST[:SLOTS],... PROGRAM [ARGS...]}"

hosts=$1
leader=${hosts%%[:,]*}
exec mpirun --host "$hosts" -x MASTER_ADDR="$leader" -x MASTER_PORT="${MASTER_PORT:-29500}" "${@:2}"
