#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Gradient steps of a small net in JAX with the platform allocator, compared with the same steps in NumPy."""

import jax
import jax.numpy as jnp
import numpy

from waiting import finish, median_ms

WIDTHS = (64, 256, 256, 10)
STEPS, RATE = 5, 0.05


def start():
    random = numpy.random.RandomState(3)
    weights = [random.randn(a, b).astype(numpy.float32) / numpy.sqrt(a) for a, b in zip(WIDTHS, WIDTHS[1:])]
    return (
        weights,
        random.randn(512, WIDTHS[0]).astype(numpy.float32),
        random.randn(512, WIDTHS[-1]).astype(numpy.float32),
    )


def loss(weights, x, y):
    for weight in weights[:-1]:
        x = jnp.tanh(jnp.matmul(x, weight, precision="highest"))
    return jnp.mean((jnp.matmul(x, weights[-1], precision="highest") - y) ** 2)


def numpy_losses():
    weights, x, y = start()
    losses = []
    for _ in range(STEPS):
        layers = [x]
        for weight in weights[:-1]:
            layers.append(numpy.tanh(layers[-1] @ weight))
        apart = layers[-1] @ weights[-1] - y
        losses.append(float((apart**2).mean()))
        slope, gradients = 2 * apart / apart.size, []
        for i in reversed(range(len(weights))):
            gradients.insert(0, layers[i].T @ slope)
            slope = (slope @ weights[i].T) * (1 - layers[i] ** 2)
        weights = [weight - RATE * gradient for weight, gradient in zip(weights, gradients)]
    return losses


def main():
    step = jax.jit(jax.value_and_grad(loss))

    def train():
        weights, x, y = start()
        weights, losses = [jnp.asarray(weight) for weight in weights], []
        for _ in range(STEPS):
            value, gradients = step(weights, x, y)
            losses.append(value)
            weights = [weight - RATE * gradient for weight, gradient in zip(weights, gradients)]
        return [float(value) for value in losses]

    wanted, found = numpy_losses(), train()
    right = bool(numpy.allclose(wanted, found, rtol=1e-3))
    finish(
        {
            "right": right,
            "wrong": None if right else [wanted, found],
            "ms": median_ms(train, 20),
            "jax": jax.__version__,
            "platform": jax.devices()[0].platform,
        }
    )


if __name__ == "__main__":
    main()
