#!/usr/bin/env python3
"""Records tensors from PyTorch for `tra verify`.

    pip install torch numpy safetensors
    python tools/record.py attention out.safetensors --length 257 --head-dim 24
    python tools/record.py model out.safetensors --length 513 --vocab 257 --loss next
    python tools/record.py model out.safetensors --state-dict out.pt

The decoder below implements the formulas in docs/verify.md. To check that your own model is the
same model in `tra`, import `record_model` and pass it your module. The module needs a
`state_dict()` with the reference names, and a forward pass from tokens to logits.
"""

import argparse

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn


def rms(x, eps=1e-6):
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)


def tra(q, k, v, gate):
    """Computes Threshold Relative Attention.

    q, k and v have shape [batch, heads, length, head_dim] and are not yet normalized. gate has
    shape [batch, heads, length].
    """
    length, dim = q.shape[-2:]
    score = rms(q) @ rms(k).transpose(-1, -2) / dim**0.5
    keep = torch.tril(torch.ones(length, length, dtype=torch.bool)) & (score > 0)
    count = keep.int().flip(-1).cumsum(-1).flip(-1) * keep
    logit = score + F.logsigmoid(gate)[..., None] * count
    # The softmax of a row of -inf has NaN gradients, so rows that keep nothing must not reach it.
    empty = ~keep.any(-1, keepdim=True)
    weights = logit.masked_fill(~keep, -torch.inf).masked_fill(empty, 0.0).softmax(-1) * ~empty
    return keep, count, weights, weights @ v


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return rms(x) * self.weight


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.tokeys, self.toqueries, self.tovalues = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.delta_proj = nn.Linear(width, heads)
        self.c_out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        split = lambda y: y.view(batch, length, self.heads, -1).transpose(1, 2)
        gate = self.delta_proj(x).transpose(1, 2)
        out = tra(split(self.toqueries(x)), split(self.tokeys(x)), split(self.tovalues(x)), gate)[-1]
        return self.c_out(out.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        a, gate = self.linear1(x).chunk(2, -1)
        return self.linear2(a * F.silu(gate))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln1, self.attn, self.ln2, self.mlp = RmsNorm(width), Attention(width, heads), RmsNorm(width), Mlp(width)

    def forward(self, x):
        x = self.ln1(x)
        x = x + self.attn(x)
        x = self.ln2(x)
        return x + self.mlp(x)


class Decoder(nn.Module):
    def __init__(self, vocab, layers, width, heads):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width, padding_idx=0)
        nn.init.uniform_(self.embedding.weight, -0.01, 0.01)
        self.layers = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.outln, self.out = RmsNorm(width), nn.Linear(width, vocab, bias=False)
        nn.init.normal_(self.out.weight, std=0.02)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.out(self.outln(x))


LOSSES = {
    "read": "cross-entropy at the position after each read",
    "next": "cross-entropy at every next token",
}


def record_attention(path, q, k, v, gate, grad_out):
    leaves = [x.clone().requires_grad_() for x in (q, k, v, gate)]
    keep, count, weights, out = tra(*leaves)
    grads = torch.autograd.grad(out, leaves, grad_out)
    tensors = dict(q=q, k=k, v=v, gate=gate, grad_out=grad_out, out=out, weights=weights)
    tensors |= dict(keep=keep.to(torch.uint8), count=count.float())
    tensors |= {f"grad_{name}": grad for name, grad in zip(("q", "k", "v", "gate"), grads)}
    sizes = zip(("batch", "heads", "length", "head_dim"), map(str, q.shape))
    write(path, tensors, dict(sizes, qk_norm_eps="1e-6"))


def record_model(path, model, tokens, heads, loss):
    logits = model(tokens)
    scored = tokens[:, :-1] == 2 if loss == "read" else torch.ones_like(tokens[:, :-1], dtype=torch.bool)
    value = F.cross_entropy(logits[:, :-1][scored], tokens[:, 1:][scored])
    value.backward()
    tensors = dict(tokens=tokens, logits=logits, loss=value.reshape(1), **model.state_dict())
    for name, parameter in model.named_parameters():
        tensors[f"grad.{name}"] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    vocab, width = model.embedding.weight.shape
    sizes = dict(vocab=vocab, embed_dim=width, layers=len(model.layers), heads=heads, pad_index=0)
    write(path, tensors, {k: str(v) for k, v in sizes.items()} | {"norm_eps": "1e-6", "loss": LOSSES[loss]})


def write(path, tensors, metadata):
    save_file({name: t.detach().contiguous().clone() for name, t in tensors.items()}, path, metadata)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("attention", "model"))
    parser.add_argument("out")
    for name, default in dict(batch=2, heads=2, length=64, seed=0, vocab=6, layers=2).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--head-dim", type=int, default=16)
    parser.add_argument("--loss", choices=LOSSES, default="next")
    parser.add_argument("--zero", type=int, nargs="*", default=[], help="attention: positions of all-zero inputs")
    parser.add_argument("--train", type=int, default=0, help="model: AdamW steps on random tokens before recording")
    parser.add_argument("--state-dict", help="model: also torch.save its state dict here")
    a = parser.parse_args()
    torch.manual_seed(a.seed)
    torch.set_num_threads(1)
    if a.kind == "attention":
        q, k, v, grad_out = (torch.randn(a.batch, a.heads, a.length, a.head_dim) for _ in range(4))
        gate = torch.randn(a.batch, a.heads, a.length)
        for at in a.zero:
            q[:, :, at] = k[:, :, at] = v[:, :, at] = gate[:, :, at] = 0
        record_attention(a.out, q, k, v, gate, grad_out)
        return
    model = Decoder(a.vocab, a.layers, a.heads * a.head_dim, a.heads)
    if a.train:
        optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
        for _ in range(a.train):
            tokens = torch.randint(0, a.vocab, (a.batch, a.length))
            logits = model(tokens)
            F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    tokens = torch.randint(0, a.vocab, (a.batch, a.length))
    record_model(a.out, model, tokens, a.heads, a.loss)
    if a.state_dict:
        torch.save(model.state_dict(), a.state_dict)


if __name__ == "__main__":
    main()
