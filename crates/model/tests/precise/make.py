#!/usr/bin/env python3
"""Makes values.csv: solutions of the OR paper's balance equations with 60 to 600 digits (needs mpmath).

Written from figure 6 of the paper, not from the crate's formulas: the stages one after the other for a period of k stages, and the
exponential of the matrix of a sharp period, with its integral, for k -> infinity. All rates are in units of 1/tau.

    python3 make.py > values.csv
"""

from itertools import product
from mpmath import mp, mpf, matrix, expm, frexp


def staged(k, rho, lam, mu, sigma):
    a = mpf(k)
    # (k/tau + lambda + rho) S_i - mu F_i = k/tau S_{i-1};  (k/tau + mu) F_i - lambda S_i = k/tau F_{i-1}, and the flow 1 into S_1.
    det = (a + lam + rho) * (a + mu) - lam * mu
    s, f, valid = mpf(1) / a, mpf(0), mpf(0)
    for _ in range(k):
        s, f = ((a + mu) * a * s + mu * a * f) / det, (lam * a * s + (a + lam + rho) * a * f) / det
        valid += s + f
    return finish(a * s, a * f, valid, rho, lam, mu, sigma)


def sharp(rho, lam, mu, sigma):
    # d/dx (S, F, sum) = G (S, F, sum)
    g = matrix([[-(lam + rho), mu, 0], [lam, -mu, 0], [1, 1, 0]])
    end = expm(g, method="taylor") * matrix([1, 0, 0])
    return finish(end[0], end[1], end[2], rho, lam, mu, sigma)


def finish(up, down, valid, rho, lam, mu, sigma):
    lapsed_up = mpf(0) if sigma is None else (up + down) / (sigma + rho)
    lapsed_down = mpf(0) if lam == 0 else (down + lam * lapsed_up) / mu
    whole = valid + lapsed_up + lapsed_down
    renewals = (up + down if sigma is None else sigma * lapsed_up) / whole
    return renewals, lapsed_up / whole, lapsed_down / whole, valid / whole


def written(number):
    """Mantissa of 53 bits and binary exponent: an f64 would not hold the smallest."""
    if number == 0:
        return "0:0"
    mantissa, exponent = frexp(number)
    return f"{float(mantissa).hex()}:{exponent}"


def line(k, rho, lam, mu, sigma):
    # The exponential of a large matrix loses as many digits as it has, and small results must keep theirs.
    biggest = max(rho, lam, mu)
    mp.dps = 60 + int(min(biggest, 4000) * 1.4)
    numbers = [mpf(x) for x in (rho, lam, mu)]
    values = sharp(*numbers, sigma and mpf(sigma)) if k == 0 else staged(k, *numbers, sigma and mpf(sigma))
    print(",".join([str(k), repr(rho), repr(lam), repr(mu), repr(sigma or 0.0)] + [written(v) for v in values]))


print("stages (0: sharp),rho,lambda,mu,sigma (0: at once),renewals,lapsed_up,lapsed_down,valid")
for rho in (1e-4, 1e-2, 1.0, 10.0, 100.0, 1000.0):
    line(676, rho, 0.0, 0.0, None)
    line(0, rho, 0.0, 0.0, None)
for rho, lam, mu in product((0.0, 1e-4, 0.3, 7.0, 1000.0), (1e-6, 1e-3, 1.0, 1e3, 1e6), (1e-6, 1e-2, 1.0, 1e3, 1e6)):
    line(676, rho, lam, mu, None)
    if rho in (0.0, 7.0):
        line(30, rho, lam, mu, 20.0)
    if max(rho, lam, mu) <= 1000.0:
        line(0, rho, lam, mu, None)
        line(0, rho, lam, mu, 0.05)
# Eigenvalues that nearly coincide.
for lam in (1e-6, 1e-12, 1e-15):
    line(676, 2.0, lam, 2.0, None)
    line(0, 2.0, lam, 2.0, 5.0)
    line(0, 2.0, lam, 2.0 + 1e-9, None)
# Many states.
line(100_000, 10.0, 1e-3, 2.0, None)
line(100_000, 1000.0, 1e-6, 50.0, 3.0)
line(1, 10.0, 1e-3, 2.0, None)
# A network that is nearly always out.
line(676, 20.0, 2e12, 2e-9, None)
line(676, 0.0, 2e12, 2e-9, None)
