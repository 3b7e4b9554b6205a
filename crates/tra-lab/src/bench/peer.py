"""The PyTorch peer of `tra bench --torch PYTHON`: one case per process, on the CPU, in f32.

In:  one line of JSON that describes the case, then "run" per timed run, then "end" (or EOF).
Out: {"ready": true, "torch": version}, {"seconds": x} per run, {"peak_memory_bytes": n} last.
     Any failure is one line {"error": cause} and exit code 1.
"""

import json
import math
import os
import sys
import time
import warnings

# Stdout carries the protocol alone: whatever else is printed, by C++ code too, goes to stderr.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def answer(**fields):
    print(json.dumps(fields), file=answers, flush=True)


warnings.simplefilter("ignore")
# Compile in this process: idle compile workers would sit beside the measurement.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
try:
    import resource

    import torch
    import torch.nn.functional as F
    from torch import nn
except Exception as cause:
    answer(error=f"cannot import torch: {' '.join(str(cause).split())[:200]}", missing="torch")
    sys.exit(1)

SHORTEST_RUN = 0.05  # seconds; shorter cases repeat inside one run
EPS = 1e-6


def tra(q, k, v, gate, dropout=0.0):
    """TRA as the paper writes it, every matrix materialised. q and k come normalised.

    Two steps take a cheaper way to the same values, so that the peer is no weaker than it must be:
    no ReLU, as the mask drops what it would set to zero; and no flips around the cumulative sum,
    which cost copies in eager mode and the vector code of the compiled backward pass."""
    score = (q / q.shape[-1] ** 0.5) @ k.transpose(-1, -2)
    # The last query sits at the last key, so that one new query sees the whole cache.
    queries, keys = score.shape[-2:]
    keep = (score > 0) & torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    sums = keep.float().cumsum(-1)
    kept = sums[..., -1:]
    count = kept - sums + 1
    logit = score + F.logsigmoid(gate)[..., None] * count
    logit = F.dropout(logit, dropout, training=dropout > 0)
    # A finite fill: a row that keeps no key would turn -inf into NaN. Its output is set to zero.
    weights = logit.masked_fill(~keep, torch.finfo(logit.dtype).min).softmax(-1)
    return weights @ v * (kept > 0)


def sdpa(q, k, v, _gate=None):
    """PyTorch's fused attention. Without dropout: with it, SDPA leaves its flash path on the CPU
    for the slow one, and the rival should run at its best."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[-2] > 1)


def pick(table, case, field):
    if case[field] not in table:
        raise ValueError(f"unknown {field} {case[field]!r}")
    return table[case[field]]


class Attention(nn.Module):
    def __init__(self, case):
        super().__init__()
        width, self.heads, self.dropout = case["width"], case["heads"], case["dropout"]
        for name in ("tokeys", "toqueries", "tovalues"):
            self.add_module(name, nn.Linear(width, width, bias=False))
        self.c_out = nn.Linear(width, width)
        self.past, dim = 0, width // self.heads
        self.tra = case["attention"] == "tra"
        if self.tra:
            self.delta_proj = nn.Linear(width, self.heads)
        if case["name"] == "decode":
            # Allocated once and full but for the place of the one token to come.
            self.past = case["length"]
            for name in ("keys", "values"):
                shape = (case["batch"], self.heads, self.past + 1, dim)
                self.register_buffer(name, torch.randn(shape), persistent=False)
        if not self.tra:
            pair = torch.arange(0, dim, 2, dtype=torch.float64) / dim
            positions = torch.arange(self.past, case["length"] + 1, dtype=torch.float64)
            angle = positions[:, None] * 500_000.0**-pair
            self.register_buffer("cos", angle.cos().float(), persistent=False)
            self.register_buffer("sin", angle.sin().float(), persistent=False)

    def rotate(self, x):
        a, b = x.chunk(2, -1)
        cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            project(x).view(batch, length, self.heads, -1).transpose(1, 2)
            for project in (self.toqueries, self.tokeys, self.tovalues)
        )
        if self.tra:
            q, k = (F.rms_norm(y, (width // self.heads,), eps=EPS) for y in (q, k))
        else:
            q, k = self.rotate(q), self.rotate(k)
        if self.past:
            self.keys[:, :, self.past :] = k
            self.values[:, :, self.past :] = v
            k, v = self.keys, self.values
        if self.tra:
            gate = self.delta_proj(x).transpose(1, 2)
            out = tra(q, k, v, gate, self.dropout if self.training else 0.0)
        else:
            out = sdpa(q, k, v)
        return self.c_out(out.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        a, gate = self.linear1(x).chunk(2, -1)
        return self.linear2(self.dropout(a * F.silu(gate)))


class Block(nn.Module):
    def __init__(self, case):
        super().__init__()
        width = case["width"]
        self.ln1, self.ln2 = nn.RMSNorm(width, eps=EPS), nn.RMSNorm(width, eps=EPS)
        self.attn, self.mlp = Attention(case), Mlp(width, case["dropout"])

    def forward(self, x):
        x = self.ln1(x)
        x = x + self.attn(x)
        x = self.ln2(x)
        return x + self.mlp(x)


class Decoder(nn.Module):
    """The published decoder, under its parameter names."""

    def __init__(self, case):
        super().__init__()
        width, vocab = case["width"], case["vocab"]
        self.embedding = nn.Embedding(vocab, width, padding_idx=0)
        nn.init.uniform_(self.embedding.weight, -0.01, 0.01)
        self.dropout = nn.Dropout(case["dropout"])
        self.layers = nn.ModuleList(Block(case) for _ in range(case["layers"]))
        self.outln = nn.RMSNorm(width, eps=EPS)
        self.out = nn.Linear(width, vocab, bias=False)
        nn.init.normal_(self.out.weight, std=0.02)

    def forward(self, tokens):
        x = self.dropout(self.embedding(tokens))
        for layer in self.layers:
            x = layer(x)
        return self.out(self.outln(x))


def op_step(case, finish):
    """The attention alone, without dropout."""
    dim = case["width"] // case["heads"]
    q, k, v, grad = (
        torch.randn(case["batch"], case["heads"], case["length"], dim) for _ in range(4)
    )
    if case["attention"] == "tra":
        q, k = (F.rms_norm(x, (dim,), eps=EPS) for x in (q, k))
    gate = torch.full(q.shape[:-1], pick({"initial": 0.0, "open": 30.0}, case, "gate"))
    op = finish(pick({"tra": tra, "rope": sdpa, "dense": sdpa}, case, "attention"))
    if case["name"] == "op_forward":
        return torch.inference_mode()(lambda: op(q, k, v, gate))
    inputs = [q, k, v, gate] if case["attention"] == "tra" else [q, k, v]
    for x in inputs:
        x.requires_grad_()
    return lambda: torch.autograd.grad(op(*inputs), inputs, grad)


def model_step(case, finish):
    pick({"tra": 1, "rope": 1}, case, "attention")
    model = Decoder(case)
    forward = finish(model)
    length = 1 if case["name"] == "decode" else case["length"]
    tokens = torch.randint(1, case["vocab"], (case["batch"], length + 1))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()
    if case["name"] != "train_step":
        model.eval()
        return torch.inference_mode()(lambda: forward(inputs))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, (0.9, 0.98), weight_decay=0.01)

    def train_step():
        F.cross_entropy(forward(inputs).flatten(0, 1), targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return train_step


STEPS = {
    "op": op_step,
    "op_forward": op_step,
    "train_step": model_step,
    "prefill": model_step,
    "decode": model_step,
}
MODES = {"eager": lambda f: f, "compiled": lambda f: torch.compile(f, dynamic=False)}


def limit_memory():
    """Ask for no more than is free: Linux grants it all and then kills some process, where a
    refused allocation is an error to report."""
    if os.path.exists("/proc/meminfo"):
        with open("/proc/meminfo") as lines:
            free = next(int(line.split()[1]) for line in lines if "MemAvailable" in line)
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (free * 1024, most))


def timed(step, repeats=1):
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - start) / repeats


def main():
    case = json.loads(sys.stdin.readline())
    limit_memory()
    # Far keys get denormal weights, which slow the naive TRA. PyTorch's default keeps them; the
    # program asks for them to be flushed. The threads, started later, inherit the setting.
    torch.set_flush_denormal(case.get("flush_denormal", False))
    torch.set_num_threads(case["threads"])
    torch.manual_seed(0)
    step = pick(STEPS, case, "name")(case, pick(MODES, case, "mode"))
    if case["mode"] == "compiled":
        step()
    seconds = timed(step)
    if seconds < 1:
        seconds = min(timed(step), timed(step))
    repeats = max(1, math.ceil(SHORTEST_RUN / seconds))
    answer(ready=True, torch=torch.__version__.split("+")[0])
    for line in sys.stdin:
        if line.strip() != "run":
            break
        answer(seconds=timed(step, repeats))
    # Linux counts kilobytes, macOS bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    answer(peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


if __name__ == "__main__":
    try:
        main()
    except BaseException as cause:
        lines = str(cause).strip().splitlines() or [""]
        answer(error=f"{type(cause).__name__}: {lines[0]}"[:300])
        sys.exit(1)
