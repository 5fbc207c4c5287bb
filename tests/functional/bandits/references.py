"""Bandits in float64 NumPy, one arm and one round at a time: ARS eqs 10-12 and LinUCB as printed.

A shared network is written as Zhou et al. do: one kernel over an input of arms x d numbers that
are zero but for the context in the arm's block.
"""

from typing import NamedTuple

import numpy as np


def arm_weights(params, arm: int, *, shared: bool) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """(kernel, bias) of every layer that arm ``arm`` is valued with, in float64."""
    layers = []
    for at, layer in enumerate(params):
        kernel, bias = np.asarray(layer.kernel, np.float64), layer.bias
        bias = None if bias is None else np.asarray(bias, np.float64)
        if not shared:
            kernel, bias = kernel[arm], None if bias is None else bias[arm]
        elif at == 0:
            kernel = np.concatenate(list(kernel), axis=1)  # [a h d] -> [h, a d]
        layers.append((kernel, bias))
    return layers


def encode(x: np.ndarray, arm: int, arms: int, *, shared: bool) -> np.ndarray:
    """The input of the network: the context, or the context at the arm's block."""
    if not shared:
        return np.asarray(x, np.float64)
    blocks = np.zeros((arms, len(x)))
    blocks[arm] = x
    return blocks.ravel()


def value(layers, x: np.ndarray) -> float:
    for kernel, bias in layers[:-1]:
        x = np.maximum(kernel @ x + (0 if bias is None else bias), 0)
    kernel, bias = layers[-1]
    return float(kernel @ x + (0 if bias is None else bias))


def gradient(layers, x: np.ndarray) -> list[np.ndarray]:
    """By hand, layer by layer: kernels and biases in order."""
    inputs = [x]
    for kernel, bias in layers[:-1]:
        inputs.append(np.maximum(kernel @ inputs[-1] + (0 if bias is None else bias), 0))
    back, pieces = np.ones(1), []
    for at in reversed(range(len(layers))):
        kernel, bias = layers[at]
        kernel = np.atleast_2d(kernel)
        here = [np.outer(back, inputs[at]).reshape(layers[at][0].shape)]
        if bias is not None:
            here.append(back.reshape(np.shape(bias)).copy())
        pieces = here + pieces
        back = (kernel.T @ back) * (inputs[at] > 0)
    return pieces


class Round(NamedTuple):
    mean: np.ndarray
    width: np.ndarray
    ucb: np.ndarray
    arm: int


def rounds(
    params,
    contexts,
    *,
    arms: int,
    shared: bool,
    diagonal: bool,
    regularization: float,
    bonus,
) -> tuple[list[Round], list[np.ndarray]]:
    """Rounds of NeuralUCB with weights that stay: what every arm was worth, and the Z at the end.

    Z of every arm, or the one of a shared network, [p p] or its diagonal [p].
    """

    def look(arm: int, x: np.ndarray) -> tuple[float, np.ndarray]:
        layers = arm_weights(params, arm, shared=shared)
        encoded = encode(x, arm, arms, shared=shared)
        g = np.concatenate([piece.ravel() for piece in gradient(layers, encoded)])
        return value(layers, encoded), g

    p = len(look(0, contexts[0])[1])
    start = np.full(p, regularization) if diagonal else np.eye(p) * regularization
    z = [start.copy() for _ in range(1 if shared else arms)]
    history = []
    for t, x in enumerate(contexts):
        looks = [look(arm, x) for arm in range(arms)]
        mean = np.array([f for f, _ in looks])
        squared = np.zeros(arms)
        for arm, (_, g) in enumerate(looks):
            of = z[0 if shared else arm]
            squared[arm] = g @ (g / of) if diagonal else g @ np.linalg.inv(of) @ g
        ucb = mean + bonus(squared, t)
        arm = int(np.argmax(ucb))
        g = looks[arm][1]
        z[0 if shared else arm] += g * g if diagonal else np.outer(g, g)
        history.append(Round(mean, np.sqrt(squared), ucb, arm))
    return history, z


def linear_rounds(contexts, rewards, *, alpha: float, regularization: float) -> list[Round]:
    """LinUCB with disjoint arms, a solve for every arm and round."""
    (_, d), arms = contexts.shape, rewards.shape[1]
    a = np.stack([np.eye(d) * regularization] * arms)
    b = np.zeros((arms, d))
    history = []
    for x, won in zip(contexts.astype(np.float64), rewards, strict=True):
        mean = np.array([np.linalg.solve(a[k], b[k]) @ x for k in range(arms)])
        width = np.sqrt([x @ np.linalg.solve(a[k], x) for k in range(arms)])
        ucb = mean + alpha * width
        arm = int(np.argmax(ucb))
        a[arm] += np.outer(x, x)
        b[arm] += won[arm] * x
        history.append(Round(mean, width, ucb, arm))
    return history
