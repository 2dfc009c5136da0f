"""The networks of :mod:`benchmarks.speed.flax_networks` as a user writes them in PyTorch."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import nn

Arrays = Mapping[str, np.ndarray]


class Block(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.norm = nn.GroupNorm(4, width, eps=1e-6)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.short = nn.Identity()
        if inputs != width or stride > 1:
            short = nn.Conv2d(inputs, width, 1, stride, bias=False)
            self.short = nn.Sequential(short, nn.GroupNorm(4, width, eps=1e-6))
        self.last = nn.GroupNorm(4, width, eps=1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.first(x)))
        return torch.relu(self.last(self.second(y)) + self.short(x))


def resnet(width: int = 8) -> nn.Module:
    layers = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.GroupNorm(4, width, eps=1e-6), nn.ReLU()]
    inputs = width
    for stage in range(4):
        for stride in (2 if stage else 1, 1):
            layers.append(Block(inputs, width * 2**stage, stride))
            inputs = width * 2**stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


def cnn() -> nn.Module:
    first = nn.Conv2d(3, 32, 5), nn.ReLU(), nn.MaxPool2d(2)
    second = nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    return nn.Sequential(*first, *second, nn.Linear(1600, 512), nn.ReLU(), nn.Linear(512, 10))


class GRU(nn.Module):
    def __init__(self, letters: int, embedded: int = 8, width: int = 128):
        super().__init__()
        self.embed = nn.Embedding(letters, embedded)
        self.gru = nn.GRU(embedded, width, batch_first=True)
        self.head = nn.Linear(width, letters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(self.embed(x))[0])


class Layer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before, self.between = (nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.before(x)).view(batch, length, 3, self.heads, width // self.heads)
        y = nn.functional.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.between(x))


class Transformer(nn.Module):
    def __init__(self, letters: int, length: int = 80, width: int = 64, depth: int = 2, heads: int = 4):
        super().__init__()
        self.embed, self.places = nn.Embedding(letters, width), nn.Parameter(torch.zeros(length, width))
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, letters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layers(self.embed(x) + self.places)))


def build_network(name: str, given: Arrays) -> nn.Module:
    """A network with flax's parameters, by their paths there."""
    if name == "resnet":
        model, values = resnet(), resnet_values(given)
    elif name == "gru":
        model, values = GRU(*given["Embed_0/embedding"].shape), gru_values(given)
    else:
        model, values = Transformer(len(given["Embed_0/embedding"])), transformer_values(given)
    named = dict(model.named_parameters())
    if name == "resnet":  # by their order: most layers have numbers for names
        values = dict(zip(named, values.values(), strict=True))
    assert named.keys() == values.keys()
    with torch.no_grad():
        for key, value in values.items():
            named[key].copy_(torch.from_numpy(np.ascontiguousarray(value)))
    return model


def dense(given: Arrays, name: str, to: str) -> dict[str, np.ndarray]:
    return {f"{to}.weight": given[f"{name}/kernel"].T, f"{to}.bias": given[f"{name}/bias"]}


def norm(given: Arrays, name: str, to: str) -> dict[str, np.ndarray]:
    return {f"{to}.weight": given[f"{name}/scale"], f"{to}.bias": given[f"{name}/bias"]}


def resnet_values(given: Arrays) -> dict[str, np.ndarray]:
    """In the order of the model's parameters."""

    def conv(name: str) -> dict[str, np.ndarray]:
        return {name: given[f"{name}/kernel"].transpose(3, 2, 0, 1)}

    found = {**conv("Conv_0"), **norm(given, "GroupNorm_0", "first")}
    for k in range(8):
        block, short = f"Block_{k}", f"Block_{k}/Conv_2/kernel" in given
        found |= {**conv(f"{block}/Conv_0"), **norm(given, f"{block}/GroupNorm_0", f"{block}.norm")}
        found |= conv(f"{block}/Conv_1")
        if short:
            found |= {**conv(f"{block}/Conv_2"), **norm(given, f"{block}/GroupNorm_1", f"{block}.short")}
        found |= norm(given, f"{block}/GroupNorm_{2 if short else 1}", f"{block}.last")
    return {**found, **dense(given, "Dense_0", "head")}


def gru_values(given: Arrays) -> dict[str, np.ndarray]:
    """flax's cell has one bias where PyTorch's has two, of the first two gates."""

    def side(letter: str, of: str) -> list[np.ndarray]:
        return [given[f"GRUCell_0/{letter}{gate}/{of}"] for gate in "rzn"]

    own = given["GRUCell_0/hn/bias"]
    return {
        "embed.weight": given["Embed_0/embedding"],
        "gru.weight_ih_l0": np.concatenate([kernel.T for kernel in side("i", "kernel")]),
        "gru.weight_hh_l0": np.concatenate([kernel.T for kernel in side("h", "kernel")]),
        "gru.bias_ih_l0": np.concatenate(side("i", "bias")),
        "gru.bias_hh_l0": np.concatenate([np.zeros_like(own), np.zeros_like(own), own]),
        **dense(given, "Dense_0", "head"),
    }


def transformer_values(given: Arrays) -> dict[str, np.ndarray]:
    width = given["places"].shape[-1]
    found = {"embed.weight": given["Embed_0/embedding"], "places": given["places"][0]}
    for k in range(2):
        attention = f"MultiHeadDotProductAttention_{k}"
        names = [f"{attention}/{part}" for part in ("query", "key", "value")]
        found[f"layers.{k}.qkv.weight"] = np.concatenate([given[f"{n}/kernel"].reshape(width, -1).T for n in names])
        found[f"layers.{k}.qkv.bias"] = np.concatenate([given[f"{n}/bias"].reshape(-1) for n in names])
        found[f"layers.{k}.out.weight"] = given[f"{attention}/out/kernel"].reshape(-1, width).T
        found[f"layers.{k}.out.bias"] = given[f"{attention}/out/bias"]
        found |= norm(given, f"LayerNorm_{2 * k}", f"layers.{k}.before")
        found |= norm(given, f"LayerNorm_{2 * k + 1}", f"layers.{k}.between")
        found |= dense(given, f"Dense_{2 * k}", f"layers.{k}.mlp.0")
        found |= dense(given, f"Dense_{2 * k + 1}", f"layers.{k}.mlp.2")
    return {**found, **norm(given, "LayerNorm_4", "norm"), **dense(given, "Dense_4", "head")}


MODELS: dict[str, Callable[[], nn.Module]] = {"cnn": cnn, "resnet": resnet}
