#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Records the bundled allocation traces of tests/data from real runs of PyTorch on the CPU.

Each workload runs under torch.profiler with memory profiling, from before its model is built until its last step, so
that a trace holds every tensor's allocation and free, parameters included. The events are written as
`seq,op,id,size,stream,thread,t_us` and compressed with xz; traces.json beside them says how they were made.

    python3 -m venv VENV && VENV/bin/pip install torch==2.9.1 numpy==2.2.6
    VENV/bin/python scripts/record-traces.py tests/data

The order and the sizes of the events repeat from run to run (one thread, fixed seeds); the times do not.
"""
import argparse
import json
import lzma
import math
import os
import platform
import random
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

SEED = 20240531


class Bottleneck(nn.Module):
    """The residual block of ResNet-50: 1x1, 3x3, 1x1, four times as wide at its end."""

    def __init__(self, wide_in, width, stride):
        super().__init__()
        wide_out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(wide_in, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, wide_out, 1, bias=False), nn.BatchNorm2d(wide_out))
        self.shortcut = nn.Identity()
        if stride != 1 or wide_in != wide_out:
            self.shortcut = nn.Sequential(nn.Conv2d(wide_in, wide_out, 1, stride, bias=False),
                                          nn.BatchNorm2d(wide_out))

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet50(classes):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    wide = 64
    for width, depth, stride in (64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2):
        for index in range(depth):
            layers.append(Bottleneck(wide, width, stride if index == 0 else 1))
            wide = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, classes))


class DecoderLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, past):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.qkv(self.before_attention(x)).chunk(3, dim=-1))
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        mask = torch.ones(length, k.shape[2], dtype=torch.bool).tril(k.shape[2] - length)
        weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
        x = x + self.join((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.before_mlp(x)), (k, v)


class Transformer(nn.Module):
    """A decoder in the manner of GPT-2; `past` keeps the keys and values of what was read before."""

    def __init__(self, words, width, heads, layers, longest):
        super().__init__()
        self.word, self.place = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads) for _ in range(layers))
        self.end, self.out = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens, past=None):
        start = past[0][0].shape[2] if past else 0
        x = self.word(tokens) + self.place(torch.arange(start, start + tokens.shape[1]))
        kept = []
        for index, layer in enumerate(self.layers):
            x, pair = layer(x, past[index] if past else None)
            kept.append(pair)
        return self.out(self.end(x)), kept


def train_resnet50(batch, steps, classes, pixels):
    model = resnet50(classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    for _ in range(steps):
        images, labels = torch.randn(batch, 3, pixels, pixels), torch.randint(classes, (batch,))
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train_transformer(batch, steps, words, width, heads, layers, shortest, longest):
    """Batches of sentences of like length, so that every step has sizes of its own."""
    model = Transformer(words, width, heads, layers, longest)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    chance = random.Random(SEED)
    for _ in range(steps):
        tokens = torch.randint(words, (batch, chance.randint(shortest, longest)))
        logits, _ = model(tokens)
        loss = F.cross_entropy(logits[:, :-1].reshape(-1, words), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def serve_transformer(requests, most_in_flight, words, width, heads, layers, shortest, longest, answer):
    """Requests of changing lengths, several in flight: a prompt is read at once, then each turn adds one word to every
    request in flight, whose keys and values grow, and a finished one makes room for the next."""
    model = Transformer(words, width, heads, layers, longest + answer).eval()
    chance = random.Random(SEED)
    waiting = [(chance.randint(shortest, longest), chance.randint(1, answer)) for _ in range(requests)]
    in_flight = []
    with torch.no_grad():
        while waiting or in_flight:
            while waiting and len(in_flight) < most_in_flight:
                prompt, words_left = waiting.pop(0)
                logits, past = model(torch.randint(words, (1, prompt)))
                in_flight.append([logits[:, -1:].argmax(-1), past, words_left])
            for request in in_flight:
                logits, request[1] = model(request[0], request[1])
                request[0] = logits.argmax(-1)
                request[2] -= 1
            in_flight = [request for request in in_flight if request[2] > 0]


WORKLOADS = {
    "train_resnet50": (train_resnet50, dict(batch=4, steps=4, classes=1000, pixels=128)),
    "train_transformer": (train_transformer, dict(batch=16, steps=12, words=4000, width=192, heads=6, layers=6,
                                                  shortest=24, longest=128)),
    "serve_transformer": (serve_transformer, dict(requests=11, most_in_flight=4, words=8000, width=384, heads=6,
                                                  layers=6, shortest=16, longest=512, answer=20)),
}


def profile(work, parameters):
    """Run the workload; answer its memory events as (time in us, thread, address, bytes), in the order of time."""
    torch.manual_seed(SEED)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        work(**parameters)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    found = [(event["ts"], event["tid"], event["args"]["Addr"], event["args"]["Bytes"])
             for event in events if event.get("name") == "[memory]" and event["args"]["Device Type"] == 0]
    found.sort(key=lambda event: event[0])  # stable: what has one time keeps the profiler's order
    return found


def pair(found):
    """Pair allocations with frees: lines of the trace, and what there is to say about them."""
    lines, live, threads = [], {}, {}
    facts = dict(events=0, allocations=0, live_at_end=0, peak_live_bytes=0, frees_dropped=0)
    live_bytes, start = 0, found[0][0]
    for time, thread, address, size in found:
        if size < 0 and address not in live:
            facts["frees_dropped"] += 1  # allocated before the recording began
            continue
        if size == 0:
            continue
        if size > 0:
            if address in live:
                sys.exit(f"allocation at a live address {address:#x}: the profiler's events are out of order")
            facts["allocations"] += 1
            live[address] = (facts["allocations"], size)
            op, (block, size) = "a", live[address]
            live_bytes += size
        else:
            op, (block, size) = "f", live.pop(address)
            live_bytes -= size
        facts["peak_live_bytes"] = max(facts["peak_live_bytes"], live_bytes)
        number = threads.setdefault(thread, len(threads))
        lines.append(f"{len(lines)},{op},{block},{size},0,{number},{round(time - start)}")
    facts.update(events=len(lines), live_at_end=len(live), threads=len(threads))
    return lines, facts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="where the traces and traces.json are written")
    parser.add_argument("--only", choices=WORKLOADS, help="try one workload and write its trace alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    record = dict(
        licence="MIT", recorded_with=dict(script="scripts/record-traces.py", python=platform.python_version(),
                                          torch=torch.__version__, device="cpu", threads=1, seed=SEED), traces={})
    for name, (work, parameters) in WORKLOADS.items():
        if arguments.only not in (None, name):
            continue
        lines, facts = pair(profile(work, parameters))
        text = "seq,op,id,size,stream,thread,t_us\n" + "\n".join(lines) + "\n"
        with open(os.path.join(arguments.folder, name + ".csv.xz"), "wb") as file:
            file.write(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
        record["traces"][name + ".csv.xz"] = dict(parameters=parameters, **facts)
        print(name, json.dumps(facts), flush=True)
    if arguments.only is None:
        with open(os.path.join(arguments.folder, "traces.json"), "w", encoding="utf-8") as file:
            json.dump(record, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
