"""Regret of NeuralUCB and others on the test functions of its paper, with intervals and a plot.

    python -m benchmarks.bandit_regret [rounds] [seeds] [figure.svg]

20 features, 4 arms, 2,000 rounds and 10 seeds by default (Zhou et al. 2020, section 7.1, play
10,000). Each seed draws functions, contexts, noise and initial weights; every policy gets the same.
Neural policies have 32 hidden units an arm and, every 10 rounds, take at most 50 steps of Adam on
shuffled minibatches of 64 of all plays. Exploration factors are those with the least regret on the
seeds 100 to 102, of {0.1, 0.3, 1, 3}; the figures are of other seeds.

The exponent is the slope of log regret on log rounds over the second half. Regret is sublinear if
the exponent's interval over the seeds is below 1.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, get_args

import jax
import jax.numpy as jnp
import matplotlib  # pyright: ignore[reportMissingImports]
import numpy as np
import optax

from benchmarks.bandit_problems import Kind, problem, random_arm
from jaxrag.core.progress import progress
from jaxrag.evaluation.significance import interval
from jaxrag.functional.bandits import policies
from jaxrag.functional.bandits.confidence import diagonal, full, zero_width
from jaxrag.functional.bandits.fit import replay_fit, shuffled
from jaxrag.functional.bandits.interaction import Bandit, interact
from jaxrag.functional.bandits.networks import mlp
from jaxrag.functional.bandits.neural_ucb import neural_ucb, outside
from jaxrag.functional.bandits.policies import linear_ucb, regret

D, ARMS, UNITS, EVERY = 20, 4, 32, 10
SETTINGS = (0.1, 0.3, 1.0, 3.0)
TUNING = (100, 101, 102)


def neural(rounds: int, beta: Any, matrix: Callable[..., Any]) -> Bandit:
    """A network an arm, trained on the whole history."""
    network = mlp(D, ARMS, hidden=(UNITS,))
    fit = replay_fit(
        network, optax.adam(3e-3), capacity=rounds, sampler=shuffled(64), steps=50, tolerance=0.0
    )
    return neural_ucb(network, confidence=matrix(network), exploration=outside(beta), fit=fit)


def contestants(rounds: int) -> dict[str, Callable[[Any], Bandit]]:
    """Each policy by its exploration factor."""
    return {
        "NeuralUCB, whole Z": lambda beta: neural(rounds, beta, full),
        "NeuralUCB, diagonal Z": lambda beta: neural(rounds, beta, diagonal),
        "NeuralTS, diagonal Z": lambda beta: policies.thompson(neural(rounds, beta, diagonal)),
        "epsilon-greedy, neural": lambda beta: policies.epsilon_greedy(
            neural(rounds, 0.0, zero_width), beta / 10
        ),
        "LinUCB": lambda beta: linear_ucb(D, ARMS, alpha=beta),
        "any arm": lambda beta: random_arm(ARMS),
    }


@functools.partial(jax.jit, static_argnames=("kind", "name", "rounds"))
def curve(kind: Kind, name: str, rounds: int, beta: jax.Array, seed: jax.Array) -> jax.Array:
    """Regret after each round of one seed."""
    draw, start, key = jax.random.split(jax.random.key(seed), 3)
    task = problem(kind, draw, rounds=rounds, d=D, arms=ARMS)
    bandit = contestants(rounds)[name](beta)
    played = interact(bandit, bandit.init(start), task.contexts, task.rewards, key, fit_every=EVERY)
    return regret(task.expected, played.arms)


def tuned(kind: Kind, name: str, rounds: int) -> float:
    """The exploration factor with the least regret on the tuning seeds."""
    totals = {
        beta: sum(float(curve(kind, name, rounds, jnp.float32(beta), s)[-1]) for s in TUNING)
        for beta in SETTINGS
    }
    return min(totals, key=totals.__getitem__)


def exponents(curves: np.ndarray) -> np.ndarray:
    """Slope of log regret on log rounds over the second half, of each seed."""
    half = curves.shape[1] // 2
    at = np.log(np.arange(half, curves.shape[1]) + 1)
    return np.array([np.polyfit(at, np.log(one[half:]), 1)[0] for one in curves])


def run(rounds: int, seeds: int) -> dict[str, dict[str, np.ndarray]]:
    """Curves [seeds rounds] of every policy on every function, with a line of figures each."""
    found: dict[str, dict[str, np.ndarray]] = {}
    names = list(contestants(rounds))
    with progress(len(get_args(Kind)) * len(names), "regret") as advance:
        for kind in get_args(Kind):
            found[kind] = {}
            for name in names:
                beta = 1.0 if name == "any arm" else tuned(kind, name, rounds)
                curves = [curve(kind, name, rounds, jnp.float32(beta), s) for s in range(seeds)]
                found[kind][name] = np.array(curves, np.float64)
                advance(1)
                print(line(kind, name, beta, found[kind][name]), flush=True)
    return found


def line(kind: str, name: str, beta: float, curves: np.ndarray) -> str:
    """Regret at the end and the exponent, with 95 % intervals over the seeds."""
    end, slope = interval(curves[:, -1]), interval(exponents(curves))
    return (
        f"{kind:<10} {name:<24} factor {beta:<4g} regret {end.mean:8.1f} "
        f"[{end.low:.1f}, {end.high:.1f}]  exponent {slope.mean:.2f} "
        f"[{slope.low:.2f}, {slope.high:.2f}]"
    )


def draw(found: dict[str, dict[str, np.ndarray]], path: str) -> None:
    """Mean regret by round with the 95 % interval of the mean, one panel a function."""
    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "jaxrag", "svg.fonttype": "none"}
    from matplotlib import pyplot  # pyright: ignore[reportMissingImports]

    figure, axes = pyplot.subplots(1, len(found), figsize=(3.4 * len(found), 3.6))
    for panel, (kind, curves) in zip(axes, found.items(), strict=True):
        for name, values in curves.items():
            at = np.arange(1, values.shape[1] + 1)[:: max(1, values.shape[1] // 100)]
            mean, error = values.mean(0), 1.96 * values.std(0, ddof=1) / np.sqrt(len(values))
            (drawn,) = panel.plot(at, mean[at - 1], label=name, linewidth=1.3)
            panel.fill_between(
                at, (mean - error)[at - 1], (mean + error)[at - 1], alpha=0.2,
                color=drawn.get_color(), linewidth=0,
            )  # fmt: skip
        top = max(v.mean(0)[-1] for name, v in curves.items() if name != "any arm")
        panel.set(title=kind, xlabel="round", ylim=(0, 1.25 * top))
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("regret")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=6, loc="lower center", frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    found = run(rounds, seeds)
    if len(sys.argv) > 3:
        draw(found, sys.argv[3])


if __name__ == "__main__":
    main()
