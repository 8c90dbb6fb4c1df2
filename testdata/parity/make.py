#!/usr/bin/env python3
"""Makes the parity fixtures with JAX: weights, data, 20 losses and the gradients of step 1.

    pip install jax safetensors && python3 testdata/parity/make.py

An independent implementation of GPT-2 and Llama and of the training loop of testdata/models/parity_*.pp, in
float64, so that what the f32 programs of ppc are held against is the true value. Weights and data are rounded to
f32 and i32 first. The tests read the files only; they need neither JAX nor this script."""
import json, os
import numpy as np
import jax, jax.numpy as jnp
from safetensors.numpy import save_file

jax.config.update("jax_enable_x64", True)
HERE = os.path.dirname(os.path.abspath(__file__))
V, D, T, H, KV, L = 64, 32, 16, 4, 2, 2          # vocabulary, width, length, heads, key heads, layers
B, M, STEPS = 2, 4, 20                           # microbatch, microbatches, steps
PEAK, WARMUP, DECAY, LIMIT = 1e-2, 5, 0.1, 1.0


def layer_norm(x, w, b):
    m = x.mean(-1, keepdims=True)
    v = ((x - m) ** 2).mean(-1, keepdims=True)
    return (x - m) / jnp.sqrt(v + 1e-5) * w + b


def rms_norm(x, w, eps):
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def attention(q, k, v):                          # [b, h, t, d]
    k, v = (jnp.repeat(a, q.shape[1] // a.shape[1], axis=1) for a in (k, v))
    s = q @ jnp.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    s = jnp.where(jnp.tril(jnp.ones((T, T), bool)), s, -jnp.inf)
    return jax.nn.softmax(s, axis=-1) @ v


def heads(x, n):
    return x.reshape(x.shape[0], T, n, -1).transpose(0, 2, 1, 3)


def join(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], T, -1)


def cross_entropy(logits, targets):
    lp = jax.nn.log_softmax(logits, axis=-1)
    return -jnp.take_along_axis(lp, targets[..., None], axis=-1).mean()


def gpt2(p, tokens):
    x = p["wte.weight"][tokens] + p["wpe.weight"][:T]
    for i in range(L):
        g = lambda n: p[f"h.{i}.{n}"]
        a = layer_norm(x, g("ln_1.weight"), g("ln_1.bias"))
        q, k, v = jnp.split(a @ g("attn.c_attn.weight") + g("attn.c_attn.bias"), 3, axis=-1)
        y = join(attention(heads(q, H), heads(k, H), heads(v, H)))
        x = x + y @ g("attn.c_proj.weight") + g("attn.c_proj.bias")
        a = layer_norm(x, g("ln_2.weight"), g("ln_2.bias"))
        a = jax.nn.gelu(a @ g("mlp.c_fc.weight") + g("mlp.c_fc.bias"), approximate=True)
        x = x + a @ g("mlp.c_proj.weight") + g("mlp.c_proj.bias")
    return layer_norm(x, p["ln_f.weight"], p["ln_f.bias"]) @ p["wte.weight"].T


def gpt2_shapes():
    s = {"wte.weight": (V, D), "wpe.weight": (T, D), "ln_f.weight": (D,), "ln_f.bias": (D,)}
    for i in range(L):
        for n, shape in {"ln_1.weight": (D,), "ln_1.bias": (D,), "attn.c_attn.weight": (D, 3 * D), "attn.c_attn.bias": (3 * D,),
                         "attn.c_proj.weight": (D, D), "attn.c_proj.bias": (D,), "ln_2.weight": (D,), "ln_2.bias": (D,),
                         "mlp.c_fc.weight": (D, 4 * D), "mlp.c_fc.bias": (4 * D,), "mlp.c_proj.weight": (4 * D, D),
                         "mlp.c_proj.bias": (D,)}.items():
            s[f"h.{i}.{n}"] = shape
    return s


def rope(x):                                     # [b, h, t, d], halves rotated
    d = x.shape[-1]
    angle = np.arange(T)[:, None] * 10000.0 ** (-np.arange(0, d, 2) / d)
    cos, sin = np.cos(np.concatenate([angle, angle], -1)), np.sin(np.concatenate([angle, angle], -1))
    a, b = jnp.split(x, 2, axis=-1)
    return x * cos + jnp.concatenate([-b, a], axis=-1) * sin


def llama(p, tokens, eps=1e-6):
    x = p["model.embed_tokens.weight"][tokens]
    for i in range(L):
        g = lambda n: p[f"model.layers.{i}.{n}.weight"]
        a = rms_norm(x, g("input_layernorm"), eps)
        q, k, v = (heads(a @ g(f"self_attn.{n}_proj").T, h) for n, h in (("q", H), ("k", KV), ("v", KV)))
        x = x + join(attention(rope(q), rope(k), v)) @ g("self_attn.o_proj").T
        a = rms_norm(x, g("post_attention_layernorm"), eps)
        x = x + (jax.nn.silu(a @ g("mlp.gate_proj").T) * (a @ g("mlp.up_proj").T)) @ g("mlp.down_proj").T
    return rms_norm(x, p["model.norm.weight"], eps) @ p["lm_head.weight"].T


def llama_shapes(hidden):
    s = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,), "lm_head.weight": (V, D)}
    for i in range(L):
        for n, shape in {"input_layernorm": (D,), "self_attn.q_proj": (D, D), "self_attn.k_proj": (D // H * KV, D),
                         "self_attn.v_proj": (D // H * KV, D), "self_attn.o_proj": (D, D), "post_attention_layernorm": (D,),
                         "mlp.gate_proj": (hidden, D), "mlp.up_proj": (hidden, D), "mlp.down_proj": (D, hidden)}.items():
            s[f"model.layers.{i}.{n}.weight"] = shape
    return s


def rate(step):
    if step <= WARMUP:
        return PEAK * step / WARMUP
    q = min(1.0, (step - WARMUP) / max(1, STEPS - WARMUP))
    return PEAK * (1 + np.cos(np.pi * q)) / 2


def train(p, model, rows):
    loss = jax.jit(jax.value_and_grad(lambda p, r: cross_entropy(model(p, r[:, :T]), r[:, 1:])))
    m, v = ({k: jnp.zeros_like(a) for k, a in p.items()} for _ in range(2))
    losses, norms, first = [], [], None
    for step in range(1, STEPS + 1):
        got = [loss(p, rows[(((step - 1) * M + i) * B + np.arange(B)) % len(rows)]) for i in range(M)]
        g = {k: sum(x[1][k] for x in got) / M for k in p}
        first = first or g
        norm = jnp.sqrt(sum((a * a).sum() for a in g.values()))
        losses.append(float(sum(x[0] for x in got) / M)), norms.append(float(norm))
        f = min(1.0, LIMIT / (float(norm) + 1e-6))
        for k in p:
            gk = g[k] * f
            m[k] = 0.9 * m[k] + 0.1 * gk
            v[k] = 0.999 * v[k] + 0.001 * gk * gk
            update = (m[k] / (1 - 0.9 ** step)) / (jnp.sqrt(v[k] / (1 - 0.999 ** step)) + 1e-8)
            p[k] = p[k] - rate(step) * (update + (DECAY if p[k].ndim >= 2 else 0.0) * p[k])
    return losses, norms, first


def fixture(name, model, shapes, seed):
    rng = np.random.default_rng(seed)
    init = {}
    for k, s in shapes.items():
        a = rng.normal(0, 0.1, s)
        init[k] = (a + 1 if len(s) == 1 and k.endswith("weight") else a).astype(np.float32)
    save_file(init, os.path.join(HERE, f"{name}.init.safetensors"))
    rows = np.fromfile(os.path.join(HERE, "tokens.i32"), np.int32).reshape(-1, T + 1)
    losses, norms, first = train({k: jnp.asarray(a, jnp.float64) for k, a in init.items()}, model, rows)
    save_file({k: np.asarray(a, np.float32) for k, a in first.items()}, os.path.join(HERE, f"{name}.gradients.safetensors"))
    with open(os.path.join(HERE, f"{name}.json"), "w") as f:
        json.dump({"losses": losses, "norms": norms}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    rows = np.random.default_rng(7).integers(0, V, (37, T + 1)).astype(np.int32)
    rows[:, 1::2] = (rows[:, 0::2][:, :T // 2] * 3 + 1) % V  # something to learn
    rows.tofile(os.path.join(HERE, "tokens.i32"))
    fixture("gpt2", gpt2, gpt2_shapes(), 1)
    fixture("llama", llama, llama_shapes(96), 2)
