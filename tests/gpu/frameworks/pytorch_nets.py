#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A small transformer and a small convolutional net in PyTorch: training steps on fixed data, then inference with
changing lengths. Prints times, losses, a sum of each output and the peak of reserved memory."""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

from waiting import finish

SEED = 20240531
WORDS = 4096
LENGTHS = (17, 128, 64, 200, 33, 96, 256, 50)


class Transformer(nn.Module):
    def __init__(self, width=512, layers=4):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS)

    def forward(self, words):
        return self.head(self.body(self.embedding(words)))


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        layers, wide = [], 3
        for width in 64, 128, 256, 256:
            layers += [
                nn.Conv2d(wide, width, 3, 2, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, 1, 1),
                nn.ReLU(),
            ]
            wide = width
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, 10))

    def forward(self, images):
        return self.body(images)


def words(device, batch, length):
    return torch.randint(WORDS, (batch, length), device="cpu").to(device)


def images(device, batch, size):
    return torch.randn(batch, 3, size, size, device="cpu").to(device)


def transformer_loss(net, data):
    return F.cross_entropy(net(data[:, :-1]).flatten(0, 1), data[:, 1:].flatten())


def convolutional_loss(net, data):
    return F.cross_entropy(net(data), torch.arange(len(data), device=data.device) % 10)


NETS = {
    "transformer": (Transformer, transformer_loss, lambda device, length: words(device, 16, length)),
    "convolutional": (Convolutional, convolutional_loss, lambda device, size: images(device, 32, size)),
}


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(device, work):
    """(result, milliseconds)"""
    synchronize(device)
    begun = time.perf_counter()
    result = work()
    synchronize(device)
    return result, 1000 * (time.perf_counter() - begun)


def measure(name, device, steps):
    torch.manual_seed(SEED)
    make, loss_of, data_of = NETS[name]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    net = make().to(device)
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-4)
    data = [data_of(device, 129) for _ in range(4)]

    def step(i):
        optimiser.zero_grad(set_to_none=True)
        loss = loss_of(net, data[i % len(data)])
        loss.backward()
        optimiser.step()
        return loss.item()

    losses, times = zip(*(timed(device, lambda i=i: step(i)) for i in range(steps)))
    net.eval()
    outputs, inference = [], []
    with torch.no_grad():
        for turn in range(4):
            for length in LENGTHS:
                batch = data_of(device, length)
                output, spent = timed(device, lambda batch=batch: net(batch))
                if turn > 0:
                    inference.append(spent)
                outputs.append(output.double().sum().item())
    peak = torch.cuda.max_memory_reserved() if device.type == "cuda" else 0
    return {
        "losses": losses,
        "outputs": outputs,
        "step_ms": statistics.median(times[3:]),
        "inference_ms": statistics.median(inference),
        "peak_reserved": peak,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    # The others sum in an order of their own.
    for other in "flash", "mem_efficient", "cudnn":
        getattr(torch.backends.cuda, f"enable_{other}_sdp")(False)
    torch.backends.mha.set_fastpath_enabled(False)
    finish({"torch": torch.__version__, "nets": {name: measure(name, device, arguments.steps) for name in NETS}})


if __name__ == "__main__":
    main()
