#!/usr/bin/env -S python3 -B
"""The examples and benchmarks that are jobs of several processes, as their users start them: on little data."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../launchers"))
import cases  # pylint: disable=wrong-import-position
import programs  # pylint: disable=wrong-import-position


def job(tasks, program, *arguments):
    """What the tasks of a job have printed, each line with its task in front."""
    return programs.run(
        programs.COHORT_RUN,
        "--standalone",
        *tasks,
        os.path.join("examples", program),
        *arguments,
        environment={"OMP_NUM_THREADS": "1"},
    ).stdout


def numbers(task, name, text):
    """All that a task has printed as NAME=NUMBER."""
    return [float(n) for n in re.findall(rf"(?m)^\[{task}:0\] .*?\b{name}=([0-9.]+)", text)]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def number(self, task, name, text):
        found = numbers(task, name, text)
        self.assertEqual(len(found), 1, text)
        return found[0]


class WideAndDeep(Case):
    # Of the same steps: a coordinator's epoch is that of all workers together.
    _SMALL = ("--rows=6000", "--epochs=2", "--batch=64", "--columns=4")

    def train(self, *tasks_and_flags):
        """Trains with an evaluator beside; returns what was printed."""
        tasks = [flag for flag in tasks_and_flags if flag != "--coordinator"]
        flags = [flag for flag in tasks_and_flags if flag == "--coordinator"]
        logs = self.folder / "logs"
        text = job(
            ["--ps=2", "--evaluator", *tasks],
            "wide_and_deep",
            *self._SMALL,
            *flags,
            f"--checkpoints={self.folder / 'checkpoints'}",
            f"--snapshots={self.folder / 'snapshots'}",  # the servers' alone
            f"--logs={logs}",
        )
        events = b"".join(file.read_bytes() for file in logs.rglob("*tfevents*"))
        # Of a tag's value, field 5 is a histogram; there are scalars of that name, too.
        self.assertEqual(events.count(b"epoch_staleness\x2a"), 2, "one for each epoch")
        evaluated = numbers("evaluator", "auc", text)
        self.assertEqual(len(evaluated), 2, text)
        return text, evaluated

    def test_workers_train_on_their_own(self):
        text, evaluated = self.train("--workers=2")
        self.assertGreater(self.number("worker", "test_auc", text), 0.65)
        self.assertGreater(evaluated[-1], 0.65)
        self.assertGreaterEqual(self.number("worker", "staleness", text), 0)

    def train_coordinated(self, chief, *tasks):
        """Trains by what the task that is the chief schedules."""
        text, evaluated = self.train("--workers=2", "--coordinator", *tasks)
        auc = self.number(chief, "test_auc", text)
        self.assertGreater(auc, 0.65)
        self.assertAlmostEqual(evaluated[-1], auc, delta=1e-3, msg="the last checkpoint is what the chief has")
        self.assertEqual(len(numbers(chief, "staleness", text)), 2, text)
        self.assertEqual(numbers(chief, "lost_updates", text), [0, 0])

    def test_a_chief_schedules(self):
        self.train_coordinated("chief", "--chief")

    def test_worker_0_schedules_where_there_is_no_chief(self):
        self.train_coordinated("worker")

    def test_one_worker_schedules_for_itself(self):
        text = job(["--workers=1", "--ps=1"], "wide_and_deep", *self._SMALL, "--epochs=1", "--coordinator")
        self.assertEqual(numbers("worker", "lost_updates", text), [0])

    def test_flags_of_which_one_has_no_use_are_named(self):
        program = os.path.join("examples", "wide_and_deep")
        refused = programs.run(program, "--coordinator", "--max_staleness=2", status=2)
        self.assertIn("--max_staleness=2 has no use with --coordinator", refused.stderr)

    def test_a_batch_of_more_rows_than_there_are_is_all_of_them(self):
        flags = ("--rows=1000", "--batch=9223372036854775807", "--columns=4", "--epochs=2", "--coordinator")
        text = job(["--workers=1", "--ps=1"], "wide_and_deep", *flags)
        self.assertEqual(numbers("worker", "lost_updates", text), [0, 0])

    def test_a_worker_without_rows_is_told_before_anything_is_scheduled(self):
        config = {
            "cluster": {"ps": ["127.0.0.1:1"], "worker": [f"127.0.0.1:{2 + worker}" for worker in range(3)]},
            "task": {"type": "worker", "index": 0},
        }
        program = os.path.join("examples", "wide_and_deep")
        environment = {"TF_CONFIG": json.dumps(config)}
        refused = programs.run(program, "--coordinator", "--rows=2", environment=environment, status=2)
        self.assertIn("--rows=2 is not allowed with --coordinator and 3 workers: expected at least 3", refused.stderr)


class Evaluators(unittest.TestCase):
    def test_one_without_checkpoints_is_refused(self):
        config = {
            "cluster": {"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]},
            "task": {"type": "evaluator", "index": 0},
        }
        for program in ("wide_and_deep", "mnist_ps"):
            path = os.path.join("examples", program)
            refused = programs.run(path, environment={"TF_CONFIG": json.dumps(config)}, status=2)
            self.assertIn("the checkpoints of training", refused.stderr)


class MnistPs(Case):
    def train(self, *flags):
        text = job(["--workers=2", "--ps=1"], "mnist_ps", "--images=4000", "--epochs=3", *flags)
        return self.number("worker", "test_accuracy", text)

    def test_asynchronous_training_is_as_accurate_as_synchronous(self):
        asynchronous, synchronous = self.train(), self.train("--sync")
        print(f"asynchronous {asynchronous} synchronous {synchronous}", file=sys.stderr)
        self.assertGreater(synchronous, 0.8)
        # With a worker's gradient each, it makes twice as many updates.
        self.assertGreater(asynchronous, synchronous - 0.05)

    def test_it_says_how_it_has_trained(self):
        for flag, how in (("--max_staleness=0", "synchronous"), ("--max_staleness=1", "bounded")):
            text = job(["--workers=1", "--ps=1"], "mnist_ps", "--images=200", "--epochs=1", flag)
            self.assertIn(f"{how} test_accuracy=", text)
        program = os.path.join("examples", "mnist_ps")
        refused = programs.run(program, "--sync", "--max_staleness=3", status=2)
        self.assertIn("--max_staleness is 3", refused.stderr)

    def test_flags_of_which_one_has_no_use_are_named(self):
        program = os.path.join("examples", "mnist_ps")
        for useless, other in (
            ("--scale_learning_rate", "--sync"),
            ("--scale_learning_rate", "--max_staleness=0"),
            ("--images=20", "--data_dir=/nowhere"),
        ):
            refused = programs.run(program, other, useless, status=2)
            self.assertIn(f"{useless} has no use with {other}", refused.stderr)

    def test_an_evaluator_tells_the_accuracy_of_each_epoch(self):
        text = job(
            ["--workers=1", "--ps=1", "--evaluator"],
            "mnist_ps",
            "--images=1000",
            "--epochs=2",
            f"--checkpoints={self.folder}",
        )
        evaluated = numbers("evaluator", "accuracy", text)
        self.assertEqual(len(evaluated), 2, text)
        self.assertAlmostEqual(evaluated[-1], self.number("worker", "test_accuracy", text), delta=1e-3)


class Collectives(unittest.TestCase):
    def test_processes_exchange_values(self):
        text = job(["--workers=4"], "collectives", "--count=100")
        for line in ("ring=6", "gossip=4,3,6,5", "ranks=4 sum=10 differences=0"):
            self.assertIn(f"[worker:0] {line}\n", text)


def benchmark(name, *flags):
    """What a benchmark has printed."""
    return programs.run(os.path.join("benchmarks", name), *flags, environment={"OMP_NUM_THREADS": "1"}).stdout


class Benchmarks(unittest.TestCase):
    """What the benchmarks of servers and workers print; never how fast they are."""

    def lines(self, name, *flags):
        return benchmark(name, *flags).splitlines()

    def expect_lines(self, expected, found):
        """Each line is of its pattern, where N is a number that is more than 0."""
        self.assertEqual(len(found), len(expected), found)
        for pattern, line in zip(expected, found):
            match = re.fullmatch(re.escape(pattern).replace("N", r"([0-9]+(?:\.[0-9]+)?)"), line)
            self.assertIsNotNone(match, f"{line} is not {pattern}")
            for number in match.groups():
                self.assertGreater(float(number), 0, line)

    def test_allreduce_times_ranks_that_are_processes(self):
        sizes = (65536, 1048576)
        small = ("--np=2,4", f"--bytes={sizes[0]},{sizes[1]}", "--rounds=1", "--repetitions=3")
        for name, *flags in (
            ("shm", "--backend=shm"),
            ("shm-own", "--backend=shm", "--buffers=own"),
            ("tcp", "--backend=tcp"),
            ("tcp-tls", "--backend=tcp", "--tls"),
            ("two-level", "--backend=two-level"),
        ):
            self.expect_lines(
                [f"cohort-{name} np={np} bytes={size} median_us=N algbw_GBs=N busbw_GBs=N" for np in (2, 4) for size in sizes],
                self.lines("allreduce", *flags, *small),
            )

    def test_allreduce_of_many_segments_is_set_beside_calls_for_each(self):
        flags = ("--np=2", "--bytes=65536", "--segments=3", "--rounds=1", "--repetitions=3")
        for backend in ("threads", "shm", "tcp"):
            name = f"cohort-{backend}"
            self.expect_lines(
                [
                    f"{name} np=2 bytes=65536 median_us=N algbw_GBs=N busbw_GBs=N",
                    f"{name}-calls np=2 bytes=65536 median_us=N algbw_GBs=N busbw_GBs=N",
                    f"ratio np=2 bytes=65536 segments=3 {name} one call/calls=N (medians of 1 alternating rounds)",
                ],
                self.lines("allreduce", f"--backend={backend}", *flags),
            )

    def test_allreduce_is_set_beside_what_the_memory_allows(self):
        flags = ("--backend=threads", "--np=2", "--bytes=8388608", "--rounds=1", "--repetitions=3")
        peers = f"--peer-sources={os.path.abspath('benchmarks/peers')}"
        self.expect_lines(
            [
                "memory threads=1 copy_GBs=N add_GBs=N",
                "memory threads=2 copy_GBs=N add_GBs=N",
                "cohort-threads np=2 bytes=8388608 median_us=N algbw_GBs=N busbw_GBs=N",
                "ratio np=2 bytes=8388608 cohort-threads/add by 1 thread=N (medians of the best of 1 alternating rounds)",
                "ratio np=2 bytes=8388608 cohort-threads/add by 2 threads=N (medians of the best of 1 alternating rounds)",
            ],
            self.lines("allreduce", *flags, "--vs=memory", peers),
        )

    def test_allreduce_over_tcp_is_set_beside_one_connection(self):
        # Each of three ranks sends two thirds of the bytes twice.
        flags = ("--backend=tcp", "--np=3", "--bytes=3000000", "--rounds=1", "--repetitions=3")
        peers = f"--peer-sources={os.path.abspath('benchmarks/peers')}"
        self.expect_lines(
            [
                "socket bytes=4000000 one_way_GBs=N both_ways_GBs=N",
                "cohort-tcp np=3 bytes=3000000 median_us=N algbw_GBs=N busbw_GBs=N",
                "ratio np=3 bytes=3000000 each_way_bytes=4000000 each_way_GBs=N cohort-tcp/socket=N at_least=0.80 "
                "(medians of 1 alternating rounds)",
            ],
            self.lines("allreduce", *flags, "--vs=socket", peers),
        )

    def test_multiworker_sets_processes_beside_one(self):
        flags = ("--model=mlp", "--workers=2", "--threads=2", "--batch=8", "--steps=2", "--rounds=1")
        self.expect_lines(
            [
                "cohort mlp processes=1 threads=2 global_batch=8 median_ms=N examples_per_s=N",
                "cohort mlp processes=2 threads_each=1 global_batch=8 median_ms=N examples_per_s=N",
                "ratio mlp processes=2/1 speed=N (median of 1 alternating rounds)",
            ],
            self.lines("multiworker", *flags),
        )

    def test_ps_times_pushes_and_pulls(self):
        for transport in ("memory", "direct", "grpc"):
            flags = ("--bytes=4000000", "--shards=2", "--repetitions=2", "--workers=2", f"--transport={transport}")
            self.expect_lines(
                [
                    f"cohort-ps op={op} bytes={size} median_us=N GBs=N transport={transport} shards=2 workers=2"
                    for op, size in (("push", 4000000), ("pull", 4000000), ("push_pull", 8000000))
                ],
                self.lines("ps", *flags),
            )

    def test_ps_is_set_beside_one_connection(self):
        flags = ("--bytes=4000000", "--shards=2", "--repetitions=2", "--rounds=2", "--transport=direct", "--vs=socket")
        peers = f"--peer-sources={os.path.abspath('benchmarks/peers')}"
        kinds = (("push", 4000000, "one way"), ("pull", 4000000, "one way"), ("push_pull", 8000000, "both ways at once"))
        self.expect_lines(
            ["socket bytes=4000000 one_way_GBs=N both_ways_GBs=N"] * 2
            + [
                f"cohort-ps op={op} bytes={size} median_us=N GBs=N transport=direct shards=2 workers=1"
                for op, size, _ in kinds
            ]
            + [
                f"ratio op={op} bytes={size} cohort-ps/socket=N ({how}; medians of 2 rounds in turns)"
                for op, size, how in kinds
            ],
            self.lines("ps", *flags, peers),
        )

    def test_ps_times_rows_of_a_table(self):
        flags = ("--rows=10000", "--columns=8", "--batch=1000", "--shards=3", "--repetitions=2")
        expected = []
        for op in ("push_rows", "pull_rows"):
            expected += [
                f"cohort-ps op={op} bytes=32000 median_us=N GBs=N transport=memory shards=3 workers=1",
                f"cohort-ps op={op} rows=1000 of 10000 Mrows_per_s=N",
            ]
        for op in ("push_rows_floor", "pull_rows_floor"):
            expected.append(f"cohort-ps op={op} rows=1000 of 10000 Mrows_per_s=N")
        self.expect_lines(expected, self.lines("ps", *flags))

    def test_schedule_counts_functions(self):
        self.expect_lines(
            [f"cohort-schedule work={work} workers=2 closures=200 per_second=N" for work in ("empty", "sum")],
            self.lines("schedule", "--workers=2", "--closures=200", "--rounds=1"),
        )

    def test_ps_train_sets_workers_beside_one(self):
        flags = ("--model=mlp", "--workers=2", "--batch=8", "--steps=2", "--rounds=1")
        self.expect_lines(
            [
                "cohort mlp batch=8 threads=1 workers=1 steps_per_s=N",
                "cohort mlp batch=8 threads=1 workers=2 steps_per_s=N",
                "speedup=N",
            ],
            self.lines("ps_train", *flags),
        )

    def test_refuse_what_they_cannot_measure(self):
        for name, flag in (
            ("allreduce", "--bytes=6"),
            ("allreduce", "--backend=pigeon"),
            ("allreduce", "--vs=pigeon"),
            ("allreduce", "--segments=0"),
            ("allreduce", "--vs=socket"),
            ("multiworker", "--workers=0"),
            ("ps", "--bytes=6"),
            ("ps", "--transport=pigeon"),
            ("ps", "--vs=socket"),
            ("scaling", "--workers=2,1"),
            ("schedule", "--workers=0"),
        ):
            refused = programs.run(os.path.join("benchmarks", name), flag, status=2)
            self.assertIn(flag.partition("=")[0], refused.stderr)


class Scaling(Case):
    _SMALL = ("--model=mlp", "--batch=8", "--steps=2", "--rounds=1", "--max_workers=8")

    @staticmethod
    def rows(pattern, text):
        """The numbers of each line of a table, where N in the pattern is one."""
        return re.findall("(?m)^ +" + pattern.replace("N", r"(-?[0-9.]+)") + "$", text)

    def check_measured(self, text):
        share = " +N %"
        rows = self.rows(" +".join("NNNN") + " +N %[ *]" + 5 * share, text)
        self.assertEqual([row[:2] for row in rows], [("1", "8"), ("2", "16")], text)
        self.assertEqual(rows[0][4], "100")
        for row in rows:
            _, examples, milliseconds, per_second, _, *shares = map(float, row)
            self.assertAlmostEqual(per_second, 1e3 * examples / milliseconds, delta=0.1 * per_second)
            self.assertAlmostEqual(sum(shares), 100, delta=1)

    def check_predicted(self, text):
        rows = self.rows("N +N +N +N % +N +N  (.*)", text.partition("PREDICTED from\n")[2])
        self.assertEqual([int(row[0]) for row in rows], [1, 2, 4, 8], text)
        self.assertEqual(rows[0][-1], "-")
        for row in rows[1:]:
            self.assertIn(row[-1], ("ring", "tree"))
            self.assertGreater(float(row[4]), 0, "communication")
        efficiencies = [float(row[3]) for row in rows]
        self.assertEqual(efficiencies, sorted(efficiencies, reverse=True))

    def check_chart(self, path):
        chart = ElementTree.parse(path).getroot()
        svg = "{http://www.w3.org/2000/svg}"
        self.assertEqual(chart.tag, svg + "svg")
        self.assertEqual(len(chart.findall(svg + "polyline")), 2, "linear scaling and the model")
        self.assertGreaterEqual(len(chart.findall(svg + "circle")), 3, "both measurements and a legend")
        texts = {element.text for element in chart.findall(svg + "text")}
        self.assertLessEqual(
            {"mlp, weak scaling: 8 rows a worker, 1 thread a worker", "workers", "linear", "cost model", "8"}, texts
        )

    def test_measures_and_predicts_and_draws_both(self):
        chart = self.folder / "scaling.svg"
        text = benchmark("scaling", *self._SMALL, "--workers=1,2", f"--svg={chart}")
        self.check_measured(text)
        self.check_predicted(text)
        self.assertIn(f"\nchart: {chart}\n", text)
        self.check_chart(chart)

    def test_predicts_nothing_from_one_worker(self):
        text = benchmark("scaling", *self._SMALL, "--workers=1", "--svg=")
        self.assertIn("No prediction: it takes 2 workers or more", text)
        self.assertNotIn("chart", text)


def parents():
    """Of each process that is not at its end, the number of the one that has started it."""
    found = {}
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = status.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:2]
        except OSError:  # it has just ended
            continue
        if state != "Z":
            found[int(status.parent.name)] = int(parent)
    return found


def children(pid):
    return {child for child, parent in parents().items() if parent == pid}


class Faults(Case):
    _SMALL = (
        *("--workers=2", "--rounds=1", "--seconds=0.3", "--pace_ms=5", "--snapshot_ms=50"),
        *("--kill_s=1.5", "--checkpoint_s=0.2"),
    )
    _PROGRAM = os.path.join("benchmarks", "faults")

    def wait_until(self, condition, what):
        end = time.monotonic() + cases.DEADLINE
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.01)

    def figures(self, *flags):
        """Of each line: its row, and its numbers by name."""
        text = programs.run(self._PROGRAM, *self._SMALL, "--seed=7", *flags).stdout
        lines = re.findall(r"(?m)^cohort-faults row=(\S+)( .*)$", text)
        return [(row, dict(re.findall(r" (\w+)=(\S+)", rest))) for row, rest in lines]

    def test_has_a_line_for_each_fault_and_all_counts_are_right(self):
        found = self.figures()
        self.assertEqual(
            [row for row, _ in found],
            [
                "worker_killed",
                "synchronous_worker_killed",
                "server_killed",
                "server_killed",
                "slow_worker",
                "synchronous_slow_worker",
                "attack",
                "attack",
                "flood",
                "mirrored_worker_killed",
                "chief_killed",
                "worker_frozen",
                "preempted",
                "ettr",
            ],
        )
        for _, numbers in found:
            self.assertEqual((numbers["rounds"], numbers["seed"]), ("1", "7"))
        self.assertIn(found[0][1]["unacknowledged"], ("0", "1"))
        self.assertEqual([numbers["log"] for _, numbers in found[2:4]], ["none", "written"])
        self.assertEqual(found[3][1]["lost"], "0")
        self.assertGreaterEqual(float(found[5][1]["named_after_steps"]), 5, "not by chance")
        self.assertEqual([numbers["target"] for _, numbers in found[6:8]], ["server", "leader"])
        for _, numbers in found[6:8]:
            for name in ("p99_us", "p99_us_control", "p99_us_attacked", "ratio_to_control"):
                self.assertGreater(float(numbers[name]), 0, name)
            for name in ("refused", "refused_by_control"):
                self.assertGreater(int(numbers[name]), 0, name)
        for name in ("step_ms", "step_ms_control", "step_ms_flooded", "connected_per_s_control"):
            self.assertGreater(float(found[8][1][name]), 0, name)
        self.assertEqual(found[8][1]["answered"], "0")
        for _, numbers in found[6:9]:
            for name in ("cores_of_attacker", "cores_of_control"):
                self.assertGreater(float(numbers[name]), 0, name)
        for _, numbers in found[9:12]:
            self.assertGreater(float(numbers["named_ms"]), 0)
            self.assertGreater(float(numbers["recovered_ms"]), float(numbers["named_ms"]))
            self.assertGreaterEqual(int(numbers["steps_lost"]), 0)
        self.assertGreater(float(found[11][1]["named_ms"]), 1000, "not by the end of its connections")
        self.assertEqual(found[12][1]["steps_lost"], "0")
        self.assertGreater(float(found[12][1]["ended_ms"]), 0)
        self.check_parts(found[13][1])

    def check_parts(self, numbers):
        parts = {part: float(numbers[f"{part}_s"]) for part in ("kept", "lost", "between", "ending", "starting")}
        for part in ("kept", "between", "ending", "starting"):
            self.assertGreater(parts[part], 0, part)
        self.assertAlmostEqual(sum(parts.values()), float(numbers["total_s"]), delta=0.01)
        self.assertAlmostEqual(float(numbers["ettr"]), parts["kept"] / float(numbers["total_s"]), delta=0.002)
        self.assertEqual(numbers["ettr_at_least"], "0.95")

    def test_measures_one_fault(self):
        self.assertEqual([row for row, _ in self.figures("--row=slow_worker")], ["slow_worker"])
        refused = programs.run(self._PROGRAM, "--row=storm", status=2)
        self.assertIn("worker_killed", refused.stderr)

    def test_leaves_no_process_when_it_is_killed(self):
        with subprocess.Popen([self._PROGRAM, *self._SMALL, "--seconds=10"]) as program:
            try:
                tasks = 2 + 2 + 1  # workers, servers, the observer
                self.wait_until(lambda: len(children(program.pid)) == tasks, "the job has not started")
                started = children(program.pid)
            finally:
                program.kill()
        self.wait_until(lambda: not started & parents().keys(), "the job goes on")


if __name__ == "__main__":
    sys.exit(cases.run())
