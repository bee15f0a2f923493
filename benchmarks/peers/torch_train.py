#!/usr/bin/env python3
"""The benchmark models in PyTorch, to be timed beside ours: same layers, shapes, optimizer and loss.

Needs Debian's python3-torch, and libopenblas0 lest it runs on the reference BLAS. Prints one line like ours.
With --workers, as many processes train together under DistributedDataParallel over Gloo.
"""
import argparse
import os
import socket
import statistics
import time

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
    if model.startswith("resnet"):
        return resnet(int(model[len("resnet"):])), torch.rand(batch, 3, 32, 32), labels
    return Gpt(), torch.randint(256, (batch, 128)), torch.randint(256, (batch * 128,))


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=["mlp", "cnn", "resnet20", "resnet56", "gpt"], default="mlp")
    parser.add_argument("--batch", type=int, default=64, help="of all workers")
    parser.add_argument("--threads", type=int, default=2, help="of all workers")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--precision", choices=["float32", "mixed_bfloat16"], default="float32")
    return parser.parse_args()


def train(rank, args):
    batch, threads = args.batch // args.workers, max(1, args.threads // args.workers)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    net, x, labels = make(args.model, batch)
    params = sum(p.numel() for p in net.parameters())
    if args.workers > 1:
        distributed.init_process_group("gloo", rank=rank, world_size=args.workers)
        net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "mixed_bfloat16"):
            loss = F.cross_entropy(net(x).float(), labels)
        loss.backward()
        optimizer.step()
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
        print(f"torch {args.model} world={args.workers} local_batch={batch} threads={threads} "
              f"precision={args.precision} params={params} median_ms={median * 1e3:.2f} "
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
