#!/usr/bin/python3
"""Makes a random model folder in Hugging Face's layout, a file of tokens, and what the model says of
them, computed here in float64 from the formulas alone: neither Lockstep's code nor transformers'.

  hugging_face_model.py FOLDER gpt2|llama [key=value ...]

  FOLDER/model/{config.json, model.safetensors}   FOLDER/tokens.bin   FOLDER/expected.safetensors
"""
import json
import math
import os
import struct
import sys

import torch

torch.set_default_dtype(torch.float64)


def save(path, tensors, metadata):
    names = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64"}
    header, data = {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        # bfloat16 has no numpy type: its bits are an int16's.
        plain = tensor.contiguous()
        raw = (plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain).numpy().tobytes()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def attention(q, k, v):
    """q [H, S, K], k and v [J, S, K]: query head h reads key head h // (H / J)."""
    heads, length, width = q.shape
    k = k.repeat_interleave(heads // k.shape[0], 0)
    v = v.repeat_interleave(heads // v.shape[0], 0)
    scores = q @ k.transpose(1, 2) / math.sqrt(width)
    scores = scores.masked_fill(torch.ones(length, length).triu(1) > 0, -math.inf)
    mixed = torch.softmax(scores, -1) @ v
    return mixed.transpose(0, 1).reshape(length, heads * width)


def split_heads(x, heads):
    return x.reshape(x.shape[0], heads, -1).transpose(0, 1)


def layer_norm(x, gain, shift, eps):
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * gain + shift


def rms_norm(x, gain, eps):
    return x / torch.sqrt((x ** 2).mean(-1, keepdim=True) + eps) * gain


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def turn(x, theta):
    """The first half of a head's features pairs with the second."""
    _, length, width = x.shape
    angle = torch.arange(length)[:, None] * theta ** (-torch.arange(0, width, 2) / width)[None, :]
    a, b = x[..., :width // 2], x[..., width // 2:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def gpt2_shapes(c):
    D, V, F = c["n_embd"], c["vocab_size"], c["n_inner"] or 4 * c["n_embd"]
    shapes = {"wte.weight": (V, D), "wpe.weight": (c["n_positions"], D)}
    for i in range(c["n_layer"]):
        h = f"h.{i}."
        shapes.update({h + "ln_1.weight": (D,), h + "ln_1.bias": (D,), h + "attn.c_attn.weight": (D, 3 * D),
                       h + "attn.c_attn.bias": (3 * D,), h + "attn.c_proj.weight": (D, D),
                       h + "attn.c_proj.bias": (D,), h + "ln_2.weight": (D,), h + "ln_2.bias": (D,),
                       h + "mlp.c_fc.weight": (D, F), h + "mlp.c_fc.bias": (F,),
                       h + "mlp.c_proj.weight": (F, D), h + "mlp.c_proj.bias": (D,)})
    shapes.update({"ln_f.weight": (D,), "ln_f.bias": (D,)})
    shapes = {"transformer." + name: shape for name, shape in shapes.items()}
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (V, D)
    return shapes


def gpt2_logits(c, w, ids):
    def of(name):
        return w["transformer." + name]
    eps, heads = c["layer_norm_epsilon"], c["n_head"]
    x = of("wte.weight")[ids] + of("wpe.weight")[:len(ids)]
    for i in range(c["n_layer"]):
        h = f"h.{i}."
        y = layer_norm(x, of(h + "ln_1.weight"), of(h + "ln_1.bias"), eps)
        q, k, v = (y @ of(h + "attn.c_attn.weight") + of(h + "attn.c_attn.bias")).chunk(3, -1)
        y = attention(split_heads(q, heads), split_heads(k, heads), split_heads(v, heads))
        x = x + y @ of(h + "attn.c_proj.weight") + of(h + "attn.c_proj.bias")
        y = layer_norm(x, of(h + "ln_2.weight"), of(h + "ln_2.bias"), eps)
        y = gelu_tanh(y @ of(h + "mlp.c_fc.weight") + of(h + "mlp.c_fc.bias"))
        x = x + y @ of(h + "mlp.c_proj.weight") + of(h + "mlp.c_proj.bias")
    x = layer_norm(x, of("ln_f.weight"), of("ln_f.bias"), eps)
    return x @ w.get("lm_head.weight", of("wte.weight")).T


def llama_shapes(c):
    D, V, F = c["hidden_size"], c["vocab_size"], c["intermediate_size"]
    J = D // c["num_attention_heads"] * c["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": (V, D)}
    for i in range(c["num_hidden_layers"]):
        h = f"model.layers.{i}."
        shapes.update({h + "input_layernorm.weight": (D,), h + "self_attn.q_proj.weight": (D, D),
                       h + "self_attn.k_proj.weight": (J, D), h + "self_attn.v_proj.weight": (J, D),
                       h + "self_attn.o_proj.weight": (D, D), h + "post_attention_layernorm.weight": (D,),
                       h + "mlp.gate_proj.weight": (F, D), h + "mlp.up_proj.weight": (F, D),
                       h + "mlp.down_proj.weight": (D, F)})
    shapes["model.norm.weight"] = (D,)
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (V, D)
    return shapes


def llama_logits(c, w, ids):
    eps, theta = c["rms_norm_eps"], c["rope_theta"]
    heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        h = f"model.layers.{i}."
        y = rms_norm(x, w[h + "input_layernorm.weight"], eps)
        q = turn(split_heads(y @ w[h + "self_attn.q_proj.weight"].T, heads), theta)
        k = turn(split_heads(y @ w[h + "self_attn.k_proj.weight"].T, kv_heads), theta)
        v = split_heads(y @ w[h + "self_attn.v_proj.weight"].T, kv_heads)
        x = x + attention(q, k, v) @ w[h + "self_attn.o_proj.weight"].T
        y = rms_norm(x, w[h + "post_attention_layernorm.weight"], eps)
        gate = y @ w[h + "mlp.gate_proj.weight"].T
        x = x + (gate * torch.sigmoid(gate) * (y @ w[h + "mlp.up_proj.weight"].T)) @ w[h + "mlp.down_proj.weight"].T
    x = rms_norm(x, w["model.norm.weight"], eps)
    return x @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T


MODELS = {
    "gpt2": ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 97, "n_positions": 24,
              "n_embd": 48, "n_layer": 3, "n_head": 4, "n_inner": None, "activation_function": "gelu_new",
              "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
              "resid_pdrop": 0.0}, gpt2_shapes, gpt2_logits, "n_positions"),
    "llama": ({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 97,
               "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
               "num_key_value_heads": 2, "max_position_embeddings": 24, "rms_norm_eps": 1e-6,
               "rope_theta": 1000.0, "hidden_act": "silu", "tie_word_embeddings": False},
              llama_shapes, llama_logits, "max_position_embeddings"),
}


def main():
    folder, family = sys.argv[1:3]
    config, shapes, logits, context = MODELS[family]
    dtype = torch.float32
    for pair in sys.argv[3:]:
        key, value = pair.split("=")
        if key == "dtype":
            dtype = getattr(torch, value)
        else:
            config[key] = json.loads(value)
    torch.manual_seed(11)
    weights = {}
    for name, shape in shapes(config).items():
        values = torch.randn(shape) * (0.2 if len(shape) > 1 else 0.1)
        if "ln_" in name and name.endswith(".weight") or "norm.weight" in name:
            values = values + 1
        weights[name] = values.to(dtype)
    os.makedirs(f"{folder}/model")
    save(f"{folder}/model/model.safetensors", weights, {"format": "pt"})
    with open(f"{folder}/model/config.json", "w") as file:
        json.dump(config, file)
    tokens = torch.randint(0, config["vocab_size"], (1000,))
    with open(f"{folder}/tokens.bin", "wb") as file:
        file.write(struct.pack(f"<{len(tokens)}H", *tokens.tolist()))
    ids = tokens[:config[context]]
    said = logits(config, {name: values.double() for name, values in weights.items()}, ids)
    save(f"{folder}/expected.safetensors", {"ids": ids, "logits": said.float()}, {})


main()
