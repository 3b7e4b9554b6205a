#!/usr/bin/env python3
"""Records the rivals of TRA, as computed by PyPI libraries, for `tra verify`.

    pip install torch safetensors x-transformers rotary-embedding-torch transformers \
        fla-core entmax scalable-softmax
    python tools/record_rivals.py --out tests/recorded
    python tools/record_rivals.py --out /tmp fox fox_fla

Each recording calls a library for the core of the mechanism: the bias, the rotation, the gates or
the normaliser. If its conventions differ from ours, the inputs are rearranged so that it computes
our definition. The metadata field `called` says how. Inputs and parameters are drawn in f32 and
passed in f64, so that the library sees exactly the values in the file. Results are rounded to f32.
"""

import argparse
import datetime
import json
import zlib
from importlib.metadata import version
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.func import functional_call

RECORDINGS = {}


def recording(name, library, called, shape, width=None, parameters={}, settings={}, layer=0, also=None):
    """Registers `attend(q, k, v, hidden, parameters)`, which computes rival_<name>.safetensors.

    shape is the shape of q: batch, heads, length, head_dim. width is the width of the hidden states,
    for mechanisms that read them. parameters maps our names to (shape, mean, deviation). also names
    a second library.
    """

    def register(attend):
        RECORDINGS[name] = dict(
            attend=attend, library=library, called=called, shape=shape, width=width,
            parameters=parameters, settings=settings, layer=layer, also=also,
        )
        return attend

    return register


def causal(length):
    return torch.ones(length, length, dtype=torch.bool).tril()


def dense(q, k, v, bias=None):
    """Computes PyTorch's own attention, scaled by 1 / sqrt(head_dim)."""
    if bias is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    bias = bias.masked_fill(~causal(q.shape[-2]), -torch.inf)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(*q.shape[:2], -1, -1))


def attend_of_x_transformers(**settings):
    from x_transformers.attend import Attend

    # In Attend, qk_norm only keeps the softmax in f64. It does not normalise anything.
    return Attend(causal=True, qk_norm=True, **settings)


SMALL, WIDE, LONG = (2, 3, 37, 5), (1, 3, 37, 16), (1, 3, 97, 5)


@recording("nope", "torch", "torch.nn.functional.scaled_dot_product_attention(is_causal=True)", SMALL)
def nope(q, k, v, hidden, parameters):
    return dense(q, k, v)


@recording(
    "rope", "transformers",
    "LlamaRotaryEmbedding and apply_rotary_pos_emb of models.llama with rope_theta 500000, then PyTorch's "
    "scaled_dot_product_attention",
    WIDE, settings=dict(theta=500000.0),
)
def rope(q, k, v, hidden, parameters):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    length, dim = q.shape[-2:]
    theta = dict(rope_type="default", rope_theta=500000.0)
    rotary = LlamaRotaryEmbedding(LlamaConfig(head_dim=dim, rope_parameters=theta))
    cos, sin = rotary(q, torch.arange(length)[None])
    return dense(*apply_rotary_pos_emb(q, k, cos, sin), v)


def rotate(x, theta):
    """Rotates x with rotary-embedding-torch.

    The library rotates dimensions 2t and 2t + 1 together, our code t and t + e/2. The dimensions
    are therefore reordered first. Neither rotates the last dimension if their number is odd.
    """
    from rotary_embedding_torch import RotaryEmbedding

    dim = x.shape[-1]
    half = dim // 2
    order = torch.arange(2 * half).view(2, half).T.flatten()
    order = torch.cat((order, torch.arange(2 * half, dim)))
    # The library's cache of angles does not support an odd dimension.
    rotary = RotaryEmbedding(dim, theta=theta, cache_if_possible=False).double()
    return rotary.rotate_queries_or_keys(x[..., order])


@recording(
    "rope_odd", "rotary-embedding-torch",
    "RotaryEmbedding(5, theta=10000).rotate_queries_or_keys of q and k with dimensions in the order 0 2 1 3 4 "
    "(it pairs neighbours), then PyTorch's scaled_dot_product_attention",
    LONG, settings=dict(theta=10000.0),
)
def rope_odd(q, k, v, hidden, parameters):
    return dense(rotate(q, 10000.0), rotate(k, 10000.0), v)


ALIBI = "AlibiPositionalBias(heads), added by Attend(causal=True)"


@recording("alibi", "x-transformers", ALIBI, WIDE)
@recording("alibi_h11", "x-transformers", ALIBI, (1, 11, 37, 5))
@recording("alibi_long", "x-transformers", ALIBI, LONG)
def alibi(q, k, v, hidden, parameters):
    from x_transformers.x_transformers import AlibiPositionalBias

    _, heads, length, _ = q.shape
    return attend_of_x_transformers()(q, k, v, attn_bias=AlibiPositionalBias(heads)(length, length))[0]


COPE = "CoPE(head_dim, heads, max_pos=npos) in Attend(causal=True, cope=...)"


# One table is so short that most keys lie beyond its end. The end of the other is never reached.
@recording("cope", "x-transformers", COPE, SMALL, parameters=dict(pos_emb=((8, 5),)), settings=dict(npos=8))
@recording("cope_e16", "x-transformers", COPE, WIDE, parameters=dict(pos_emb=((64, 16),)))
def cope(q, k, v, hidden, parameters):
    from x_transformers.x_transformers import CoPE

    table = parameters["pos_emb"]
    npos, dim = table.shape
    attend = attend_of_x_transformers(cope=CoPE(dim, q.shape[1], npos))
    # The slope of the bias jumps at integer positions. No position may be so close to an integer
    # that f32 could fall on the other side.
    gates = (q @ k.mT / dim**0.5).sigmoid() * causal(q.shape[-2])
    position = gates.flip(-1).cumsum(-1).flip(-1)[..., causal(q.shape[-2])]
    assert (position - position.round()).abs().min() > 1e-5, "draw again: a position is nearly whole"
    return functional_call(attend, {"cope.pos_emb": table}, (q, k, v))[0]


def gate(width):
    # With mean 2, the gates let distant keys matter.
    return {"fgate_proj.weight": ((3, width),), "fgate_proj.bias": ((3,), 2)}


FOX = "DataDependentAlibi(width, heads), its linear layer being fgate_proj, added by Attend(causal=True)"


@recording("fox", "x-transformers", FOX, WIDE, width=7, parameters=gate(7))
@recording("fox_long", "x-transformers", FOX, LONG, width=7, parameters=gate(7))
def fox(q, k, v, hidden, parameters):
    from x_transformers.x_transformers import DataDependentAlibi

    weight, bias = parameters["fgate_proj.weight"], parameters["fgate_proj.bias"]
    gates = DataDependentAlibi(hidden.shape[-1], q.shape[1])
    layer = {"to_forget_gates.0.weight": weight, "to_forget_gates.0.bias": bias}
    return attend_of_x_transformers()(q, k, v, attn_bias=functional_call(gates, layer, (hidden,)))[0]


@recording(
    "fox_fla", "fla-core",
    "naive_forgetting_attn (f32) with g = logsigmoid(linear(hidden, fgate_proj)), as its ForgettingAttention has it",
    # The library computes in f32. The sequence is short, so that its sums have small errors.
    SMALL, width=15, parameters=gate(15),
)
def fox_fla(q, k, v, hidden, parameters):
    from fla.ops.forgetting_attn.naive import naive_forgetting_attn

    g = F.logsigmoid(F.linear(hidden, parameters["fgate_proj.weight"], parameters["fgate_proj.bias"]))
    return naive_forgetting_attn(*(x.transpose(1, 2) for x in (q, k, v)), g).transpose(1, 2)


SELECTIVE = "Attend(causal=True, selective=True)"


@recording("selective", "x-transformers", SELECTIVE, SMALL)
@recording("selective_e16", "x-transformers", SELECTIVE, WIDE)
def selective(q, k, v, hidden, parameters):
    return attend_of_x_transformers(selective=True)(q, k, v)[0]


LAMBDA = {f"lambda_{x}": ((16,), 0, 0.3) for x in ("q1", "k1", "q2", "k2")}


@recording(
    "differential", "transformers",
    "DiffLlamaAttention(layer_idx=2), rope_theta 500000, rms_norm_eps 1e-5, of q, k and v side by side, with "
    "projections that pick them apart: its pairs are heads p and p + 2, ours 2p and 2p + 1; its norm has no scale, so "
    "subln.weight was multiplied in behind it",
    (1, 4, 37, 16), parameters=LAMBDA | {"subln.weight": ((32,), 1, 0.3)}, settings=dict(theta=500000.0), layer=2,
)
def differential(q, k, v, hidden, parameters):
    from transformers import DiffLlamaConfig
    from transformers.models.diffllama import modeling_diffllama as diffllama

    batch, heads, length, dim = q.shape
    width = heads * dim
    config = DiffLlamaConfig(
        hidden_size=3 * width, num_attention_heads=heads, num_key_value_heads=heads, head_dim=dim, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="default", rope_theta=500000.0), attn_implementation="sdpa",
    )
    layer = diffllama.DiffLlamaAttention(config, layer_idx=2).double()
    flat = lambda x: x.view(batch, heads // 2, 2, length, dim).permute(0, 3, 2, 1, 4).reshape(batch, length, width)
    picks = dict(zip(("q_proj.weight", "k_proj.weight", "v_proj.weight"), torch.eye(3 * width).double().split(width)))
    picks["o_proj.weight"] = picks["q_proj.weight"].T
    turned = diffllama.DiffLlamaRotaryEmbedding(config)(q, torch.arange(length)[None])
    given = torch.cat([flat(x) for x in (q, k, v)], -1)
    lambdas = {name: parameters[name] for name in LAMBDA}
    out = functional_call(layer, picks | lambdas, (given, turned))[0][..., :width]
    out = out.view(batch, length, heads // 2, 2 * dim) * parameters["subln.weight"]
    return out.reshape(batch, length, heads, dim).transpose(1, 2)


STICKBREAKING = "naive_stickbreaking_attn; what it returns as left over was given to the query's own value"


@recording("stickbreaking", "fla-core", STICKBREAKING, SMALL)
@recording("stickbreaking_e16", "fla-core", STICKBREAKING, WIDE)
def stickbreaking(q, k, v, hidden, parameters):
    from fla.ops.stickbreaking_attn.naive import naive_stickbreaking_attn

    out, left = naive_stickbreaking_attn(*(x.transpose(1, 2) for x in (q, k, v)))
    return out.transpose(1, 2) + left.transpose(1, 2)[..., None] * v


@recording(
    "t5", "x-transformers",
    "RelativePositionBias(scale=1, causal=True, num_buckets=12, max_distance=29), added by Attend(causal=True)",
    SMALL, parameters=dict(relative_bias=((12, 3),)), settings=dict(buckets=12, max_distance=29),
)
def t5(q, k, v, hidden, parameters):
    from x_transformers.x_transformers import RelativePositionBias

    _, heads, length, _ = q.shape
    bias = RelativePositionBias(1.0, causal=True, num_buckets=12, max_distance=29, heads=heads)
    table = {"relative_attention_bias.weight": parameters["relative_bias"]}
    bias = functional_call(bias, table, (length, length))
    return attend_of_x_transformers()(q, k, v, attn_bias=bias)[0]


# A sequence longer than max_distance, with the default settings.
@recording(
    "t5_long", "transformers",
    "T5Attention.compute_bias of a decoder, 32 buckets up to 128, added to the scores (T5 itself leaves them "
    "unscaled) in PyTorch's scaled_dot_product_attention",
    (1, 2, 141, 5), parameters=dict(relative_bias=((32, 2),)),
)
def t5_long(q, k, v, hidden, parameters):
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    _, heads, length, _ = q.shape
    config = T5Config(is_decoder=True, num_heads=heads)
    layer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    # functional_call runs forward, but another method is needed here.
    layer.forward = layer.compute_bias
    table = {"relative_attention_bias.weight": parameters["relative_bias"]}
    return dense(q, k, v, functional_call(layer, table, (length, length)))


@recording(
    "ssmax", "scalable-softmax",
    "ScalableSoftmax with s = scale of the head, on the visible keys of one query at a time (it takes ln of how "
    "many it is given); before it RotaryEmbedding of rotary-embedding-torch with theta 500000, as in rope_odd",
    SMALL, parameters=dict(scale=((3,), 0.43)), settings=dict(theta=500000.0), also="rotary-embedding-torch",
)
def ssmax(q, k, v, hidden, parameters):
    from scalable_softmax import ScalableSoftmax

    softmax = ScalableSoftmax()
    scores = rotate(q, 500000.0) @ rotate(k, 500000.0).mT / q.shape[-1] ** 0.5

    def row(head, i):
        s = {"s": parameters["scale"][head]}
        return functional_call(softmax, s, (scores[:, head, i, : i + 1],))[:, None] @ v[:, head, : i + 1]

    rows = [torch.cat([row(h, i) for i in range(q.shape[2])], 1) for h in range(q.shape[1])]
    return torch.stack(rows, 1)


@recording(
    "asentmax", "entmax",
    "entmax15 on the visible keys of one query at a time: in heads h = 1, 2 of scores - (i - j) / h, in the others "
    "of scores times 1 + softplus(beta_proj x) ln(n)^(2 tanh(gamma_proj x))",
    (1, 5, 37, 5), width=7, parameters={"beta_proj.weight": ((3, 7),), "gamma_proj.weight": ((3, 7),)},
)
def asentmax(q, k, v, hidden, parameters):
    from entmax import entmax15

    half = q.shape[1] // 2
    scores = q @ k.mT / q.shape[-1] ** 0.5
    beta = F.softplus(F.linear(hidden, parameters["beta_proj.weight"]))
    gamma = 2 * F.linear(hidden, parameters["gamma_proj.weight"]).tanh()

    def row(i):
        n = torch.tensor(i + 1.0, dtype=q.dtype)
        visible = scores[:, :, i, : i + 1]
        back = torch.arange(i, -1, -1, dtype=q.dtype) / torch.arange(1, half + 1)[:, None]
        # A single key has all the weight for any scale, and ln(1) to a negative power is infinite.
        scale = 1 + beta[:, i] * n.log() ** gamma[:, i] if i else torch.ones_like(beta[:, i])
        logits = torch.cat((visible[:, :half] - back, visible[:, half:] * scale[..., None]), 1)
        return entmax15(logits, dim=-1)[:, :, None] @ v[:, :, : i + 1]

    return torch.cat([row(i) for i in range(q.shape[2])], 2)


def record(path, name):
    r = RECORDINGS[name]
    batch, heads, length, dim = r["shape"]
    # Each file has its own seed, so that a new file does not change the others.
    draw = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    normal = lambda shape, mean=0, std=1: (mean + std * torch.randn(shape, generator=draw)).double()

    leaves = {x: normal(r["shape"]) for x in "qkv"}
    if r["width"]:
        leaves["hidden"] = normal((batch, length, r["width"]))
    parameters = {x: normal(*how) for x, how in r["parameters"].items()}
    grad_out = normal(r["shape"])
    for x in (*leaves.values(), *parameters.values()):
        x.requires_grad_()

    out = r["attend"](leaves["q"], leaves["k"], leaves["v"], leaves.get("hidden"), parameters)
    assert out.shape == grad_out.shape
    grads = torch.autograd.grad(out, [*leaves.values(), *parameters.values()], grad_out.to(out.dtype))
    names = [f"grad_{x}" for x in leaves] + [f"grad.{x}" for x in parameters]
    tensors = leaves | parameters | dict(out=out, grad_out=grad_out) | dict(zip(names, grads))
    tensors = {x: t.detach().float().contiguous().clone() for x, t in tensors.items()}
    assert all(t.isfinite().all() for t in tensors.values())

    metadata = dict(
        attention=name.split("_")[0], settings=json.dumps(r["settings"]), layer=str(r["layer"]),
        batch=str(batch), heads=str(heads), length=str(length), head_dim=str(dim),
        library=f"{r['library']} {version(r['library'])}", called=r["called"],
        torch=torch.__version__, recorded=datetime.date.today().isoformat(),
    )
    if r["also"]:
        metadata["also"] = f"{r['also']} {version(r['also'])}"
    save_file(tensors, path, metadata)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", help="all of them if none is given")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    a = parser.parse_args()
    if unknown := set(a.name) - set(RECORDINGS):
        parser.error(f"no recording {', '.join(unknown)}; there are {', '.join(RECORDINGS)}")
    torch.set_num_threads(1)
    for name in a.name or RECORDINGS:
        path = a.out / f"rival_{name}.safetensors"
        record(path, name)
        print(path)


if __name__ == "__main__":
    main()
