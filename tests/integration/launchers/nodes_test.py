#!/usr/bin/env -S python3 -B
"""cohort-run --nnodes on hosts that have addresses of their own, and a network that fails."""

import subprocess
import sys
import time

import cases
import emulated_slurm
from batch_jobs import Case, wait_for
from programs import COHORT_RUN, ROLLCALL, read_tasks, run

_RENDEZVOUS = "--rendezvous=n1:29400"


def without_prefixes(output):
    return "\n".join(line.partition("] ")[2] for line in output.splitlines())


class Nodes(Case):
    """Each node is a step of Slurm of its own, on its host."""

    def start(self, host, *command, flags=("--allow_plaintext", "--nnodes=2", _RENDEZVOUS)):
        with open(self.folder / host, "wb") as file:
            process = subprocess.Popen(
                ["srun", "-Q", "-N1", "-n1", f"-w{host}", COHORT_RUN, *flags, *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def printed(self, host):
        return (self.folder / host).read_text(encoding="utf-8")

    def test_tasks_reach_each_other_on_the_addresses_of_their_hosts(self):
        processes = [self.start(host, "--workers=2", ROLLCALL) for host in ("n2", "n1")]  # n1 serves, by its address
        self.assertEqual([process.wait(cases.DEADLINE) for process in processes], [0, 0], self.printed("n1"))
        tasks = read_tasks(without_prefixes(self.printed("n1") + self.printed("n2")))
        self.assertEqual([task["host"] for task in tasks], ["n1", "n1", "n2", "n2"])
        self.assertEqual(
            [address.split(":")[0] for address in tasks[0]["addresses"]], ["10.77.0.1"] * 2 + ["10.77.0.2"] * 2
        )

    def test_one_step_may_start_all(self):
        flags = ("--allow_plaintext", "--nnodes=3", _RENDEZVOUS)
        done = run("srun", "-Q", "-N3", "-n3", "-wn[1-3]", COHORT_RUN, *flags, ROLLCALL)
        self.assertEqual(len(read_tasks(without_prefixes(done.stdout))), 3)

    def test_plain_text_beyond_the_host_must_be_allowed(self):
        done = run("srun", "-n1", "-wn1", COHORT_RUN, "--nnodes=2", _RENDEZVOUS, "true", status=19)
        self.assertIn("or set COHORT_ALLOW_PLAINTEXT=1", done.stderr)

    def test_the_loss_of_a_cable_is_the_loss_of_a_node(self):
        flags = ("--allow_plaintext", "--nnodes=1:2", _RENDEZVOUS, "--node_timeout=2", "--last_call=3")
        flags += ("--restarts=1",)
        script = (
            f"trap 'touch {self.folder}/ended-$RANK; exit 1' TERM; echo size $WORLD_SIZE; "
            "while [ $WORLD_SIZE = 2 ]; do sleep 0.1; done"
        )
        self.start("n2", "--node_rank=1", "bash", "-c", script, flags=flags)
        first = self.start("n1", "--node_rank=0", "bash", "-c", script, flags=flags)
        wait_for(lambda: "size 2" in self.printed("n1") and "size 2" in self.printed("n2"), "two tasks")
        run("ip", "link", "set", "n2", "down")
        self.addCleanup(run, "ip", "link", "set", "n2", "up")
        begin = time.monotonic()
        self.assertEqual(first.wait(cases.DEADLINE), 0, self.printed("n1"))
        self.assertLess(time.monotonic() - begin, 20)
        self.assertIn("node 1 (n2) was lost: silent for 2 s", self.printed("n1"))
        self.assertIn("size 1", self.printed("n1"))
        # The other side ends, too; files are shared.
        wait_for(lambda: (self.folder / "ended-1").exists(), "the end of the task that was cut off")


if __name__ == "__main__":
    try:
        sys.exit(emulated_slurm.with_slurm(cases.run))
    except emulated_slurm.Unavailable as unavailable:
        sys.exit(cases.skip_all(str(unavailable)))
