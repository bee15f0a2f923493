#!/usr/bin/env -S python3 -B
"""Trains again and again on three hosts, to which something happens at a random moment; counts what goes wrong.

  bazel run //tests/integration/multi_worker:soak -- --seconds=300 --seed=1

Each round is a job that is disturbed once and then started again until it is done. It must end with the weights of a
job that nothing has happened to, and after the disturbance within seconds. Exits with 1 when any does not. Rounds that
were over before anything happened do not count, and at least one does.
"""

import argparse
import random
import signal
import subprocess
import sys
import time

import network_test
from network_test import cases, hosts

_EPOCHS = 40
_LIMIT = 20  # seconds until the survivors of what a job does not survive have ended


def _link(*words):
    return lambda process, name: hosts.ip(" ".join(("link set", name) + words))


def _signal(number):
    return lambda process, name: process.send_signal(number)


def _drop(on=True):
    return lambda process, name: network_test.Network.drop_between_followers(on)


def _for_a_moment(begin, end):
    def fault(process, name):
        begin(process, name)
        time.sleep(random.uniform(0.1, 1.5))
        end(process, name)

    return fault


_HARMLESS = {
    "a frozen moment": _for_a_moment(_signal(signal.SIGSTOP), _signal(signal.SIGCONT)),
    "a black hole of a moment": _for_a_moment(_link("nomaster"), _link("master cluster")),
    "dropped packets of a moment": _for_a_moment(_drop(), _drop(False)),
}
_HARMFUL = {
    "a kill": _signal(signal.SIGKILL),
    "a freeze": _signal(signal.SIGSTOP),
    "a cut cable": _link("down"),
    "a black hole": _link("nomaster"),
    "dropped packets": _drop(),
}


class Soak(network_test.Network):
    def runTest(self):
        """Nothing: it is used by itself."""

    def ends(self, processes, seconds):
        """Whether the processes have ended by then."""
        deadline = time.monotonic() + seconds
        for process in processes:
            try:
                process.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                return False
        return True

    def disturbed_round(self, number):
        """What has gone wrong: "", "hang" or "wrong weights"; and what happened: None where training was over before."""
        name, fault = random.choice(sorted({**_HARMLESS, **_HARMFUL}.items()))
        victim = random.randrange(3)
        attempt = f"r{number}-1"
        processes = self.start(attempt, _EPOCHS)
        self.wait_for(lambda: any(self.backup(attempt).glob("*")), attempt)
        time.sleep(random.uniform(0, 2))
        happened = f"{name} of worker:{victim}"
        if processes[victim].poll() is not None:
            return "" if self.weights(attempt, processes) == self.expected else "wrong weights", None
        fault(processes[victim], network_test.NAMES[victim])
        survivors = processes if name in _HARMLESS else [p for i, p in enumerate(processes) if i != victim]
        if not self.ends(survivors, 3 * _LIMIT if name in _HARMLESS else _LIMIT):
            return "hang", happened
        weights = [line for rank in range(3) for line in self.printed(attempt, rank).splitlines() if "weights" in line]
        if name in _HARMLESS and len(weights) < 3:
            return "hang", happened + " was a failure"
        self.end_all(processes)
        again = f"r{number}-2"
        right = self.weights(again, self.start(again, _EPOCHS)) == self.expected and set(weights) <= {self.expected}
        return "" if right else "wrong weights", happened

    def soak(self, seconds, seed):
        random.seed(seed)
        print(f"seed {seed}", flush=True)
        self.setUp()
        troubles = []
        try:
            self.expected = self.weights("x1", self.start("x1", _EPOCHS))
            began, number, disturbed = time.monotonic(), 0, 0
            while time.monotonic() - began < seconds or disturbed == 0:
                number += 1
                trouble, happened = self.disturbed_round(number)
                print(f"round {number}: {happened or 'nothing, for it was over'}: {trouble or 'fine'}", flush=True)
                disturbed += happened is not None
                troubles += [trouble] if trouble else []
                self.doCleanups()
                self.setUp()
            counts = {kind: troubles.count(kind) for kind in ("hang", "wrong weights")}
            print(f"{disturbed} of {number} rounds disturbed, in {time.monotonic() - began:.0f} s: {counts}", flush=True)
        finally:
            self.doCleanups()
        return 1 if troubles else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    try:
        return hosts.with_switch(lambda: Soak().soak(options.seconds, options.seed))
    except hosts.Unavailable as unavailable:
        return cases.skip_all(str(unavailable))


if __name__ == "__main__":
    sys.exit(main())
