"""NeuralUCB: microseconds of a round (select and update; a fit apart) against PyTorch and NumPy.

    python -m benchmarks.neural_ucb [rounds]

Ten arms with a network each. Diagonal Z at a context of 768: the released form of NeuralUCB, one
backward pass an arm in PyTorch, against ours by structure, and with gradients written out
(`general`), which works for any network; and the same with two hidden layers. The whole Z at 5,005
weights an arm: a NumPy loop that keeps the inverses by Sherman-Morrison, vectorised over arms,
against our dual form. Everything is timed in turns within one process, from the same weights and
the same contexts; the arms that they choose are compared. Nothing is trained in between, since a
fit is the same step for all; its own time is printed last. OpenBLAS gets one thread: with two the
NumPy and PyTorch loops become 6 to 16 times slower on two cores; PyTorch gets one or all, whichever
is faster in a trial. GB/s assumes that every round reads all weights and Z once and writes its
arm's; ours reads them once for several rounds.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch  # pyright: ignore[reportMissingImports]

from jaxrag.functional.bandits.confidence import diagonal
from jaxrag.functional.bandits.confidence_dual import dual
from jaxrag.functional.bandits.fit import newest, replay_fit
from jaxrag.functional.bandits.interaction import Bandit, interact
from jaxrag.functional.bandits.networks import Network, general, mlp
from jaxrag.functional.bandits.neural_ucb import neural_ucb, outside

ARMS = 10
CONTEXT = 768
SMALL = 64, 77  # context and hidden units of 77 * 64 + 77 = 5,005 weights
TURNS = 5
FLOAT = 4  # bytes


class Way(NamedTuple):
    """An implementation to time: name, rounds of a turn, and a function that returns the arms."""

    name: str
    rounds: int
    play: Callable[[np.ndarray], np.ndarray]


def ours(network: Network, confidence: Any, rounds: int, fit: Any = None) -> Callable[..., Any]:
    """Plays under one jitted scan; returns the arms."""
    bandit = neural_ucb(network, confidence=confidence, exploration=outside(1.0), fit=fit)
    state = jax.jit(bandit.init)(jax.random.key(0))

    @jax.jit
    def run(contexts: jax.Array) -> jax.Array:
        rewards = jnp.zeros((len(contexts), ARMS))
        key = jax.random.key(1)
        return interact(bandit, state, contexts, rewards, key, fit_every=len(contexts)).arms

    return lambda contexts: np.asarray(run(contexts[:rounds]))


def weights(network: Network) -> list[np.ndarray]:
    """Kernels of all arms, from the input up."""
    return [np.asarray(layer.kernel) for layer in network.init(jax.random.key(0))]


def by_torch(network: Network, rounds: int) -> Callable[[np.ndarray], np.ndarray]:
    """The released form: a backward pass an arm, the gradient flattened, diagonal Z."""
    nets = []
    for arm in range(ARMS):
        layers: list[Any] = []
        for kernel in weights(network):
            matrix = np.atleast_2d(kernel[arm])
            linear = torch.nn.Linear(matrix.shape[1], matrix.shape[0], bias=False)
            linear.weight.data = torch.from_numpy(matrix.copy())
            layers += [linear, torch.nn.ReLU()]
        nets.append(torch.nn.Sequential(*layers[:-1]))

    def play(contexts: np.ndarray) -> np.ndarray:
        sizes = [sum(p.numel() for p in net.parameters()) for net in nets]
        z = [torch.ones(size) for size in sizes]
        chosen = []
        for row in torch.from_numpy(contexts[:rounds]):
            gradients, values = [], []
            for arm, net in enumerate(nets):
                net.zero_grad()
                reward = net(row)
                reward.backward()
                gradient = torch.cat([p.grad.flatten().detach() for p in net.parameters()])
                sigma = torch.sqrt(torch.sum(gradient * gradient / z[arm]))
                gradients.append(gradient)
                values.append(reward.item() + sigma.item())
            arm = int(np.argmax(values))
            z[arm] += gradients[arm] * gradients[arm]
            chosen.append(arm)
        return np.array(chosen)

    return play


def by_numpy(network: Network, rounds: int) -> Callable[[np.ndarray], np.ndarray]:
    """The whole Z of every arm by its inverse [a p p], all arms' widths in one product."""
    first, last = weights(network)

    def play(contexts: np.ndarray) -> np.ndarray:
        size = first[0].size + last[0].size
        inverse = np.broadcast_to(np.eye(size, dtype=np.float32), (ARMS, size, size)).copy()
        chosen = []
        for x in contexts[:rounds]:
            hidden = first @ x
            active = np.maximum(hidden, 0)
            left = np.where(hidden > 0, last, 0)
            outer = (left[:, :, None] * x).reshape(ARMS, -1)
            gradients = np.concatenate([outer, active], axis=1)
            through = np.matmul(inverse, gradients[:, :, None])[:, :, 0]
            squared = np.einsum("ap,ap->a", gradients, through)
            arm = int(np.argmax((last * active).sum(1) + np.sqrt(squared)))
            u = through[arm]
            inverse[arm] -= np.outer(u, u / (1 + squared[arm]))
            chosen.append(arm)
        return np.array(chosen)

    return play


def compare(title: str, contexts: np.ndarray, ways: list[Way], touched: int) -> None:
    """Times the ways in turns and prints medians, ratios to the first, choices and bandwidth."""
    arms = [way.play(contexts) for way in ways]  # warms up
    taken: list[list[float]] = [[] for _ in ways]
    for _ in range(TURNS):
        for way, times in zip(ways, taken, strict=True):
            began = time.perf_counter()
            way.play(contexts)
            times.append((time.perf_counter() - began) / way.rounds)
    print(f"\n{title}")
    for way, times, chosen in zip(ways, taken, arms, strict=True):
        median = statistics.median(times)
        ratios = sorted(first / own for first, own in zip(taken[0], times, strict=True))
        shared = min(len(chosen), len(arms[0]))
        same = float((chosen[:shared] == arms[0][:shared]).mean())
        print(
            f"  {way.name:<42} {1e6 * median:>10,.1f} us a round "
            f"[{1e6 * min(times):,.1f}, {1e6 * max(times):,.1f}]  "
            f"x{statistics.median(ratios):,.1f} [{ratios[0]:,.1f}, {ratios[-1]:,.1f}]  "
            f"same arms {100 * same:.1f} % of {shared}"
            + (f"  {touched / median / 1e9:,.1f} GB/s" if touched else "")
        )


def diagonal_z(rounds: int) -> None:
    """Select and update at 768 features, with one and with two hidden layers."""
    contexts = sphere(rounds, CONTEXT)
    for hidden in ((100,), (100, 100)):
        network = mlp(CONTEXT, ARMS, hidden=hidden)
        plain = general(network)
        parameters = sum(kernel[0].size for kernel in weights(network))
        fast = ours(network, diagonal(network), rounds)
        slow = ours(plain, diagonal(plain), rounds // 4)
        ways = [
            Way("PyTorch, a backward pass an arm", 60, by_torch(network, 60)),
            Way("ours, gradients as outer products", rounds, fast),
            Way("ours, any network (vmap of grad)", rounds // 4, slow),
        ]
        shape = " -> ".join(map(str, (CONTEXT, *hidden, 1)))
        title = f"Diagonal Z, {shape}, {parameters:,} weights"
        compare(title, contexts, ways, (2 * ARMS + 1) * parameters * FLOAT)


def whole_z(pulls: int) -> None:
    """The whole matrix while pulls are fewer than weights."""
    features, units = SMALL
    network = mlp(features, ARMS, hidden=(units,))
    contexts = sphere(pulls, features)
    parameters = sum(kernel[0].size for kernel in weights(network))
    ways = [
        Way("NumPy, Sherman-Morrison over all arms", 10, by_numpy(network, 10)),
        Way("ours, dual form", pulls, ours(network, dual(network, pulls=pulls), pulls)),
    ]
    title = f"Whole Z, {features} -> {units} -> 1, {parameters:,} weights, up to {pulls} pulls"
    compare(title, contexts, ways, 0)


def batches(rounds: int) -> None:
    """As ARS trains: batches of 32, with one gradient step after each, and without."""
    network = mlp(CONTEXT, ARMS)
    contexts = sphere(rounds, CONTEXT)
    learn = replay_fit(network, optax.sgd(1e-2), capacity=32, sampler=newest(32))
    ways = [
        Way("batches of 32", rounds, batched(network, None)),
        Way("batches of 32, a step of the fit after each", rounds, batched(network, learn)),
    ]
    compare("Batches of 32, diagonal Z (ratio to the first)", contexts, ways, 0)


def batched(network: Network, fit: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Plays in batches of 32."""
    bandit: Bandit = neural_ucb(
        network, confidence=diagonal(network), exploration=outside(1.0), fit=fit
    )
    state = jax.jit(bandit.init)(jax.random.key(0))

    @jax.jit
    def run(contexts: jax.Array) -> jax.Array:
        rewards = jnp.zeros((len(contexts), ARMS))
        return interact(bandit, state, contexts, rewards, jax.random.key(1), batch=32).arms

    return lambda contexts: np.asarray(run(contexts))


def sphere(rounds: int, features: int) -> np.ndarray:
    """Contexts, uniform on the unit sphere."""
    drawn = np.random.default_rng(0).standard_normal((rounds, features)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def stream() -> float:
    """GB/s of summing an array that no cache holds, by XLA on all cores."""
    array = jnp.ones(1 << 27)
    total = jax.jit(jnp.sum)
    total(array).block_until_ready()
    taken = []
    for _ in range(TURNS):
        began = time.perf_counter()
        total(array).block_until_ready()
        taken.append(time.perf_counter() - began)
    return array.nbytes / statistics.median(taken) / 1e9


def set_threads() -> None:
    """Gives PyTorch one thread, or all, whichever plays faster."""
    play, contexts = by_torch(mlp(CONTEXT, ARMS), 20), sphere(20, CONTEXT)
    taken = {}
    for threads in (1, os.cpu_count() or 1):
        torch.set_num_threads(threads)
        play(contexts)
        began = time.perf_counter()
        play(contexts)
        taken[threads] = time.perf_counter() - began
    torch.set_num_threads(min(taken, key=taken.__getitem__))


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2048
    set_threads()
    print(f"reading memory: {stream():.1f} GB/s")
    diagonal_z(rounds)
    whole_z(min(256, rounds))
    batches(rounds)


if __name__ == "__main__":
    main()
