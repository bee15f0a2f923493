"""Tests of programs on several hosts."""

def slurm_test(name, command, data = [], size = "medium", tags = [], **kwargs):
    """Runs a command on the login host of a Slurm of four hosts on this machine; passes if it exits with 0.

    slurm_test(
        name = "mnist_cnn_slurm_test",
        command = ["srun", "-n4", "$(location //examples:mnist_cnn)", "--epochs=1"],
        data = ["//examples:mnist_cnn"],
    )
    """
    launchers = "//tests/integration/launchers:"
    native.sh_test(
        name = name,
        size = size,
        srcs = [launchers + "emulated_slurm.py"],
        args = command,
        data = data + [launchers + "cases.py", launchers + "hosts.py"],
        # Real root, which no sandbox gives: slurmd drops supplementary groups.
        tags = tags + ["no-sandbox"],
        **kwargs
    )
