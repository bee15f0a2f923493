#!/bin/bash
# Open MPI's mpirun, with as many ranks on each host as it has slots:
#
#   mpirun.sh host1:2,host2:2 PROGRAM [ARGS...]
#
# mpirun hands on to other hosts only those variables that it is told of: here all that are Cohort's, such as those of
# its certificates, and MASTER_ADDR and MASTER_PORT where rank 0 shall be reached at another address than its host's name.

set -euo pipefail
: "${2:?usage: mpirun.sh HOST[:SLOTS],... PROGRAM [ARGS...]}"

variables=()
for name in "${!COHORT_@}" "${!MASTER_@}"; do variables+=(-x "$name"); done
exec mpirun --host "$1" "${variables[@]}" "${@:2}"
