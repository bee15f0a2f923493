#!/usr/bin/env -S python3 -B
"""The scripts and manifests of examples/cluster: scripts run, and manifests give what the resolver needs."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

import cases
import emulated_slurm
from batch_jobs import Case, wait_for
from programs import COHORT_CLUSTER, COHORT_RUN, EXAMPLES, ROLLCALL, free_port, read_tasks, run

try:
    import yaml
except ImportError:
    yaml = None
_UNAVAILABLE, _RESUMABLE, _TERMINATED = 24, 42, 143  # exit codes of Cohort's programs
_NO_MPIRUN = "mpirun is not installed (./dev setup installs openmpi-bin)"


def example(name):
    return os.path.join(EXAMPLES, name)


class EverySlurmScript(unittest.TestCase):
    def test_is_run_below(self):
        self.assertEqual(
            sorted(path.name for path in pathlib.Path(EXAMPLES).glob("*.sbatch")),
            ["array.sbatch", "one_task_per_host.sbatch", "several_tasks_per_host.sbatch"],
        )


class Slurm(Case):
    """Runs inside an emulated Slurm."""

    def setUp(self):
        super().setUp()
        if "SLURM_CONF" not in os.environ:
            self.skipTest(_no_slurm)

    def program(self, text):
        path = self.folder / "program"
        path.write_text("#!/bin/bash\n" + text, encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def submit_example(self, name, *command):
        return run("sbatch", "--parsable", f"--chdir={self.folder}", example(name), *command).stdout.strip()

    def logs(self):
        return [path.read_text(encoding="utf-8") for path in sorted(self.folder.glob("*.log"))]

    def test_one_task_per_host(self):
        program = self.program(f"echo processors $SLURM_CPUS_PER_TASK\nexec {ROLLCALL}\n")
        self.wait_for_job(self.submit_example("one_task_per_host.sbatch", program))
        (log,) = self.logs()
        self.assertEqual([task["host"] for task in read_tasks(log)], ["n1", "n2", "n3", "n4"])
        self.assertEqual(log.count("processors 4"), 4)

    def test_tasks_that_saved_their_state_are_started_again(self):
        for name in ("one_task_per_host", "several_tasks_per_host"):
            with self.subTest(name):
                self.check_preemption(f"{name}.sbatch", "trap 'exit 42' TERM")

    def test_tasks_that_were_ended_before_they_trained_are_started_again(self):
        self.check_preemption("several_tasks_per_host.sbatch", ":")

    def check_preemption(self, name, trap):
        for path in self.folder.iterdir():
            path.unlink()
        program = self.program(
            f"""\
[[ ${{SLURM_RESTART_COUNT:-0}} = 0 ]] || exec {ROLLCALL}
{trap}
touch {self.folder}/started.$SLURM_PROCID
while :; do sleep 0.05; done
"""
        )
        job = self.submit_example(name, program)
        wait_for(lambda: len(list(self.folder.glob("started.*"))) == 4, "four tasks")
        run("scancel", "--signal=TERM", job)  # as --signal does when the time is nearly up
        wait_for(lambda: "Restarts=1" in run("scontrol", "show", "job", job).stdout, "its return to the queue")
        wait_for(lambda: self.state(job) == ["PENDING"], "the end of its first run")
        # Slurm lets such a job wait for two minutes: within a second, slurmd would take it for the one it has ended.
        run("scontrol", "update", f"JobId={job}", "StartTime=now+2")
        self.wait_for_job(job)
        self.assertEqual(len(read_tasks(self.logs()[0])), 4)

    def test_all_tasks_are_started_again_when_one_is_lost(self):
        program = self.program(
            f"""\
[[ $SLURM_STEP_ID = 0 ]] || exec {ROLLCALL}
[[ $SLURM_PROCID != 2 ]] || kill -KILL $$
exit {_UNAVAILABLE}
"""
        )
        for name in ("one_task_per_host", "several_tasks_per_host"):
            self.wait_for_job(self.submit_example(f"{name}.sbatch", program))
        self.assertEqual([len(read_tasks(log)) for log in self.logs()], [4, 4])

    def test_tasks_that_are_lost_again_and_again_are_given_up(self):
        program = self.program(f"echo attempt $SLURM_STEP_ID\nexit {_UNAVAILABLE}\n")
        self.wait_for_job(self.submit_example("several_tasks_per_host.sbatch", program), "FAILED")
        (log,) = self.logs()
        self.assertEqual([log.count(f"attempt {attempt}\n") for attempt in range(5)], [4, 4, 4, 4, 0])

    def test_other_failures_are_final(self):
        self.wait_for_job(self.submit_example("one_task_per_host.sbatch", self.program("exit 3\n")), "FAILED")

    def test_several_tasks_per_host(self):
        program = self.program(f"echo processors $SLURM_CPUS_PER_TASK threads $OMP_NUM_THREADS\nexec {ROLLCALL}\n")
        self.wait_for_job(self.submit_example("several_tasks_per_host.sbatch", program))
        (log,) = self.logs()
        first, second, third, fourth = (task["host"] for task in read_tasks(log))
        self.assertEqual((first, third), (second, fourth))
        self.assertNotEqual(first, third)
        self.assertEqual(log.count("processors 2 threads 2"), 4)

    def test_array(self):
        self.wait_for_job(
            self.submit_example("array.sbatch", self.program(f"echo $*\nexec {ROLLCALL}\n"), "--epochs=2")
        )
        logs = self.logs()
        for seed, log in enumerate(logs, 1):
            self.assertIn(f"--epochs=2 --seed={seed}\n", log)
        self.assertEqual(len({read_tasks(log)[0]["leader"] for log in logs}), 3)

    def test_a_program_must_be_named(self):
        for name in ("array", "one_task_per_host", "several_tasks_per_host"):
            self.wait_for_job(self.submit_example(f"{name}.sbatch"), "FAILED")
            self.assertIn(f"usage: sbatch {name}.sbatch PROGRAM", self.logs()[0])
            for log in self.folder.glob("*.log"):
                log.unlink()

    @unittest.skipUnless(shutil.which("mpirun"), _NO_MPIRUN)
    def test_mpirun_on_two_hosts(self):
        tasks = read_tasks(
            run(
                "salloc",
                "--quiet",
                "-N2",
                "-n4",
                "--ntasks-per-node=2",
                "-wn[1-2]",
                example("mpirun.sh"),
                "n1:2,n2:2",
                ROLLCALL,
                environment=_AS_ROOT,
            ).stdout
        )
        self.assertEqual([task["host"] for task in tasks], ["n1", "n1", "n2", "n2"])
        self.assertEqual({task["leader"].split(":")[0] for task in tasks}, {"n1"})


_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Mpirun(unittest.TestCase):
    @unittest.skipUnless(shutil.which("mpirun"), _NO_MPIRUN)
    def test_on_this_host(self):
        tasks = read_tasks(run(example("mpirun.sh"), "localhost:3", ROLLCALL, environment=_AS_ROOT).stdout)
        self.assertEqual({task["leader"].split(":")[0] for task in tasks}, {"127.0.0.1"})

    @unittest.skipUnless(shutil.which("mpirun"), _NO_MPIRUN)
    def test_hands_on_the_leader_that_the_user_names(self):
        leader = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
        tasks = read_tasks(run(example("mpirun.sh"), "localhost:3", ROLLCALL, environment=_AS_ROOT | leader).stdout)
        self.assertEqual([task["leader"] for task in tasks], [":".join(leader.values())] * 3)


class Ssh(unittest.TestCase):
    def test_hands_every_word_on_as_it_is(self):
        # An ssh that runs its command on this host, and a cohort-run that shows its arguments.
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("ssh", 'bash -c "${@: -1}"'), ("cohort run", "printf '<%s>' \"$@\"")):
                path = pathlib.Path(folder, name)
                path.write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
                path.chmod(0o755)
            settings = {"PATH": f"{folder}:{os.environ['PATH']}", "COHORT_RUN": f"{folder}/cohort run"}
            shown = run(example("ssh.sh"), "a", "my program", "$HOME 'x'", environment=settings).stdout
        self.assertIn("<--node_rank=0><--nnodes=1><--rendezvous=a:29400><--workers=1>", shown)
        self.assertIn("<--><my program><$HOME 'x'>", shown)


@unittest.skipUnless(yaml, "the yaml module is not installed (./dev setup installs python3-yaml)")
class Kubernetes(unittest.TestCase):
    def load(self, name):
        with open(example(name), encoding="utf-8") as file:
            return list(yaml.safe_load_all(file))

    def check(self, environment):
        """What `cohort_cluster` finds in a pod with this environment alone."""
        settings = [f"{name}={value}" for name, value in environment.items()]
        return json.loads(run("env", "-i", *settings, COHORT_CLUSTER, "check", "--timeout=0", "--json").stdout)

    def load_job(self, file):
        """The name and spec of an indexed Job, after what all of them need is looked at."""
        service, job = self.load(file)
        spec, pod = job["spec"], job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        name, pods = job["metadata"]["name"], spec["completions"]
        self.assertEqual((service["kind"], job["kind"]), ("Service", "Job"))
        self.assertEqual((spec["completionMode"], spec["parallelism"]), ("Indexed", pods))
        # The service is headless and of these pods, which name it.
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertIs(service["spec"]["publishNotReadyAddresses"], True)
        self.assertEqual(service["spec"]["selector"], {"job-name": name})
        self.assertEqual(pod["subdomain"], service["metadata"]["name"])
        # A lost worker ends all others, of which none may count as a failure of the Job.
        self.assertEqual(pod["restartPolicy"], "Never")  # without it, Kubernetes refuses what follows
        by_exit_code, by_condition = spec["podFailurePolicy"]["rules"]
        self.assertEqual({by_exit_code["action"], by_condition["action"]}, {"Ignore"})
        self.assertEqual(
            by_exit_code["onExitCodes"],
            {
                "containerName": container["name"],
                "operator": "In",
                "values": [_UNAVAILABLE, _RESUMABLE, _TERMINATED],
            },
        )
        self.assertEqual(by_condition["onPodConditions"], [{"type": "DisruptionTarget", "status": "True"}])
        return name, spec

    def test_indexed_job(self):
        name, spec = self.load_job("indexed_job.yaml")
        pods, pod = spec["completions"], spec["template"]["spec"]
        (container,) = pod["containers"]
        environment = {variable["name"]: variable["value"] for variable in container["env"]}
        self.assertEqual({type(value) for value in environment.values()}, {str})  # Kubernetes takes no numbers here
        self.assertIn("--backup_dir=/backup", container["command"])  # else a restart begins anew
        (port,) = (port["containerPort"] for port in container["ports"])
        for index in range(pods):
            # The last two are what Kubernetes adds.
            found = self.check(dict(environment, JOB_COMPLETION_INDEX=index, HOSTNAME=f"{name}-{index}"))
            self.assertEqual(found["launcher"], "Kubernetes")
            self.assertEqual(found["world"], {"rank": index, "size": pods})
            self.assertEqual(found["cluster"]["worker"], [f"{name}-{i}.{pod['subdomain']}:{port}" for i in range(pods)])

    def test_elastic(self):
        name, spec = self.load_job("elastic.yaml")
        pods, pod = spec["completions"], spec["template"]["spec"]
        (container,) = pod["containers"]
        shell, option, script = container["command"]
        # Without what the image has, and on one host.
        start, program, _ = script.partition("/app/mnist_cnn")
        rendezvous = f"{name}-0.{pod['subdomain']}:29400"
        self.assertTrue(program)
        self.assertIn(rendezvous, start)
        start = start.replace(rendezvous, f"127.0.0.1:{free_port()}").replace("/app/cohort-run", COHORT_RUN)
        environment = {variable["name"]: variable["value"] for variable in container["env"]}
        with concurrent.futures.ThreadPoolExecutor(pods) as threads:
            nodes = [
                threads.submit(
                    run,
                    shell,
                    option,
                    start + "printenv WORLD_SIZE",
                    environment=dict(environment, JOB_COMPLETION_INDEX=str(index)),
                )
                for index in range(pods)
            ]
        printed = "".join(sorted(node.result().stdout for node in nodes))
        self.assertEqual(printed, "".join(f"[worker:{index}] {pods}\n" for index in range(pods)))

    def test_tfjob(self):
        (job,) = self.load("tfjob.yaml")
        self.assertEqual((job["kind"], job["apiVersion"]), ("TFJob", "kubeflow.org/v1"))
        tasks, cluster = [], {}
        policies = {replicas["restartPolicy"] for replicas in job["spec"]["tfReplicaSpecs"].values()}
        self.assertEqual(policies, {"OnFailure"})  # ExitCode counts what is below 128 as final
        for kind, replicas in job["spec"]["tfReplicaSpecs"].items():
            (container,) = replicas["template"]["spec"]["containers"]
            self.assertEqual(container["name"], "tensorflow")
            self.assertIn("--backup_dir=/backup", container["command"])  # else a restart begins anew
            (port,) = (port["containerPort"] for port in container["ports"] if port["name"] == "tfjob-port")
            # As the operator names pods and fills in TF_CONFIG.
            kind, name, namespace = kind.lower(), job["metadata"]["name"], job["metadata"]["namespace"]
            cluster[kind] = [f"{name}-{kind}-{i}.{namespace}.svc:{port}" for i in range(replicas["replicas"])]
            tasks += [{"type": kind, "index": i} for i in range(replicas["replicas"])]
        for rank, task in enumerate(tasks):
            found = self.check({"TF_CONFIG": json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})})
            self.assertEqual(found["task"], task)
            self.assertEqual(found["world"], {"rank": rank, "size": 4})
            self.assertEqual(found["leader"], cluster["chief"][0])
            self.assertEqual(found["cluster"], cluster)
        # The operator counts the restarts of all pods, and gives up when there are as many.
        self.assertGreater(job["spec"]["runPolicy"]["backoffLimit"], 3 * len(tasks))


_no_slurm = ""

if __name__ == "__main__":
    try:
        sys.exit(emulated_slurm.with_slurm(cases.run))
    except emulated_slurm.Unavailable as unavailable:
        _no_slurm = str(unavailable)
        sys.exit(cases.run())
