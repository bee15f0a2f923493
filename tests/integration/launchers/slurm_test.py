#!/usr/bin/env -S python3 -B
"""Programs under a real Slurm of four hosts: what the resolver reads there, and what cohort-run does."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest

import cases
import emulated_slurm
from batch_jobs import Case, wait_for
from programs import COHORT_CLUSTER, COHORT_RUN, ROLLCALL, TRAINER, read_tasks, rollcall, run

_UNAVAILABLE = 24  # the exit code of Cohort's programs
_SALLOC = ("salloc", "--quiet", "-N4", "-n4")
_MPIRUN = ("mpirun", "--allow-run-as-root")
_PLAINTEXT = {"COHORT_ALLOW_PLAINTEXT": "1"}


def hosts(tasks):
    return [task["host"] for task in tasks]


class Srun(Case):
    """Steps of all shapes. That each task is where its address says is checked by rollcall itself and by its host."""

    def check_places(self, tasks):
        self.assertEqual({task["launcher"] for task in tasks}, {"Slurm"})
        self.assertEqual(hosts(tasks), [address.split(":")[0] for address in tasks[0]["addresses"]])
        for task in tasks:
            self.assertEqual(task["addresses"], tasks[0]["addresses"])
            self.assertEqual(task["leader"], tasks[0]["addresses"][0])

    def check_step(self, *options, expected):
        tasks = rollcall("srun", *options)
        self.check_places(tasks)
        self.assertEqual(hosts(tasks), expected)

    def test_a_task_for_each_host(self):
        self.check_step("-N4", "-n4", expected=["n1", "n2", "n3", "n4"])

    def test_several_tasks_for_each_host(self):
        self.check_step("-N2", "-n4", "--ntasks-per-node=2", "-wn[2-3]", expected=["n2", "n2", "n3", "n3"])

    def test_slurm_may_deal_unevenly(self):
        tasks = rollcall("srun", "-N2", "-n4")
        self.check_places(tasks)
        self.assertEqual(len(set(hosts(tasks))), 2)

    def test_a_single_task(self):
        self.check_step("-n1", "-wn3", expected=["n3"])

    def test_cyclic(self):
        self.check_step(
            "-N2", "-n6", "--ntasks-per-node=3", "-wn[1,4]", "--distribution=cyclic", expected=["n1", "n4"] * 3
        )

    def test_planes_of_two(self):
        tasks = rollcall("srun", "-N3", "-n9", "-wn[1-3]", "--distribution=plane=2")
        self.check_places(tasks)
        self.assertEqual(hosts(tasks)[:5], ["n1", "n1", "n2", "n2", "n3"])

    def test_more_tasks_than_processors(self):
        self.check_step("-N2", "-n10", "--overcommit", "-wn[1-2]", expected=["n1"] * 5 + ["n2"] * 5)

    def test_pmi2(self):
        self.check_step("-N4", "-n4", "--mpi=pmi2", expected=["n1", "n2", "n3", "n4"])

    def test_pmix(self):
        # On one host: those of this Slurm share the folder in which PMIx has its files.
        self.check_step("-N1", "-n2", "-wn2", "--mpi=pmix", expected=["n2", "n2"])

    def test_heterogeneous_step(self):
        tasks = rollcall("srun", "-N1", "-n2", "-wn2", ROLLCALL, ":", "-N2", "-n2", "-wn[3-4]")
        self.check_places(tasks)
        self.assertEqual(hosts(tasks), ["n2", "n2", "n3", "n4"])

    def test_a_host_file_is_refused(self):
        host_file = self.folder / "hosts"
        host_file.write_text("n2\nn1\nn2\n", encoding="utf-8")
        errors = run(
            "srun",
            "-n3",
            "--distribution=arbitrary",
            ROLLCALL,
            status=2,
            environment={"SLURM_HOSTFILE": str(host_file)},
        ).stderr
        self.assertIn('SLURM_DISTRIBUTION: found "arbitrary"', errors)

    def test_check_reaches_a_task_that_listens(self):
        # Rank 1 listens where it should, until rank 0 has reached it, which stops at the first success.
        task = self.folder / "task"
        task.write_text(
            f"""#!/usr/bin/env python3
import json, os, pathlib, socket, subprocess, time
check = lambda *flags: subprocess.run(["{COHORT_CLUSTER}", "check", "--json", *flags], stdout=subprocess.PIPE)
done = pathlib.Path("{self.folder}/done")
deadline = time.monotonic() + {cases.DEADLINE}
if os.environ["SLURM_PROCID"] == "1":
    host, port = json.loads(check("--timeout=0").stdout)["cluster"]["worker"][1].split(":")
    server = socket.create_server((host, int(port)))
    while not done.exists() and time.monotonic() < deadline: time.sleep(0.02)
else:
    while (result := check("--timeout=1")).returncode == {_UNAVAILABLE} and time.monotonic() < deadline: time.sleep(0.02)
    done.touch()
    print(result.stdout.decode())
""",
            encoding="utf-8",
        )
        task.chmod(0o755)
        shown = json.loads(run("srun", "-N2", "-n2", "-wn[3-4]", str(task), environment=_PLAINTEXT).stdout)
        self.assertEqual(shown["launcher"], "Slurm")
        self.assertEqual(shown["world"], {"rank": 0, "size": 2})
        self.assertIn("SLURM_STEP_NODELIST column 1, ports of job", shown["facts"][0]["source"])
        self.assertEqual([peer["address"].split(":")[0] for peer in shown["peers"]], ["n3", "n4"])
        self.assertEqual([peer["reachable"] for peer in shown["peers"]], [True, True])

    def test_check_names_who_cannot_be_reached(self):
        # All look, and nobody stays for the others.
        command = ("srun", "-N2", "-n2", COHORT_CLUSTER, "check", "--timeout=1")
        errors = run(*command, status=_UNAVAILABLE, environment=_PLAINTEXT).stderr
        self.assertIn("1 of 2 tasks cannot be reached: worker:", errors)


class Sbatch(Case):
    """Steps of batch jobs."""

    def test_a_step(self):
        job = self.submit(f"#SBATCH --nodes=2 --ntasks-per-node=2\nsrun {ROLLCALL}\n")
        self.wait_for_job(job)
        self.assertEqual([task["launcher"] for task in read_tasks(self.output(job))], ["Slurm"] * 4)

    def test_the_distribution_of_the_job_is_that_of_its_steps(self):
        job = self.submit(f"#SBATCH --nodes=2 --ntasks-per-node=2 --distribution=cyclic\nsrun {ROLLCALL}\n")
        self.wait_for_job(job)
        first, second, *others = hosts(read_tasks(self.output(job)))
        self.assertNotEqual(first, second)
        self.assertEqual(others, [first, second])

    def test_the_script_itself_is_no_task(self):
        job = self.submit(f"#SBATCH --nodes=2 --ntasks=4\n{ROLLCALL}\n{COHORT_CLUSTER} check\n")
        self.wait_for_job(job)
        self.assertIn('"launcher":"literal"', self.output(job))
        self.assertIn("this is a Slurm job, in which srun starts the tasks", self.output(job))

    def test_steps_side_by_side_do_not_meet(self):
        job = self.submit(
            f"#SBATCH --nodes=2 --ntasks-per-node=4\nfor i in 1 2; do\n"
            f"  srun --exact -n4 -N2 {ROLLCALL} > {self.folder}/step$i &\ndone\nwait -n && wait -n\n"
        )
        self.wait_for_job(job)
        first, second = (read_tasks((self.folder / f"step{i}").read_text(encoding="utf-8")) for i in (1, 2))
        self.assertFalse(set(first[0]["addresses"]) & set(second[0]["addresses"]))

    def test_an_array(self):
        job = self.submit(
            f"#SBATCH --nodes=2 --ntasks=2 --cpus-per-task=1 --array=1-4\nsrun {ROLLCALL}\n",
            f"--output={self.folder}/array.%a.out",
        )
        self.wait_for_job(job)
        leaders = {read_tasks(self.output(index))[0]["leader"] for index in range(1, 5)}
        self.assertEqual(len(leaders), 4)


class CohortRun(Case):
    """cohort-run where Slurm starts processes."""

    def test_becomes_the_program_under_srun(self):
        done = run("srun", "-N4", "-n4", COHORT_RUN, "--workers=3", ROLLCALL)
        self.assertEqual(hosts(read_tasks(done.stdout)), ["n1", "n2", "n3", "n4"])
        self.assertEqual(done.stderr.count("cohort-run: one of 4 tasks of srun"), 1)

    def test_standalone_starts_a_cluster_in_each_task(self):
        done = run("srun", "-N2", "-n2", COHORT_RUN, "--standalone", "--workers=2", ROLLCALL)
        self.assertEqual(done.stdout.count('[worker:1] {"addresses":["127.0.0.1:'), 2)
        self.assertEqual(done.stdout.count('"launcher":"TF_CONFIG"'), 4)

    def test_a_single_task_starts_a_cluster(self):
        done = run("srun", "-n1", COHORT_RUN, "--workers=2", ROLLCALL)
        self.assertIn("[worker:1]", done.stdout)

    def test_a_batch_script_starts_a_cluster(self):
        job = self.submit(f"#SBATCH --nodes=2 --ntasks=4\n{COHORT_RUN} --workers=3 {ROLLCALL}\n")
        self.wait_for_job(job)
        self.assertEqual(self.output(job).count('"launcher":"TF_CONFIG"'), 3)

    def test_exit_codes_go_through(self):
        run("srun", "-n2", COHORT_RUN, "--", "bash", "-c", "exit 42", status=42)


class Signals(Case):
    """What scancel ends."""

    # Writes `started` and `ended` with its rank, or number, into the folder.
    PROGRAM = """\
trap 'touch {folder}/ended.$1; exit 0' TERM
touch {folder}/started.$1
while :; do sleep 0.05; done
"""

    def setUp(self):
        super().setUp()
        self.program = self.folder / "program"
        self.program.write_text(self.PROGRAM.format(folder=self.folder), encoding="utf-8")

    def check(self, job, names, *scancel):
        wait_for(lambda: all((self.folder / f"started.{name}").exists() for name in names), f"tasks {names}")
        run("scancel", *scancel, job)
        wait_for(lambda: all((self.folder / f"ended.{name}").exists() for name in names), f"SIGTERM in tasks {names}")

    def test_sigterm_reaches_every_task(self):
        job = self.submit(f"#SBATCH --nodes=4 --ntasks=4\nsrun bash -c 'exec bash {self.program} $SLURM_PROCID'\n")
        self.check(job, range(4))
        self.wait_for_job(job, "CANCELLED")

    def test_sigterm_reaches_what_cohort_run_has_become(self):
        job = self.submit(
            f"#SBATCH --nodes=2 --ntasks=4\n" f"srun {COHORT_RUN} bash -c 'exec bash {self.program} $SLURM_PROCID'\n"
        )
        self.check(job, range(4))
        self.wait_for_job(job, "CANCELLED")

    def test_sigterm_reaches_the_tasks_of_a_local_cluster(self):
        job = self.submit(
            f"#SBATCH --ntasks=1\nexec {COHORT_RUN} --workers=2 bash -c 'exec bash {self.program} $RANK'\n"
        )
        self.check(job, range(2))
        self.wait_for_job(job, "CANCELLED")

    def test_a_signal_for_the_steps_leaves_the_script_alone(self):
        job = self.submit(
            f"#SBATCH --nodes=2 --ntasks=2\nsrun bash -c 'exec bash {self.program} $SLURM_PROCID'\necho on\n"
        )
        self.check(job, range(2), f"--signal={signal.SIGTERM.name[3:]}")
        self.wait_for_job(job, "COMPLETED")
        self.assertIn("on", self.output(job))


@unittest.skipUnless(shutil.which("mpirun"), "mpirun is not installed (./dev setup installs openmpi-bin)")
class Mpirun(Case):
    """Open MPI's mpirun, which starts its daemons by srun, one for each host."""

    def check(self, *options, size, launcher="Open MPI"):
        tasks = rollcall(*_SALLOC, *_MPIRUN, *options)
        self.assertEqual([task["launcher"] for task in tasks], [launcher] * size)
        return tasks

    def test_ranks_on_several_hosts_meet_at_the_leader_that_the_user_names(self):
        tasks = self.check("-x", "MASTER_ADDR=n1", "-x", "MASTER_PORT=29500", size=4)
        self.assertEqual(hosts(tasks), ["n1", "n2", "n3", "n4"])
        self.assertEqual({task["leader"] for task in tasks}, {"n1:29500"})

    def test_without_it_they_meet_on_the_host_of_rank_0(self):
        leaders = set()
        for options, size in (((), 4), (("-np", "2", "--host", "n3,n2"), 2)):
            tasks = self.check(*options, size=size)
            (leader,) = {task["leader"] for task in tasks}
            self.assertEqual(leader.split(":")[0], tasks[0]["host"])
            leaders.add(leader.split(":")[1])
        self.assertEqual(len(leaders), 2, "every run has a port of its own")

    def test_check_tells_where_the_leader_is_from(self):
        done = run(*_SALLOC, *_MPIRUN, COHORT_CLUSTER, "check", "--timeout=0")
        source = "rank 0's host by PMIx, ports of OMPI_MCA_orte_precondition_transports"
        self.assertEqual(done.stdout.count(source), 4, done.stdout)

    def test_workers_train_over_mpi(self):
        # TCP is what these hosts have; Open MPI would find the memory of the machine under them.
        transport = ("--mca", "pml", "ob1", "--mca", "btl", "self,tcp")
        flags = ("--loop=own", "--epochs=1")
        allowed = ("-x", "COHORT_ALLOW_PLAINTEXT=1", "-x", "OMP_NUM_THREADS=1")
        done = run(*_SALLOC, *_MPIRUN, *transport, *allowed, TRAINER, *flags)
        self.assertEqual(len(set(re.findall("^weights=(.*)$", done.stdout, re.MULTILINE))), 1, done.stdout)

    def test_plain_text_beyond_the_host_must_be_allowed(self):
        done = subprocess.run(
            [*_SALLOC, *_MPIRUN, TRAINER],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=cases.DEADLINE,
            check=False,
        )
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("or set COHORT_ALLOW_PLAINTEXT=1", done.stderr)

    def test_ranks_on_one_of_the_hosts(self):
        tasks = self.check("-np", "2", "--oversubscribe", "--host", "n1:2", size=2)
        self.assertEqual({task["leader"].split(":")[0] for task in tasks}, {"127.0.0.1"})

    def test_cohort_run_becomes_the_program(self):
        done = run(
            "salloc",
            "--quiet",
            "-N2",
            "-n2",
            "-wn[1-2]",
            "mpirun",
            "--allow-run-as-root",
            COHORT_RUN,
            ROLLCALL,
        )
        self.assertEqual(len(read_tasks(done.stdout)), 2)
        self.assertEqual(done.stderr.count("cohort-run: one of 2 tasks of mpirun"), 1)

    def test_cohort_run_as_the_only_rank_starts_a_cluster(self):
        # mpirun's daemons, which run on both hosts, are tasks of a step of two.
        done = run(
            "salloc",
            "--quiet",
            "-N2",
            "-n2",
            "-wn[1-2]",
            "mpirun",
            "--allow-run-as-root",
            "-np",
            "1",
            "--host",
            "n2",
            COHORT_RUN,
            "--workers=2",
            ROLLCALL,
        )
        self.assertEqual(done.stdout.count('"launcher":"TF_CONFIG"'), 2)


class Torchrun(Case):
    """The variables that PyTorch programs want, set by hand from those of Slurm."""

    def test_they_count_before_those_of_slurm(self):
        job = self.submit(
            "#SBATCH --nodes=2 --ntasks-per-node=2\n"
            "export MASTER_ADDR=$(scontrol show hostnames | head -1) MASTER_PORT=29501 WORLD_SIZE=$SLURM_NTASKS\n"
            f"srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec {ROLLCALL}'\n"
        )
        self.wait_for_job(job)
        tasks = read_tasks(self.output(job))
        self.assertEqual({task["launcher"] for task in tasks}, {"torchrun"})
        self.assertEqual({task["leader"] for task in tasks}, {f"{hosts(tasks)[0]}:29501"})


class Emulation(Case):
    """The emulated Slurm itself: here, one inside the other."""

    def start(self, *command):
        program = [emulated_slurm.__file__, "--nodes=2", *command]
        process = subprocess.Popen(
            program, env=dict(os.environ, EMULATION_TEST=str(self.folder)), stdout=subprocess.DEVNULL
        )
        self.addCleanup(process.kill)
        return process

    def processes(self):
        """How many processes there are of what start() started."""
        mark = f"EMULATION_TEST={self.folder}".encode()
        found = 0
        for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
            try:
                found += mark in path.read_bytes().split(b"\0")
            except OSError:
                pass  # it has just ended
        return found

    def test_ends_as_the_command_does(self):
        run(emulated_slurm.__file__, "--nodes=2", "bash", "-c", "sinfo --Format=nodes | grep 2 && exit 7", status=7)

    def test_nothing_is_left_when_it_is_killed(self):
        files = sorted(pathlib.Path("/etc/slurm").iterdir())
        process = self.start("srun", "-N2", "bash", "-c", f"touch {self.folder}/$SLURM_PROCID; exec sleep 1000")
        wait_for(lambda: (self.folder / "0").exists() and (self.folder / "1").exists(), "two tasks")
        self.assertGreater(self.processes(), 7)
        process.kill()
        process.wait()
        wait_for(lambda: self.processes() == 0, "the end of all processes")
        self.assertEqual(sorted(pathlib.Path("/etc/slurm").iterdir()), files)

    def test_a_host_can_be_cut_off(self):
        reach = "timeout 1 bash -c '</dev/tcp/n2/6818'"
        run(emulated_slurm.__file__, "--nodes=2", "bash", "-c", f"{reach} && ip link set n2 down && ! {reach}")

    def check_refusal(self, reason, *command, environment=None):
        variables = {"XML_OUTPUT_FILE": "", **(environment or {})}
        done = run(*command, emulated_slurm.__file__, "true", status=emulated_slurm.SKIPPED, environment=variables)
        self.assertIn(f"emulated_slurm: skipped: {reason}", done.stderr)

    def test_says_which_privilege_is_missing(self):
        self.check_refusal("slurmd needs setgroups", "unshare", "--map-root-user")

    def test_says_what_the_kernel_refuses(self):
        ip = self.folder / "ip"
        ip.write_text("#!/bin/sh\necho no bridges here\nexit 1\n", encoding="utf-8")
        ip.chmod(0o755)
        reason = "ip link set lo up; link add cluster type bridge"
        self.check_refusal(reason, "env", environment={"PATH": f"{self.folder}:{os.environ['PATH']}"})


if __name__ == "__main__":
    try:
        sys.exit(emulated_slurm.with_slurm(cases.run))
    except emulated_slurm.Unavailable as unavailable:
        sys.exit(cases.skip_all(str(unavailable)))
