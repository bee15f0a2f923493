#!/usr/bin/env -S python3 -B
"""Programs under a real Open MPI mpirun on this host; slurm_test.py has it on several hosts."""

import os
import shutil
import subprocess
import sys
import unittest

import cases
from programs import COHORT_CLUSTER, COHORT_RUN, ROLLCALL, free_port, read_tasks, rollcall, run

# More processes than cores, and as root, which test machines are.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe"]


class Mpirun(unittest.TestCase):
    def test_ranks_of_one_host_meet_there(self):
        tasks = rollcall(*MPIRUN, "-np", "4")
        self.assertEqual({task["launcher"] for task in tasks}, {"Open MPI"})
        self.assertEqual([task["local_rank"] for task in tasks], [0, 1, 2, 3])
        self.assertEqual({task["local_size"] for task in tasks}, {4})
        self.assertEqual(len({task["leader"] for task in tasks}), 1)
        self.assertTrue(tasks[0]["leader"].startswith("127.0.0.1:"))

    def test_a_leader_that_the_user_names(self):
        port = str(free_port())
        tasks = rollcall(*MPIRUN, "-np", "3", "-x", "MASTER_ADDR=localhost", "-x", f"MASTER_PORT={port}")
        self.assertEqual({task["leader"] for task in tasks}, {f"localhost:{port}"})

    def test_runs_side_by_side_do_not_meet(self):
        runs = [subprocess.Popen([*MPIRUN, "-np", "2", ROLLCALL], stdout=subprocess.PIPE, text=True) for _ in range(3)]
        printed = [process.communicate(timeout=cases.DEADLINE)[0] for process in runs]
        leaders = {read_tasks(text)[0]["leader"] for text in printed}
        self.assertEqual(len(leaders), 3)

    def test_a_single_rank(self):
        self.assertEqual(rollcall(*MPIRUN, "-np", "1")[0]["size"], 1)

    def test_programs_side_by_side_are_one_world(self):
        done = run(*MPIRUN, "-np", "1", ROLLCALL, ":", "-np", "2", ROLLCALL, "--timeout=30")
        self.assertEqual(len(read_tasks(done.stdout)), 3)

    def test_check_tells_where_ranks_are_from(self):
        table = run(*MPIRUN, "-np", "2", COHORT_CLUSTER, "check", "--timeout=0").stdout
        self.assertEqual(table.count("cluster from Open MPI: OMPI_COMM_WORLD_RANK is set"), 2)
        self.assertEqual(table.count("one host, ports of OMPI_MCA_orte_precondition_transports"), 2)


class CohortRun(unittest.TestCase):
    def test_becomes_the_program(self):
        done = run(*MPIRUN, "-np", "4", COHORT_RUN, "--workers=3", ROLLCALL)
        self.assertEqual({task["launcher"] for task in read_tasks(done.stdout)}, {"Open MPI"})
        self.assertEqual(done.stderr.count("cohort-run: one of 4 tasks of mpirun"), 1)

    def test_standalone_starts_a_cluster_in_each_rank(self):
        done = run(*MPIRUN, "-np", "2", COHORT_RUN, "--standalone", "--workers=2", ROLLCALL)
        self.assertEqual(done.stdout.count('"launcher":"TF_CONFIG"'), 4)

    def test_a_single_rank_starts_a_cluster(self):
        done = run(*MPIRUN, "-np", "1", COHORT_RUN, "--workers=2", ROLLCALL)
        self.assertEqual(done.stdout.count('"launcher":"TF_CONFIG"'), 2)

    def test_mpirun_may_be_the_program(self):
        # The other way round: each task of a local cluster is an mpirun. Ranks of MPI are not the cluster's then.
        done = run(COHORT_RUN, "--workers=1", *MPIRUN, "-np", "2", "printenv", "OMPI_COMM_WORLD_RANK")
        self.assertEqual(sorted(done.stdout.split("\n")), ["", "[worker:0] 0", "[worker:0] 1"])

    def test_exit_codes_go_through(self):
        run(*MPIRUN, "-np", "2", COHORT_RUN, "bash", "-c", "exit 42", status=42)


if __name__ == "__main__":
    os.environ.pop("TF_CONFIG", None)
    sys.exit(
        cases.run()
        if shutil.which("mpirun")
        else cases.skip_all("mpirun is not installed (./dev setup installs openmpi-bin)")
    )
