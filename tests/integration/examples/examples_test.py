#!/usr/bin/env -S python3 -B
"""The examples as their users run them: on little data, twice, and on data that is not as it should be."""

import json
import math
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../launchers"))
import cases  # pylint: disable=wrong-import-position
from digits import digit, write_digits  # pylint: disable=wrong-import-position

# As README.md has them.
_WRONG_INPUT, _CANCELLED, _NOT_FOUND, _ALREADY_EXISTS, _OUT_OF_RANGE, _UNAVAILABLE = 2, 11, 15, 16, 21, 24
_PERMISSION_DENIED, _DATA_LOSS = 17, 25


def run(program, *arguments, folder="examples", cwd=None):
    return subprocess.run(
        [os.path.abspath(os.path.join(folder, program)), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        errors="replace",  # a model that has learned little writes any bytes
        timeout=cases.DEADLINE,
        check=False,
    )


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def succeed(self, program, *arguments, **options):
        result = run(program, *arguments, **options)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def fail_with(self, code, parts, program, *arguments, **options):
        result = run(program, *arguments, **options)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        (line,) = (line for line in result.stderr.splitlines() if line.startswith("error: "))
        for part in parts:
            self.assertIn(part, line)

    def number(self, name, text):
        return float(re.search(rf"^{name}=([0-9.]+)$", text, re.MULTILINE).group(1))


class Quickstart(Case):
    def train(self, *arguments):
        """What it prints, where the folder for temporary files is one of this test's own."""
        temporary = self.folder / "temporary"
        temporary.mkdir(exist_ok=True)
        with unittest.mock.patch.dict(os.environ, {"TMPDIR": str(temporary)}):
            text = self.succeed("quickstart", *arguments)
        return text, list(temporary.iterdir())

    def check_left(self, text, logs, weights):
        self.assertIn(f"TensorBoard logs: {logs}\nWeights: {weights}\n", text)
        self.assertGreater(weights.stat().st_size, 1000)
        self.assertEqual(sorted(path.parent.name for path in logs.rglob("*tfevents*")), ["train", "validation"])

    def test_learns_as_promised_in_a_folder_of_its_own(self):
        text, (folder,) = self.train()
        self.assertGreaterEqual(self.number("test_accuracy", text), 0.98)
        self.check_left(text, folder / "logs", folder / "model.safetensors")
        _, folders = self.train("--epochs=1")
        self.assertEqual(len(folders), 2)

    def test_leaves_logs_and_weights_where_asked(self):
        logs, weights = self.folder / "logs", self.folder / "model.safetensors"
        text, temporary = self.train("--epochs=1", f"--logs={logs}", f"--save={weights}")
        self.assertEqual(temporary, [])
        self.check_left(text, logs, weights)

    def test_a_folder_cannot_be_the_file_of_weights(self):
        save = f"--save={self.folder}"
        self.assertNotIn("Epoch", run("quickstart", save).stdout, "it trains")
        self.fail_with(_WRONG_INPUT, [save, "is a folder"], "quickstart", save)

    def test_tells_before_training_that_weights_cannot_be_saved(self):
        save = f"--save={self.folder}/none/model.safetensors"
        self.assertNotIn("Epoch", run("quickstart", save).stdout, "it trains")
        self.fail_with(_NOT_FOUND, [f"{self.folder}/none"], "quickstart", save)


class Mnist(Case):
    def train(self, *arguments):
        """The loss of each epoch and the accuracy of the test, as they are printed."""
        text = self.succeed("mnist_cnn", f"--data_dir={self.folder}", "--epochs=3", "--batch=20", *arguments)
        return re.findall(r" loss[=:] ?([0-9.e-]+)", text), self.number("test_accuracy", text)

    def test_the_same_command_twice_and_two_replicas_give_the_same_and_another_seed_does_not(self):
        write_digits(self.folder, "train", 400)
        write_digits(self.folder, "t10k", 100, zipped=True)
        losses, accuracy = self.train()
        self.assertEqual(len(losses), 3)
        self.assertGreater(accuracy, 0.9)
        self.assertEqual(self.train(), (losses, accuracy))
        self.assertNotEqual(self.train("--seed=2")[0], losses)
        of_two, accuracy_of_two = self.train("--replicas=2")
        self.assertAlmostEqual(accuracy_of_two, accuracy, delta=0.011)
        for one, two in zip(losses, of_two, strict=True):
            self.assertAlmostEqual(float(one), float(two), delta=2e-4, msg="of four digits printed")

    def test_a_test_set_alone_is_split_into_8000_images_and_2000(self):
        # Black images, as small as the network takes; the last 2,000 are of a digit that those before teach nobody.
        images, labels = (self.folder / f"t10k-{name}-ubyte" for name in ("images-idx3", "labels-idx1"))
        images.write_bytes(struct.pack(">IIII", 0x803, 10_000, 10, 10) + bytes(10_000 * 10 * 10))
        labels.write_bytes(struct.pack(">II", 0x801, 10_000) + b"\3" * 8000 + b"\4" * 2000)
        text = self.succeed("mnist_cnn", f"--data_dir={self.folder}", "--epochs=1", "--batch=500")
        self.assertIn("\n16/16 [", text, "8,000 images in batches of 500")
        self.assertGreater(float(re.search(r" - accuracy: ([0-9.]+)", text).group(1)), 0.4)
        self.assertEqual(self.number("test_accuracy", text), 0)

    def test_data_that_is_not_as_it_should_be(self):
        write_digits(self.folder, "train", 40)
        write_digits(self.folder, "t10k", 20)
        data = f"--data_dir={self.folder}"
        labels = self.folder / "train-labels-idx1-ubyte"
        content = labels.read_bytes()
        labels.write_bytes(content[:-3])
        self.fail_with(_DATA_LOSS, [str(labels), "byte"], "mnist_cnn", data)
        labels.write_bytes(content[:10] + b"\x0b" + content[11:])
        self.fail_with(_DATA_LOSS, [str(labels), "11"], "mnist_cnn", data)
        labels.unlink()
        self.fail_with(_NOT_FOUND, ["train-labels-idx1-ubyte"], "mnist_cnn", data)
        (self.folder / "train-images-idx3-ubyte").unlink()
        self.fail_with(_WRONG_INPUT, ["too few"], "mnist_cnn", data)
        self.fail_with(_NOT_FOUND, ["/nowhere"], "mnist_cnn", "--data_dir=/nowhere")

    def test_a_folder_that_may_not_be_listed_is_named(self):
        write_digits(self.folder, "t10k", 20)
        self.folder.chmod(0o300)
        self.addCleanup(self.folder.chmod, 0o700)
        command = [os.path.abspath("examples/mnist_cnn"), f"--data_dir={self.folder}"]
        if os.geteuid() == 0:
            command = [shutil.which("setpriv"), "--bounding-set=-dac_override,-dac_read_search", *command]
        self.fail_with(_PERMISSION_DENIED, [f"cannot list {self.folder}"], *command)

    def test_flags_that_are_not_as_they_should_be(self):
        self.fail_with(_WRONG_INPUT, ["--epcohs", "--epochs"], "mnist_cnn", "--epcohs=3")
        self.fail_with(_WRONG_INPUT, ["--batch=-1", "at least 1"], "mnist_cnn", "--batch=-1")


class Readme(Case):
    def test_the_program_of_the_readme_trains(self):
        write_digits(self.folder, "train", 1000)
        text = self.succeed(
            "readme_program", f"--data_dir={self.folder}", folder="tests/integration/examples", cwd=self.folder
        )
        losses = [float(loss) for loss in re.findall(r" loss[=:] ?([0-9.e-]+)", text)]
        self.assertEqual(len(losses), 3)
        self.assertLess(losses[-1], losses[0])
        self.assertTrue(list((self.folder / "logs").rglob("*tfevents*")))


class Functions(Case):
    def test_the_program_of_the_document_prints_what_it_says(self):
        text = self.succeed("functions_program", folder="tests/integration/examples")
        document = pathlib.Path("docs/functions.md").read_text(encoding="utf-8")
        said = re.search(r"(?m)^prints (.*)\.$", document).group(1)
        self.assertEqual(text.splitlines(), re.findall(r"`([^`]+)`", said))

    def test_a_saved_function_runs_in_another_process(self):
        folder = self.folder / "a" / "b"
        saved = self.succeed("saved_function", f"--save={folder}")
        row = r"0\.01798\d*, 0\.98201\d*"
        self.assertRegex(saved, rf"^probabilities=float32\[1,2\] \{{{row}\}}\n"
                                rf"probabilities=float32\[2,2\] \{{{row}, {row}\}}\n$")
        self.assertEqual(self.succeed("saved_function", f"--load={folder}"), saved)

    def test_a_saved_function_that_is_not_as_it_should_be(self):
        load = f"--load={self.folder}"
        self.fail_with(_WRONG_INPUT, ["--save", "--load"], "saved_function")
        self.fail_with(_NOT_FOUND, ["variables.safetensors"], "saved_function", load)
        self.succeed("saved_function", f"--save={self.folder}")
        graph = self.folder / "predict-1.graph"
        content = graph.read_bytes()
        graph.write_bytes(content.replace(b"MatMul", b"MatMux"))
        self.fail_with(_DATA_LOSS, ["is damaged"], "saved_function", load)
        graph.write_bytes(b"no graph")
        self.fail_with(_DATA_LOSS, ["not a serialised function"], "saved_function", load)


class CustomComponents(Case):
    def train(self, *arguments):
        """The results of each epoch, and the last line."""
        text = self.succeed("custom_components", *arguments)
        return re.findall(r"(?m) - (f1: .*)$", text), text.splitlines()[-1]

    def test_learns_and_loads_what_was_validated(self):
        weights = self.folder / "weights.safetensors"
        temporary = self.folder / "temporary"
        temporary.mkdir()
        with unittest.mock.patch.dict(os.environ, {"TMPDIR": str(temporary)}):
            epochs, last = self.train(f"--save={weights}")
        self.assertEqual(len(epochs), 10)
        f1 = self.number("val_f1", last)
        self.assertGreaterEqual(f1, 0.95)
        # The averages that the last epoch was validated with.
        validated = re.search(r"val_f1: ([0-9.]+)", epochs[-1]).group(1)
        self.assertAlmostEqual(f1, float(validated), delta=6e-4, msg="three digits and four")
        self.assertGreater(weights.stat().st_size, 1000)
        self.assertEqual(list(temporary.iterdir()), [])

    def test_the_same_command_twice_gives_the_same(self):
        self.assertEqual(self.train("--epochs=3"), self.train("--epochs=3"))

    def test_the_document_quotes_programs(self):
        programs = [
            pathlib.Path(path).read_text(encoding="utf-8")
            for path in ("examples/custom_components.cc", "tests/integration/install/own_op.cc")
        ]
        document = pathlib.Path("docs/custom-components.md").read_text(encoding="utf-8")
        quotes = re.findall(r"(?ms)^```cpp\n(.*?)^```$", document)
        self.assertGreaterEqual(len(quotes), 6)
        for quote in quotes:
            self.assertTrue(any(quote in program for program in programs), quote)


class LinearRegression(Case):
    def write(self, *rows):
        path = self.folder / "rows.csv"
        path.write_text("\n".join(["a,b,y", *rows, ""]), encoding="utf-8")
        return f"--data={path}"

    def test_finds_the_line(self):
        rows = [f"{i % 7},{i % 5},{2 * (i % 7) - (i % 5) + 1}" for i in range(200)]
        text = self.succeed("linear_regression", self.write(*rows), "--epochs=60")
        self.assertLess(self.number("mean_squared_error", text), 0.1)

    def test_a_loss_that_is_no_number_is_an_error(self):
        rows = self.write(*["1,2,3"] * 20, "nan,1,2")
        self.fail_with(_OUT_OF_RANGE, ["loss is nan"], "linear_regression", rows)

    def test_a_label_without_a_name_is_refused(self):
        self.fail_with(_WRONG_INPUT, ["--label="], "linear_regression", self.write("1,2,3"), "--label=")

    def test_a_label_without_data_has_no_use(self):
        self.fail_with(_WRONG_INPUT, ["--label=y", "--data"], "linear_regression", "--label=y")

    def test_a_row_that_does_not_fit_is_named(self):
        self.fail_with(_DATA_LOSS, ["rows.csv:3"], "linear_regression", self.write("1,2,3", "1,x,3"))


class Gpt(Case):
    def test_goes_on_with_a_prompt(self):
        text = self.folder / "text"
        text.write_text("the cat sat on the mat. " * 100, encoding="utf-8")
        small = ["--layers=1", "--heads=2", "--width=16", "--context=16", "--epochs=4", "--batch=8", "--write=40"]
        written = self.succeed("gpt", f"--text={text}", "--prompt=the ", *small)
        # Of 256 bytes it has learned those that there are.
        self.assertRegex(written, r"(?m)^the [achemnost .]{40}$")
        self.assertLess(self.number("train_loss", written), 0.5 * math.log(256))

    def test_a_text_that_cannot_be_learned_is_named(self):
        empty = self.folder / "empty"
        empty.touch()
        self.fail_with(_WRONG_INPUT, [f"--text={empty}", "0 bytes"], "gpt", f"--text={empty}")
        self.fail_with(_WRONG_INPUT, [f"--text={self.folder}", "not a regular file"], "gpt", f"--text={self.folder}")
        self.fail_with(_NOT_FOUND, ["--text=/nowhere", "No such file"], "gpt", "--text=/nowhere")

    def test_a_network_without_end_is_refused(self):
        layers = "--layers=100000000"
        self.fail_with(_WRONG_INPUT, [layers, "at most 1000"], "gpt", layers)


class Resnet(Case):
    def test_learns_from_cifar10s_files(self):
        def records(count):
            return b"".join(bytes([i % 10]) + 3 * digit(i % 10, i, 32) for i in range(count))

        for i in range(1, 6):
            (self.folder / f"data_batch_{i}.bin").write_bytes(records(40))
        (self.folder / "test_batch.bin").write_bytes(records(40))
        text = self.succeed("resnet_cifar10", f"--data_dir={self.folder}", "--depth=8", "--epochs=6", "--batch=20")
        self.assertGreater(self.number("test_accuracy", text), 0.2)  # of ten classes

    def test_a_precision_that_there_is_not_is_refused(self):
        precision = "--precision=float8"
        self.fail_with(_WRONG_INPUT, [precision, "mixed_bfloat16"], "resnet_cifar10", precision)

    def test_a_depth_that_no_blocks_give_is_refused(self):
        self.fail_with(_WRONG_INPUT, ["--depth=57", "6 n + 2"], "resnet_cifar10", "--depth=57")

    def test_a_network_without_end_is_refused(self):
        depth = "--depth=6000000000002"
        self.fail_with(_WRONG_INPUT, [depth, "at most 1202"], "resnet_cifar10", depth)

    def test_a_label_that_cifar10_does_not_have_is_named(self):
        for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
            (self.folder / name).write_bytes(bytes([3]) + digit(3, 0, 32) * 3)
        bad = self.folder / "data_batch_4.bin"
        bad.write_bytes(bad.read_bytes() + bytes([10]) + digit(3, 0, 32) * 3)
        self.fail_with(
            _DATA_LOSS, [f"{bad}: byte 3073", "label 10"], "resnet_cifar10", f"--data_dir={self.folder}", "--depth=8"
        )

    def test_learns_from_generated_files_and_leaves_them_only_where_asked(self):
        kept, temporary = self.folder / "kept", self.folder / "temporary"
        temporary.mkdir()
        small = ["--depth=8", "--epochs=1", "--batch=40", "--images=200"]
        with unittest.mock.patch.dict(os.environ, {"TMPDIR": str(temporary)}):
            of_temporary = self.succeed("resnet_cifar10", *small)
            of_kept = self.succeed("resnet_cifar10", f"--generate_in={kept}", *small)
        self.assertEqual(list(temporary.iterdir()), [])
        sizes = {path.name: path.stat().st_size for path in kept.iterdir()}
        batches = {f"data_batch_{i}.bin": 40 * 3073 for i in range(1, 6)}
        self.assertEqual(sizes, {**batches, "test_batch.bin": 40 * 3073})
        backup = f"--backup_dir={self.folder / 'backup'}"
        of_given = self.succeed("resnet_cifar10", f"--data_dir={kept}", backup, *small)
        accuracies = {self.number("test_accuracy", text) for text in (of_temporary, of_kept, of_given)}
        self.assertEqual(len(accuracies), 1)
        self.fail_with(_ALREADY_EXISTS, [str(kept), "data_batch_1.bin"], "resnet_cifar10", f"--generate_in={kept}")


class Gan(Case):
    def test_two_models_learn_against_each_other(self):
        text = self.succeed("gan", "--epochs=1", "--batch=500", "--replicas=3")
        (line,) = re.findall(
            r"(?m)^epoch 1: critic_loss=([0-9.]+) generator_loss=([0-9.]+) near=[01][.0-9]+ modes=[0-8]$", text
        )
        # Twice, and once, the logarithm of two: what opponents that know nothing yet lose.
        self.assertAlmostEqual(float(line[0]), 1.386, delta=0.5)
        self.assertAlmostEqual(float(line[1]), 0.693, delta=0.4)
        self.assertRegex(text, r"(?m)^near=[01][.0-9]+ modes=[0-8] of 8$")

    def test_an_interrupt_ends_it_after_the_step(self):
        command = [os.path.abspath("examples/gan"), "--epochs=1000000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            deadline = threading.Timer(cases.DEADLINE, process.kill)
            deadline.start()
            self.addCleanup(deadline.cancel)
            self.assertRegex(process.stdout.readline(), "^epoch 20: ")
            process.send_signal(signal.SIGINT)
            _, said = process.communicate()
        self.assertEqual(process.returncode, _CANCELLED, said)
        self.assertIn("CANCELLED: interrupted in epoch ", said)


class ReplicaBenchmarks(Case):
    _SMALL = ["--model=mlp", "--batch=8", "--steps=2", "--rounds=1"]

    def test_mirrored_prints_a_line_for_each_number_of_replicas_and_their_ratio(self):
        text = self.succeed("mirrored", *self._SMALL, "--replicas=1,2", "--threads=2", folder="benchmarks")
        lines = re.findall(
            r"(?m)^cohort mlp replicas=(\d) threads_per_replica=(\d) global_batch=8 median_ms=[0-9.]+ "
            r"examples_per_s=[0-9.]+$",
            text,
        )
        self.assertEqual(lines, [("1", "2"), ("2", "1")])
        self.assertRegex(text, r"(?m)^ratio mlp replicas=2/replicas=1 speed=[0-9.]+ \(median of 1 alternating rounds\)$")

    def test_mirrored_scales_weakly_with_as_many_rows_for_each_replica(self):
        text = self.succeed("mirrored", *self._SMALL, "--replicas=1,2", "--threads=2", "--weak", folder="benchmarks")
        lines = re.findall(r"(?m)^cohort mlp replicas=(\d) threads_per_replica=\d global_batch=(\d+) ", text)
        self.assertEqual(lines, [("1", "8"), ("2", "16")])

    def test_mirrored_takes_gpus_where_asked(self):  # of which no machine has so many
        self.fail_with(_NOT_FOUND, ["gpu:"], "mirrored", "--replicas=99", "--device=gpu", folder="benchmarks")

    def test_a_trace_that_cannot_be_written_is_told_before_anything_is_measured(self):
        trace = f"{self.folder}/none/trace.json"
        flags = (f"--profile={trace}", "--batch=1000000000000000")  # of which no memory holds the rows
        for program in ("overlap", "train"):
            self.fail_with(_NOT_FOUND, [trace], program, *flags, folder="benchmarks")

    def test_an_older_trace_stays_until_there_is_another(self):
        trace = self.folder / "trace.json"
        trace.write_text("older", encoding="utf-8")
        flags = (f"--profile={trace}", "--batch=1000000000000000")  # of which no memory holds the rows
        for program in ("overlap", "train"):
            self.assertNotEqual(run(program, *flags, folder="benchmarks").returncode, 0)
            self.assertEqual(trace.read_text(encoding="utf-8"), "older")
            self.assertEqual(list(self.folder.iterdir()), [trace])

    def test_overlap_prints_what_was_hidden(self):
        trace = self.folder / "trace.json"
        text = self.succeed("overlap", *self._SMALL, f"--profile={trace}", folder="benchmarks")
        line = re.search(
            r"(?m)^cohort-overlap model=mlp replicas=2 buckets=(\d+) communication_us=(\d+) exposed_us=(\d+) "
            r"hidden=(-?\d+)% waiting_us=\d+ step_ms=[0-9.]+ step_ms_without_overlap=[0-9.]+ "
            r"step_ms_bucket_for_each=[0-9.]+$",
            text,
        )
        buckets, moving, exposed, hidden = (int(number) for number in line.groups())
        self.assertGreaterEqual(buckets, 1)
        self.assertGreater(moving, 0)
        self.assertAlmostEqual(hidden, 100 * (1 - exposed / moving), delta=2)
        self.assertIn("AllReduce", trace.read_text(encoding="utf-8"))

    def test_allreduce_prints_a_line_for_each_size_and_number_of_ranks(self):
        text = self.succeed(
            "allreduce", "--backend=threads", "--np=2,3", "--bytes=4096,1048576", "--rounds=1", "--repetitions=3",
            folder="benchmarks",
        )
        number = "([0-9.]+)"
        lines = re.findall(
            rf"(?m)^cohort-threads np=(\d) bytes=(\d+) median_us={number} algbw_GBs={number} busbw_GBs={number}$", text
        )
        self.assertEqual(
            [line[:2] for line in lines], [("2", "4096"), ("2", "1048576"), ("3", "4096"), ("3", "1048576")]
        )
        for ranks, size, microseconds, gigabytes, of_bus in lines:
            self.assertAlmostEqual(float(gigabytes), int(size) / float(microseconds) / 1e3, delta=0.02 * float(gigabytes) + 1e-3)
            self.assertAlmostEqual(float(of_bus), float(gigabytes) * 2 * (int(ranks) - 1) / int(ranks), delta=2e-3)


class TrainingBenchmark(Case):
    _SMALL = ("--model=mlp", "--batch=8", "--threads=1", "--steps=1", "--rounds=1")

    def with_python(self, python):
        return unittest.mock.patch.dict(os.environ, {"PYTHON": python})

    def test_trains_in_bfloat16(self):
        text = self.succeed("train", *self._SMALL, "--precision=mixed_bfloat16", folder="benchmarks")
        self.assertRegex(
            text,
            r"^cohort mlp world=1 local_batch=8 threads=1 precision=mixed_bfloat16 params=1863690 "
            r"median_ms=[0-9.]+ examples_per_s=[0-9.]+ peak_rss_mb=\d+\n$",
        )
        self.fail_with(
            _WRONG_INPUT, ["--precision=bfloat8", "mixed_bfloat16"], "train", "--precision=bfloat8", folder="benchmarks"
        )

    def test_names_what_to_install_where_there_is_no_torch(self):
        with self.with_python("/bin/false"):
            self.fail_with(
                _UNAVAILABLE,
                ["python3-torch", "libopenblas0", "$PYTHON"],
                "train",
                *self._SMALL,
                "--vs-torch",
                folder="benchmarks",
            )

    def test_prints_the_peers_line_and_the_ratio(self):
        peer = self.folder / "peer.py"
        peer.write_text("import sys\nprint('peer', *sys.argv[1:], 'median_ms=100.0')\n", encoding="utf-8")
        with self.with_python(sys.executable):
            text = self.succeed("train", *self._SMALL, "--vs-torch", f"--peer={peer}", folder="benchmarks")
        own, given, ratio = text.splitlines()
        for argument in ("--model=mlp", "--batch=8", "--threads=1", "--steps=1", "--precision=float32"):
            self.assertIn(f" {argument} ", given)
        milliseconds = float(re.search(r" median_ms=([0-9.]+) ", own).group(1))
        found = re.fullmatch(
            r"ratio mlp cohort_ms=([0-9.]+) torch_ms=100.0000 cohort/torch=([0-9.]+) \(medians of 1 alternating rounds\)",
            ratio,
        )
        self.assertEqual(float(found.group(1)), milliseconds)
        self.assertAlmostEqual(float(found.group(2)), 100 / milliseconds, delta=0.01 * 100 / milliseconds + 0.01)

    def test_refuses_what_torch_cannot_do(self):
        flags = ("--vs-torch", "--precision=mixed_float16")
        self.fail_with(_WRONG_INPUT, ["mixed_bfloat16"], "train", *flags, folder="benchmarks")
        self.fail_with(_WRONG_INPUT, ["--vs-torch"], "train", "--compile", folder="benchmarks")

    def test_prints_its_line_and_writes_a_trace(self):
        trace = self.folder / "trace.json"
        text = self.succeed(
            "train", "--model=mlp", "--batch=16", "--steps=2", "--rounds=1", f"--profile={trace}", folder="benchmarks"
        )
        self.assertRegex(
            text,
            r"(?m)^cohort mlp world=1 local_batch=16 threads=\d+ precision=float32 params=1863690 "
            r"median_ms=[0-9.]+ examples_per_s=[0-9.]+ peak_rss_mb=\d+$",
        )
        events = json.loads(trace.read_text(encoding="utf-8"))
        events = events["traceEvents"] if isinstance(events, dict) else events
        kernels = {event["name"] for event in events if event["ph"] == "X"}
        self.assertTrue(any("MatMul" in name for name in kernels), kernels)


if __name__ == "__main__":
    sys.exit(cases.run())
