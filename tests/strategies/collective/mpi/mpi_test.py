#!/usr/bin/env -S python3 -B
"""The MPI communicator between processes that a real Open MPI mpirun starts."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

sys.path.insert(0, "tests/integration/launchers")

import cases  # noqa: E402  pylint: disable=wrong-import-position

_FOLDER = os.path.join(os.getcwd(), "tests/strategies/collective/mpi")
ACTOR = os.path.join(_FOLDER, "mpi_actor")
CONFORMANCE = os.path.join(_FOLDER, "mpi_conformance")
TRAINER = os.path.join(os.getcwd(), "tests/integration/multi_worker/trainer")
# More processes than cores, and as root, which test machines are; between processes of a container, whose kernel lets none
# read the memory of another.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl_vader_single_copy_mechanism", "none"]


def processes_with(mark):
    """Living processes that have `mark` in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark.encode() in file.read():
                    found.append(int(pid))
        except OSError:  # it has ended, or belongs to somebody else
            pass
    return found


class Job:
    """An mpirun and all that it has started, which is gone when the job is."""

    def __init__(self, ranks, *program, **variables):
        self.mark = f"COHORT_TEST_JOB={uuid.uuid4()}"
        name, value = self.mark.split("=")
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **{name: value},
                           **variables)
        launcher = [*MPIRUN, "-np", str(ranks)] if ranks else []
        self.process = subprocess.Popen([*launcher, *program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, env=environment)

    def end(self, seconds=cases.DEADLINE):
        """Its exit status and output; raises if there is no end in time. Nothing may be left by then."""
        try:
            output, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"not at an end after {seconds} s; printed\n{self.process.communicate()[0]}") from None
        deadline = time.monotonic() + cases.SOON
        while processes_with(self.mark):
            if time.monotonic() > deadline:
                left = processes_with(self.mark)
                self.kill()
                raise AssertionError(f"processes {left} are left; printed\n{output}")
            time.sleep(0.05)
        return self.process.returncode, output

    def kill(self):
        for pid in processes_with(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def lines(output):
    """What the ranks said, by rank."""
    said = {}
    for rank, text in re.findall(r"^rank (\d+): (.*)$", output, re.MULTILINE):
        said.setdefault(int(rank), []).append(text)
    return said


class Act(unittest.TestCase):
    def act(self, ranks, name, status=0, seconds=cases.DEADLINE, **variables):
        code, output = Job(ranks, ACTOR, name, **variables).end(seconds)
        self.assertEqual(code, status, output)
        return lines(output), output

    def act_with_store(self, ranks, name):
        with tempfile.TemporaryDirectory() as store:
            return self.act(ranks, name, COHORT_TEST_STORE=store)


class Conformance(unittest.TestCase):
    def conform(self, ranks):
        code, output = Job(ranks, CONFORMANCE, f"--gtest_filter=*Processes{ranks}", "--gtest_brief=1").end()
        self.assertEqual(code, 0, output)
        self.assertEqual(output.count("[  PASSED  ]"), ranks, output)
        self.assertGreater(int(re.search(r"PASSED  \] (\d+) test", output)[1]), 40)

    # More than there are cores, odd and even; what else depends on the size is MPI's own.
    def test_1_rank(self):
        self.conform(1)

    def test_2_ranks(self):
        self.conform(2)

    def test_3_ranks(self):
        self.conform(3)

    def test_4_ranks(self):
        self.conform(4)

    def test_5_ranks(self):
        self.conform(5)

    def test_7_ranks(self):
        self.conform(7)

    def test_8_ranks(self):
        self.conform(8)


class Results(Act):
    def test_sums_are_added_in_rank_order_on_all_ranks(self):
        said, output = self.act(5, "order")
        self.assertEqual(said, {r: [f"{n} in order" for n in (3, 700, 100003, 1000000)] for r in range(5)}, output)

    def test_more_than_two_gigabytes_in_one_call(self):
        self.assertEqual(self.act(2, "huge")[0], {0: ["0 wrong"], 1: ["0 wrong"]})


class Ends(Act):
    def test_a_rank_that_does_not_come_is_named(self):
        said, output = self.act(4, "late")
        for rank in (0, 2, 3):
            self.assertRegex(said[rank][0], r"^soon DEADLINE_EXCEEDED: rank \d waits for .*rank 1", output)
            self.assertIn("(peer rank 1)", said[rank][0])
        self.assertRegex(said[1][0], "^soon DEADLINE_EXCEEDED: ", output)

    def test_a_message_that_nobody_sends_is_named(self):
        said, output = self.act(2, "no_message")
        wait = "rank 0 waits for a message of rank 1 with tag 5, for longer than 1 s"
        self.assertIn(wait, said[0][0], output)

    def test_a_rank_that_is_waited_for_long_is_named_once_in_a_call(self):
        said, output = self.act(2, "stalled")
        waits = [f"warning: rank 0 has waited for 0.3 s in {call} for rank 1"
                 for call in ("a barrier", "a send with tag 5", "a receive with tag 5")]
        self.assertEqual(said, {0: waits}, output)

    def test_a_stopped_rank_holds_nobody(self):
        job = Job(3, ACTOR, "stopped")
        said = {}
        output = ""
        while len([r for r in (1, 2) if r in said]) < 2:
            line = job.process.stdout.readline()
            self.assertTrue(line, output)
            output += line
            said = lines(output)
        for rank in (1, 2):
            self.assertRegex(said[rank][0], "^soon DEADLINE_EXCEEDED: .*rank 0", output)
        os.kill(int(said[0][0].removeprefix("pid ")), signal.SIGCONT)
        _, rest = job.end(cases.SOON)
        self.assertRegex(lines(rest)[0][0], "^soon DEADLINE_EXCEEDED: ", rest)

    def test_a_rank_that_the_application_gives_up_is_not_waited_for(self):
        said, output = self.act(2, "lost")
        gone = "UNAVAILABLE: worker:1 is gone (peer worker:1)"
        self.assertEqual(said[0], [f"soon {gone}", "at once", gone], output)

    def test_an_error_that_was_told_comes_before_one_that_is_given_later(self):
        said, output = self.act_with_store(3, "told")
        first = "soon DEADLINE_EXCEEDED: rank 1 does not come (peer rank 1)"
        self.assertEqual(said, {r: [first] * 2 for r in range(3)}, output)

    def test_why_a_rank_is_gone_the_application_knows_better(self):
        said, output = self.act_with_store(3, "told_of_a_loss")
        told, known = (f"soon UNAVAILABLE: rank 1 {why} (peer rank 1)" for why in ("does not come", "was started again"))
        self.assertEqual(said, {0: [told] * 2, 1: [known] * 2, 2: [told] * 2}, output)

    def test_a_limit_that_comes_after_the_end_of_a_group_is_not_the_reason_for_it(self):
        said, output = self.act_with_store(3, "ended_while_moving")
        self.assertEqual(said, {0: ["soon ABORTED: enough"] * 2}, output)

    def test_sizes_that_are_not_those_of_what_comes_are_errors(self):
        said, output = self.act(2, "wrong_sizes")
        of_call, *of_messages = said[0]
        self.assertEqual(
            of_call,
            "soon DATA_LOSS: worker:1 (rank 1) has attached 3072 bytes to the news of its call, which has 4 to attach "
            "(peer worker:1)",
            output,
        )
        self.assertEqual(
            of_messages,
            [
                f"soon DATA_LOSS: rank 1 sends {size} bytes with tag 5, but has attached {attached} to their announcement"
                for size, attached in ((1, 3072), (100, 0), (-1, 3072), (100000, 3072))
            ],
            output,
        )

    def test_a_new_group_takes_the_place_of_one_that_has_ended(self):
        said, output = self.act(3, "again")
        for rank in range(3):
            expected = [text for i in range(3) for text in ("sum 3", f"ABORTED: end of round {i}")]
            self.assertEqual(said[rank], expected, output)

    def test_ranks_may_leave_one_after_the_other(self):
        self.assertEqual(self.act(4, "leave")[0], {r: ["sum 4"] for r in range(4)})

    def test_a_killed_rank_ends_the_job(self):
        code, output = Job(4, ACTOR, "killed").end(cases.SOON)
        self.assertNotEqual(code, 0, output)

    def test_a_rank_that_fails_ends_the_job(self):
        code, output = Job(3, ACTOR, "failed").end(cases.SOON)
        self.assertIn("rank 1 cannot go on", output)
        self.assertNotEqual(code, 0, output)

    def test_a_rank_that_is_refused_ends_the_job(self):
        code, output = Job(3, ACTOR, "refused").end(cases.SOON)
        self.assertIn("Open MPI sees 3 processes, but OMPI_COMM_WORLD_SIZE is 7", output)
        self.assertNotEqual(code, 0, output)

    def test_an_exception_that_nobody_catches_ends_the_job(self):
        code, output = Job(3, ACTOR, "uncaught").end(cases.SOON)
        self.assertNotEqual(code, 0, output)


class Start(Act):
    def test_under_mpirun(self):
        self.assertEqual(self.act(3, "world")[0], {r: ["started by MPI, one of 3, sum 3"] for r in range(3)})

    def test_who_gave_up_waiting_for_the_others_may_try_again(self):
        said, output = self.act_with_store(2, "second_attempt")
        given_up, *later = said[0]
        self.assertEqual(
            given_up, "soon DEADLINE_EXCEEDED: not all 2 processes of MPI have made their communicator within 0.1 s", output
        )
        self.assertEqual((later, said[1]), (["sum 2"], ["sum 2"]), output)

    def test_under_mpirun_in_a_step_of_another_launcher(self):
        said, output = self.act(3, "world", SLURM_STEP_NUM_TASKS="2", PMI_SIZE="2")
        self.assertEqual(said, {r: ["started by MPI, one of 3, sum 3"] for r in range(3)}, output)

    def test_a_launcher_of_another_mpi_is_refused_in_a_step_of_one_task_too(self):
        code, output = Job(0, ACTOR, "world", SLURM_STEP_NUM_TASKS="1", PMI_SIZE="2").end()
        self.assertIn("FAILED_PRECONDITION: Open MPI sees 1 processes, but PMI_SIZE is 2", output)
        self.assertNotEqual(code, 0, output)

    def test_alone(self):
        self.assertEqual(self.act(0, "world")[0], {0: ["not started by MPI, one of 1, sum 1"]})

    def test_a_program_that_uses_mpi_itself(self):
        for name in ("own_mpi", "own_mpi_serialized"):
            said, output = self.act(2, name)
            for rank in range(2):
                self.assertEqual(said[rank][0], "sum 2", output)
                self.assertRegex(said[rank][1], "^soon (UNAVAILABLE|FAILED_PRECONDITION): MPI has been finalised", output)

    def test_a_program_that_finalises_mpi_first(self):
        said, output = self.act(2, "finalized_early")
        for rank in range(2):
            self.assertEqual(said[rank][0], "sum 2", output)
            self.assertIn("MPI has been finalised", said[rank][1])

    def test_a_group_can_be_aborted_when_mpi_has_been_finalised(self):
        said, output = self.act(2, "aborted_late")
        self.assertEqual(said, {r: ["no error"] for r in range(2)}, output)

    def test_mpi_of_one_thread_is_refused(self):
        said, output = self.act(2, "single_threaded")
        for rank in range(2):
            self.assertRegex(said[rank][0], "^soon FAILED_PRECONDITION: .*MPI_THREAD_MULTIPLE", output)

    def test_wrong_options_are_refused(self):
        said, output = self.act(1, "wrong_options")
        self.assertEqual(len(said[0]), 3, output)
        for text in said[0]:
            self.assertRegex(text, "^soon INVALID_ARGUMENT: MpiOptions::time_limit_seconds is ")


class Chosen(unittest.TestCase):
    """Who talks over what, in a group of the processes of a job."""

    def connections(self, hosts, **variables):
        with tempfile.TemporaryDirectory() as store:
            variables |= {"COHORT_TEST_HOSTS": hosts, "COHORT_TEST_STORE": store}
            code, output = Job(len(hosts), ACTOR, "group", **variables).end()
        self.assertEqual(code, 0, output)
        said = lines(output)
        self.assertEqual(sorted(said), list(range(len(hosts))), output)
        (connection,) = {text for texts in said.values() for text in texts}
        return connection

    def test_mpi_where_there_are_several_hosts(self):
        self.assertEqual(self.connections("0011"), "sum 4 over MPI")

    def test_shared_memory_inside_a_host(self):
        self.assertEqual(self.connections("000"), "sum 3 over shared memory")

    def test_what_the_environment_asks_for(self):
        for name, connection in (("mpi", "MPI"), ("tcp", "TCP"), ("shm", "shared memory"), ("auto", "shared memory")):
            self.assertEqual(self.connections("00", COHORT_COLLECTIVE_BACKEND=name), f"sum 2 over {connection}")

    def test_what_it_cannot_ask_for(self):
        self.assertEqual(
            self.connections("00", COHORT_COLLECTIVE_BACKEND="nccl"),
            'INVALID_ARGUMENT: COHORT_COLLECTIVE_BACKEND: found "nccl"; expected auto, shm, tcp or mpi, as in '
            "COHORT_COLLECTIVE_BACKEND=tcp",
        )


class Strategies(unittest.TestCase):
    def train(self, **variables):
        return Job(2, TRAINER, "--loop=own", "--epochs=1", OMP_NUM_THREADS="1", **variables).end()

    def weights(self, backend):
        code, output = self.train(COHORT_COLLECTIVE_BACKEND=backend)
        self.assertEqual(code, 0, output)
        (weights,) = set(re.findall("^weights=(.*)$", output, re.MULTILINE))
        return weights

    def test_training_over_mpi_gives_the_same_bits(self):
        self.assertEqual(self.weights("mpi"), self.weights("tcp"))

    def test_training_over_mpi_needs_mpi(self):
        broken = {"OMPI_MCA_pml": "none_of_this_name"}
        self.assertEqual(self.train(COHORT_COLLECTIVE_BACKEND="tcp", **broken)[0], 0)
        self.assertNotEqual(self.train(COHORT_COLLECTIVE_BACKEND="mpi", **broken)[0], 0)


if __name__ == "__main__":
    sys.exit(cases.run() if shutil.which("mpirun") else cases.skip_all("mpirun is not installed (./dev setup installs openmpi-bin)"))
