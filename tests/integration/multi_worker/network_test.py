#!/usr/bin/env -S python3 -B
"""Workers on hosts of their own, of which one is cut off, or slow: the others say so; and a job goes on."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../launchers"))
import cases  # pylint: disable=wrong-import-position
import hosts  # pylint: disable=wrong-import-position

_TRAINER = os.path.join(os.getcwd(), "tests/integration/multi_worker/trainer")
NAMES = ("h0", "h1", "h2")
_ADDRESSES = [f"10.78.0.{i + 1}" for i in range(len(NAMES))]
_RESUMABLE = 42  # exit code
_EPOCHS = 5
# Within how many seconds of a cut everybody names who is on the other side; and of two that find no way to each other
# when a job starts.
_NAMED, _NAMED_AT_START = 3, 6
# For what a process prints, and its end, beside other processes on two cores; more under ThreadSanitizer.
_TURNS = cases.SOON / 30


class Stopwatch:
    """Seconds in which this process ran, or could have: what a busy machine keeps from it, it keeps from others, too."""

    def __init__(self):
        self._began, self._lost = time.monotonic(), 0

    def nap(self):
        before = time.monotonic()
        time.sleep(0.01)
        self._lost += max(time.monotonic() - before - 0.02, 0)

    def seconds(self):
        return time.monotonic() - self._began - self._lost


class Network(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, attempt, epochs=_EPOCHS, flags=(), plugged=lambda rank: None):
        """The processes of a job that trains, a host each; attempts whose names begin alike go on where one was.

        `plugged` is called with the rank of each that has a network now.
        """
        processes = []
        for rank, name in enumerate(NAMES):
            config = {
                "cluster": {"worker": [f"{address}:2222" for address in _ADDRESSES]},
                "task": {"type": "worker", "index": rank},
            }
            with open(self.folder / f"{attempt}-{rank}", "wb") as file:
                process = subprocess.Popen(
                    [_TRAINER, f"--epochs={epochs}", f"--backup={self.backup(attempt)}", "--save_freq=1", *flags],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=dict(
                        os.environ, TF_CONFIG=json.dumps(config), COHORT_ALLOW_PLAINTEXT="1", OMP_NUM_THREADS="1"
                    ),
                    preexec_fn=lambda n=name, r=rank: hosts.enter(n, _ADDRESSES[r]),
                )
            self.addCleanup(self.end, process, name)
            processes.append(process)
            hosts.ip(f"link set {name} master cluster up")
            plugged(rank)
        return processes

    def backup(self, attempt):
        return self.folder / attempt[:-1]

    @staticmethod
    def end(process, name):
        process.kill()
        process.wait()
        subprocess.run(["ip", "link", "delete", name], stderr=subprocess.DEVNULL, check=False)  # or the kernel has

    def end_all(self, processes):
        for process, name in zip(processes, NAMES):
            self.end(process, name)

    def printed(self, attempt, rank):
        return (self.folder / f"{attempt}-{rank}").read_text(encoding="utf-8")

    def weights(self, attempt, processes):
        """What all have printed in the end."""
        for rank, process in enumerate(processes):
            self.assertEqual(process.wait(cases.DEADLINE), 0, self.printed(attempt, rank))
        weights = {line for rank in range(3) for line in self.printed(attempt, rank).splitlines() if "weights" in line}
        self.assertEqual(len(weights), 1)
        self.end_all(processes)
        return weights.pop()

    def wait_for(self, condition, attempt):
        deadline = time.monotonic() + cases.DEADLINE
        while not condition():
            self.assertLess(time.monotonic(), deadline, self.printed(attempt, 0))
            time.sleep(0.02)

    def cut_off(self, processes, cut, limit=_NAMED, sleeping=()):
        """Cuts; returns what the processes, but for those that sleep, have printed by their ends, which come in time."""
        cut()
        stopwatch, ends = Stopwatch(), {}
        waiting = [rank for rank in range(len(processes)) if rank not in sleeping]
        while len(ends) < len(waiting) and stopwatch.seconds() < cases.DEADLINE:
            stopwatch.nap()
            for rank in waiting:
                if processes[rank].poll() is not None:
                    ends.setdefault(rank, stopwatch.seconds())
        printed = {rank: self.printed("a1", rank) for rank in waiting}
        print(f"{self.id()}: ends {ends}", flush=True)
        for rank, text in printed.items():
            self.assertLess(ends.get(rank, cases.DEADLINE), limit + _TURNS, text)
        return printed

    def expect_named(self, printed, victim):
        """All but the victim name it, in the error with which they end; whether its job or a rank has missed it first."""
        address = re.escape(_ADDRESSES[victim])
        for rank, text in printed.items():
            if rank != victim:
                self.assertRegex(text, rf"worker:{victim} \(({address}:2222\)|rank {victim}\) at {address}:)")
                self.assertRegex(text, rf"error: UNAVAILABLE: .*\(peer worker:{victim}\)")

    def train_for_a_while(self, epochs=100000, loop="fit"):
        processes = self.start("a1", epochs=epochs, flags=[f"--loop={loop}"])
        self.wait_for(lambda: any(self.backup("a1").glob("*")), "a1")
        return processes

    def cut_off_while_training(self, victim, *change, loop="fit"):
        processes = self.train_for_a_while(loop=loop)
        printed = self.cut_off(processes, lambda: hosts.ip(" ".join(("link set", NAMES[victim], *change))))
        self.expect_named(printed, victim)
        others = "12" if victim == 0 else "0"
        self.assertRegex(printed[victim], rf"error: UNAVAILABLE: .*\(peer worker:[{others}]\)")
        self.assertEqual({process.returncode for process in processes}, {24})  # of UNAVAILABLE
        self.end_all(processes)

    def test_a_worker_whose_cable_is_cut(self):
        self.cut_off_while_training(2, "down")
        weights = self.weights("a2", self.start("a2"))
        self.assertEqual(weights, self.weights("b1", self.start("b1")))

    def test_a_worker_in_a_black_hole(self):
        self.cut_off_while_training(2, "nomaster", loop="own")

    def test_a_leader_whose_cable_is_cut(self):
        self.cut_off_while_training(0, "down", loop="own")

    def test_a_leader_in_a_black_hole(self):
        self.cut_off_while_training(0, "nomaster")

    def put_to_sleep(self, victim, at):
        """The victim does nothing at that point, so that the others wait for it there."""
        flags = ["--harm=sleep", f"--at={at}", f"--victim={victim}", "--step=3"]
        processes = self.start("a1", flags=flags)
        self.wait_for(lambda: "harm" in self.printed("a1", victim), "a1")
        return processes

    def cut_off_asleep(self, victim, at):
        """While they wait, the one that sleeps is cut off."""
        processes = self.put_to_sleep(victim, at)
        time.sleep(0.5)  # until the others wait
        return self.cut_off(processes, lambda: hosts.ip(f"link set {NAMES[victim]} nomaster"), sleeping=[victim])

    def test_cut_off_while_the_job_starts(self):
        self.expect_named(self.cut_off_asleep(1, "joined"), 1)

    def test_cut_off_while_a_checkpoint_is_saved(self):
        self.expect_named(self.cut_off_asleep(0, "step"), 0)

    def test_cut_off_at_the_end(self):
        printed = self.cut_off_asleep(2, "end")
        for text in printed.values():
            self.assertIn("weights=", text)
        self.expect_named(printed, 2)

    @staticmethod
    def drop_between_followers(on=True):
        """The switch drops what worker:1 and worker:2 send each other, and nothing else, without a word."""
        for name in NAMES[1:]:
            hosts.ip(f"link set {name} type bridge_slave isolated {'on' if on else 'off'}")

    @staticmethod
    def drop_one_way(processes, sender, receiver):
        """What one sends to the other goes to a station that there is not."""
        hosts.ip_on_host_of(
            processes[sender].pid,
            f"neigh replace {_ADDRESSES[receiver]} lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
        )

    def expect_pair_named(self, printed):
        """The same error on all, wherever they are, which names both ends."""
        reports = [re.search(r"^error: UNAVAILABLE: .*?(worker:[12] reports: .*)$", t, re.M) for t in printed.values()]
        self.assertTrue(all(reports), printed)
        self.assertEqual(len({report[1] for report in reports}), 1, printed)
        ends = [rf"worker:{r} \(rank {r}\) at {re.escape(_ADDRESSES[r])}:\d+" for r in (1, 2)]
        self.assertRegex(
            reports[0][1],
            rf"worker:2 reports: {ends[0]} cannot be reached from {ends[1]}.*\(peer worker:1\)"
            rf"|worker:1 reports: {ends[1]} cannot be reached from {ends[0]}.*\(peer worker:2\)",
        )

    def test_a_network_that_drops_what_two_workers_send_each_other(self):
        processes = self.train_for_a_while()
        self.expect_pair_named(self.cut_off(processes, self.drop_between_followers))

    def test_a_network_that_drops_what_one_sends_another(self):
        processes = self.train_for_a_while(loop="own")
        self.expect_pair_named(self.cut_off(processes, lambda: self.drop_one_way(processes, 1, 2)))

    def test_a_network_that_drops_what_the_leader_sends(self):
        """All end in time, by an error about one of the two: which, depends on who is the first to give up."""
        processes = self.train_for_a_while()
        for text in self.cut_off(processes, lambda: self.drop_one_way(processes, 0, 1)).values():
            self.assertRegex(text, r"error: UNAVAILABLE: .*\(peer worker:[01]\)")

    def test_no_route_between_two_workers(self):
        processes = self.train_for_a_while()

        def cut():
            for here, there in ((1, 2), (2, 1)):
                hosts.ip_on_host_of(processes[here].pid, f"route add blackhole {_ADDRESSES[there]}/32")

        self.expect_pair_named(self.cut_off(processes, cut))

    def test_a_network_that_drops_between_two_who_wait(self):
        processes = self.put_to_sleep(0, "step")
        time.sleep(1)  # until nothing is under way
        self.expect_pair_named(self.cut_off(processes, self.drop_between_followers, sleeping=[0]))

    def test_a_network_that_drops_between_two_while_the_job_starts(self):
        def drop(rank):
            if rank > 0:
                hosts.ip(f"link set {NAMES[rank]} type bridge_slave isolated on")

        processes = self.start("a1", plugged=drop)
        self.expect_pair_named(self.cut_off(processes, lambda: None, _NAMED_AT_START))

    def test_an_outage_between_two_who_wait_is_no_failure(self):
        processes = self.train_for_a_while(epochs=40)
        leader = processes[0]
        leader.send_signal(signal.SIGSTOP)
        time.sleep(1)  # until nothing is under way
        self.drop_between_followers()
        time.sleep(1.5)  # the outage
        self.drop_between_followers(False)
        leader.send_signal(signal.SIGCONT)
        self.weights("a1", processes)

    def test_an_outage_is_no_failure(self):
        for victim in NAMES:
            processes = self.train_for_a_while(epochs=40)
            hosts.ip(f"link set {victim} nomaster")
            time.sleep(1.5)  # the outage
            hosts.ip(f"link set {victim} master cluster")
            self.weights("a1", processes)
            shutil.rmtree(self.backup("a1"))

    def test_a_flapping_cable_of_the_leader_is_no_failure(self):
        processes = self.train_for_a_while()
        for _ in range(8):  # longer than any connection is waited for
            hosts.ip(f"link set {NAMES[0]} nomaster")
            time.sleep(0.5)  # without it
            hosts.ip(f"link set {NAMES[0]} master cluster")
            time.sleep(0.5)  # with it
        for rank, process in enumerate(processes):
            self.assertIsNone(process.poll(), self.printed("a1", rank))
        processes[1].send_signal(signal.SIGTERM)  # on which all save what they have, and end
        for rank, process in enumerate(processes):
            self.assertEqual(process.wait(cases.DEADLINE), _RESUMABLE, self.printed("a1", rank))

    def expect_slow_network_named(self, slow_down):
        """Of worker:2, whose process `slow_down` is called with."""
        processes = self.train_for_a_while()
        try:
            slow_down(processes[2])
        except hosts.Unavailable as reason:
            self.skipTest(str(reason))
        line = "warning: all workers wait for the network of worker:"
        self.wait_for(lambda: line in self.printed("a1", 0), "a1")
        self.assertRegex(self.printed("a1", 0), line + "2, the slowest for 10 steps: before step ")
        self.end_all(processes)

    def test_a_worker_that_sends_over_a_slow_link(self):
        self.expect_slow_network_named(
            lambda process: hosts.on_host_of(process.pid, lambda: hosts.slow_down("eth0", "128kbit"))
        )

    def test_a_worker_to_which_a_slow_link_leads(self):
        self.expect_slow_network_named(lambda process: hosts.slow_down(NAMES[2], "128kbit"))


if __name__ == "__main__":
    try:
        sys.exit(hosts.with_switch(cases.run))
    except hosts.Unavailable as unavailable:
        sys.exit(cases.skip_all(str(unavailable)))
