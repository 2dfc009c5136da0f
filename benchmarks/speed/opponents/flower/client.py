"""What a Flower client does. A module of its own, which Ray's workers import instead of unpickling its caches."""

import functools
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from benchmarks.speed.opponents.torch_model import build, tensors
from benchmarks.speed.workloads import WORKLOADS

app = ClientApp()


@functools.cache
def prepared(name: str, threads: int) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """Model and data, once per worker: kinder than the loading per message of Flower's examples."""
    torch.set_num_threads(threads)
    return build(WORKLOADS[name]), *tensors(WORKLOADS[name])


@app.train()
def train(message: Message, context: Context) -> Message:
    """The received model's local epochs, as in Flower's PyTorch quickstart."""
    config: Any = message.content["config"]
    work = WORKLOADS[config["workload"]]
    model, x, y = prepared(work.name, config["threads"])
    k = int(context.node_config["partition-id"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer, loss = torch.optim.SGD(model.parameters(), lr=work.lr), torch.nn.CrossEntropyLoss()
    for _ in range(work.epochs):
        for rows in torch.randperm(work.examples).split(work.batch):
            optimizer.zero_grad()
            loss(model(x[k][rows]), y[k][rows]).backward()
            optimizer.step()
    answer = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": work.examples}),
    }
    return Message(content=RecordDict(answer), reply_to=message)
