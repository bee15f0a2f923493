#!/usr/bin/env python3
"""The benchmark models in PyTorch, to be timed beside ours: same layers, shapes, optimizer and loss.

Needs Debian's python3-torch and libopenblas0: on the reference BLAS it refuses to run. Prints one line like ours.
With --workers, as many processes train together under DistributedDataParallel over Gloo. On a GPU, a batch comes from
pinned memory at each step, as ours does, and resnet50 and gpt2 need PyTorch 2.
"""
import argparse
import os
import socket
import statistics
import time

with open("/proc/cpuinfo", encoding="ascii", errors="replace") as cpuinfo:
    if "avx512f" in cpuinfo.read():  # OpenBLAS, which reads this when torch is imported, does not know newer ones
        os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")

import torch
from torch import distributed, multiprocessing, nn
from torch.nn import functional as F


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(y)) + self.shortcut(x))


class Gpt(nn.Module):
    """A pre-norm transformer over bytes with learned positions."""

    def __init__(self, vocabulary=256, length=128, size=256, heads=4, layers=4):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, size)
        self.positions = nn.Embedding(length, size)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(size, heads, 4 * size, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(layers))
        self.head = nn.Linear(size, vocabulary)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, x):
        y = self.tokens(x) + self.positions.weight
        for layer in self.layers:
            y = layer(y, self.mask)
        return self.head(y).flatten(0, 1)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut; the stride is the 3x3's (v1.5)."""

    def __init__(self, inputs, filters, stride, changes_shape):
        super().__init__()

        def convolution(inputs, outputs, kernel, stride=1):
            return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)]

        outputs = 4 * filters
        self.inner = nn.Sequential(*convolution(inputs, filters, 1), nn.ReLU(),
                                   *convolution(filters, filters, 3, stride), nn.ReLU(),
                                   *convolution(filters, outputs, 1))
        self.shortcut = nn.Sequential(*convolution(inputs, outputs, 1, stride)) if changes_shape else nn.Identity()

    def forward(self, x):
        return F.relu(self.inner(x) + self.shortcut(x))


def resnet50(classes=1000):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for filters, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for k in range(blocks):
            layers.append(Bottleneck(inputs, filters, 2 if k == 0 and filters > 64 else 1, k == 0))
            inputs = 4 * filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


class Gpt2Layer(nn.Module):
    """Attention in one projection for queries, keys and values, and two products, each behind a norm."""

    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.norm = nn.LayerNorm(size), nn.LayerNorm(size)
        self.attention_in, self.attention_out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.inner, self.outer = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x):
        batch, length, size = x.shape
        heads = [t.view(batch, length, self.heads, -1).transpose(1, 2)
                 for t in self.attention_in(self.attention_norm(x)).split(size, dim=2)]
        y = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.attention_out(y.transpose(1, 2).reshape(batch, length, size))
        return x + self.outer(F.gelu(self.inner(self.norm(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """GPT-2 124M: the head is the table of tokens."""

    def __init__(self, vocabulary=50257, length=1024, size=768, heads=12, layers=12):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, size)
        self.positions = nn.Embedding(length, size)
        self.layers = nn.Sequential(*(Gpt2Layer(size, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(size)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(self, x):
        y = self.norm(self.layers(self.tokens(x) + self.positions.weight))
        return F.linear(y, self.tokens.weight).flatten(0, 1)


def resnet(depth):
    layers = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    inputs = 16
    for outputs in (16, 32, 64):
        for k in range((depth - 2) // 6):
            layers.append(Block(inputs, outputs, 2 if k == 0 and outputs > 16 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def make(model, batch):
    """Returns the network, one batch of made-up input, and its labels."""
    labels = torch.randint(10, (batch,))
    if model == "mlp":
        net = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
        return net, torch.rand(batch, 784), labels
    if model == "cnn":
        net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                            nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))
        return net, torch.rand(batch, 1, 28, 28), labels
    if model == "resnet50":
        return resnet50(), torch.rand(batch, 3, 224, 224), torch.randint(1000, (batch,))
    if model == "gpt2":
        return Gpt2(), torch.randint(50257, (batch, 1024)), torch.randint(50257, (batch * 1024,))
    if model.startswith("resnet"):
        return resnet(int(model[len("resnet"):])), torch.rand(batch, 3, 32, 32), labels
    return Gpt(), torch.randint(256, (batch, 128)), torch.randint(256, (batch * 128,))


AUTOCAST = {"float32": None, "mixed_bfloat16": torch.bfloat16, "mixed_float16": torch.float16}


def prepare_gpu(args):
    torch.cuda.set_device(torch.device(args.device))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.tf32
    torch.backends.cudnn.benchmark = True


def has_reference_blas():
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return "/blas/libblas.so" in maps.read()


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="mlp",
                        choices=["mlp", "cnn", "resnet20", "resnet56", "resnet50", "gpt", "gpt2"])
    parser.add_argument("--batch", type=int, default=64, help="of all workers")
    parser.add_argument("--threads", type=int, default=2, help="of all workers")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--precision", choices=list(AUTOCAST), default="float32",
                        help="mixed_float16, with a loss scale, on GPUs")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N, for one worker")
    parser.add_argument("--tf32", action="store_true", help="on GPUs, products of float32 read TF32")
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    parser.add_argument("--channels-last", action="store_true", help="images and filters as NHWC")
    args = parser.parse_args()
    if args.device == "cpu" and (args.tf32 or args.precision == "mixed_float16"):
        parser.error("--tf32 and mixed_float16 need --device=cuda")
    if args.device != "cpu" and args.workers > 1:
        parser.error("several workers are on the CPU: Gloo")
    if args.device == "cpu" and has_reference_blas():
        parser.error("PyTorch is on the reference BLAS, some ten times too slow; install libopenblas0")
    return args


def train(rank, args):
    batch, threads = args.batch // args.workers, max(1, args.threads // args.workers)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    on_gpu = args.device != "cpu"
    if on_gpu:
        prepare_gpu(args)
    net, x, labels = make(args.model, batch)
    layout = torch.channels_last if args.channels_last and x.dim() == 4 else torch.contiguous_format
    net, x = net.to(args.device, memory_format=layout), x.contiguous(memory_format=layout)
    if on_gpu:
        x, labels = x.pin_memory(), labels.pin_memory()
    params = sum(p.numel() for p in net.parameters())
    if args.workers > 1:
        distributed.init_process_group("gloo", rank=rank, world_size=args.workers)
        net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    if args.compile:
        net = torch.compile(net)
    low = AUTOCAST[args.precision]
    scaler = torch.cuda.amp.GradScaler(enabled=low is torch.float16)

    def step():
        here, wanted = (t.to(args.device, non_blocking=True) for t in (x, labels))
        optimizer.zero_grad()
        with torch.autocast("cuda" if on_gpu else "cpu", dtype=low or torch.bfloat16, enabled=low is not None):
            loss = F.cross_entropy(net(here).float(), wanted)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    for _ in range(3):
        step()
    times = []
    for _ in range(args.steps):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    median = statistics.median(times)
    if rank == 0:
        words = [f"device={args.device}"] * on_gpu + [
            word for word in ("tf32", "compile", "channels_last") if getattr(args, word)]
        print(f"torch {' '.join([args.model, *words])} world={args.workers} local_batch={batch} threads={threads} "
              f"precision={args.precision} params={params} median_ms={median * 1e3:.4f} "
              f"examples_per_s={batch * args.workers / median:.1f}", flush=True)


def main():
    args = parse()
    if args.workers == 1:
        train(0, args)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
    multiprocessing.spawn(train, (args,), args.workers)


if __name__ == "__main__":
    main()
