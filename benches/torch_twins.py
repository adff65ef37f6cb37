#!/usr/bin/env python3
"""The workloads of `mlp --synthetic`, `rnn --synthetic` and `benches/ops.rs` in PyTorch: same shapes, same steps, same fields.

Usage: torch_twins.py [mlp10 | rnn_epoch | op] [MODE]    (nothing: all of them, each mode in a process of its own)
Products of f32 matrices run in full f32, as Kiln's do. Peaks count from the end of the warm-up.
"""
import json, random, statistics, subprocess, sys, time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

MODES = {
    "mlp10": ["f32", "f32+ckpt", "f16", "f16+ckpt", "bf16", "bf16+ckpt"],
    "rnn_epoch": ["f32", "f32+ckpt", "f16", "f16+ckpt"],
    "op": ["f32", "f16"],
}
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def report(workload, mode, step, warm_up, timed):
    for _ in range(warm_up):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(timed):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    mib = lambda size: round(size / 2**20, 3)
    print(json.dumps(dict(
        workload=workload, mode=mode, device=torch.cuda.get_device_name(), step_ms=round(statistics.median(times), 3),
        peak_alloc_mib=mib(torch.cuda.max_memory_allocated()), peak_reserved_mib=mib(torch.cuda.max_memory_reserved()))), flush=True)


class Update:
    """Forward in a type, backward, Adam, gradients dropped."""

    def __init__(self, modules, mode):
        self.dtype, self.recompute = TYPES[mode.split("+")[0]], "ckpt" in mode
        self.optimizer = torch.optim.Adam([p for m in modules for p in m.parameters()], lr=1e-4)
        self.scaler = torch.amp.GradScaler(enabled=self.dtype == torch.float16)

    def run(self, f, *inputs):
        return checkpoint(f, *inputs, use_reentrant=False) if self.recompute else f(*inputs)

    def step(self, loss_of):
        with torch.autocast("cuda", self.dtype, enabled=self.dtype != torch.float32):
            loss = loss_of()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()


def mlp10(mode, width=2048, blocks=10, batch=32768):
    layers = [nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU("tanh"), nn.Dropout(0.1)).cuda() for _ in range(blocks)]
    head = nn.Linear(width, 10).cuda()
    update = Update([*layers, head], mode)
    x, y = torch.randn(batch, width, device="cuda"), torch.randint(0, 10, (batch,), device="cuda")

    def loss():
        h = x
        for layer in layers:
            h = update.run(layer, h)
        return F.cross_entropy(head(h), y)

    report("mlp10", mode, lambda: update.step(loss), 3, 10)


def rnn_epoch(mode, inputs=128, hidden=512, batch=64, chunk=32):
    numbers = random.Random(7)
    lengths = [numbers.randrange(64, 512) for _ in range(20)]
    cell, head = nn.RNNCell(inputs, hidden).cuda(), nn.Linear(hidden, 10).cuda()
    update = Update([cell, head], mode)
    data, y = torch.randn(max(lengths), batch, inputs, device="cuda"), torch.randint(0, 10, (batch,), device="cuda")

    def read(x, h):
        for row in x:
            h = cell(row, h)
        return h

    def loss(length):
        h = torch.zeros(batch, hidden, device="cuda")
        for piece in data[:length].split(chunk if update.recompute else length):
            h = update.run(read, piece, h)
        return F.cross_entropy(head(h), y)

    def epoch():
        for length in lengths:
            update.step(lambda: loss(length))

    report("rnn_epoch", mode, epoch, 1, 3)


def op(mode, n=8192):
    a, b = (torch.randn(n, n, device="cuda").to(TYPES[mode]) for _ in range(2))
    w = torch.ones(n, device="cuda", dtype=TYPES[mode])
    ops = dict(
        add=(3, lambda: a + b), gelu=(2, lambda: F.gelu(a, approximate="tanh")), softmax=(2, lambda: a.softmax(-1)),
        layer_norm=(2, lambda: F.layer_norm(a, (n,), w, w)), sum_rows=(1, lambda: a.sum(-1)), sum_cols=(1, lambda: a.sum(0)),
        transpose_copy=(2, lambda: a.t().contiguous()), matmul=(0, lambda: a @ b))
    for name, (matrices, call) in ops.items():
        times = []
        for _ in range(8):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(50):
                call()
            torch.cuda.synchronize()
            times.append(1e3 * (time.perf_counter() - start) / 50)
        ms = statistics.median(times[1:])
        rate = dict(gb_s=round(matrices * a.nbytes / ms / 1e6, 1)) if matrices else dict(tflop_s=round(2 * n**3 / ms / 1e9, 3))
        print(json.dumps(dict(workload="op", op=name, dtype=mode, ms=round(ms, 4), **rate)), flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    if len(sys.argv) == 3:
        dict(mlp10=mlp10, rnn_epoch=rnn_epoch, op=op)[sys.argv[1]](sys.argv[2])
    else:
        for workload in sys.argv[1:] or MODES:
            for mode in MODES[workload]:
                subprocess.run([sys.executable, __file__, workload, mode])
