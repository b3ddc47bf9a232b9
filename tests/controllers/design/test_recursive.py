"""The estimate of a, b and c, sample after sample."""

import math
import warnings

import pytest

from controllers.design.identify import Estimate, Model, follow

MODEL = Model(a=0.985, b=-134.0, delay=1)
FAR = 1e36


@pytest.mark.parametrize("covariance", [(FAR, -FAR, FAR, -FAR, FAR, -FAR, FAR, -FAR, FAR), (0.0,) * 9])
@pytest.mark.parametrize("admitted", [(0.0, 0.0, 0.0, 11_874.6), (5e4, 0.0, 1e5, 0.0)])
def test_an_estimate_from_the_ends_of_its_range_goes_on(covariance, admitted):
    before = Estimate(a=0.985, ratio=1.0, offset=0.0, mean=0.0, covariance=covariance)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after = follow(before, MODEL, [4.8e8, 1.2e8, 1.1e8], admitted, setpoint=4e8, noise=4e6, forgetting=0.99)
    assert all(map(math.isfinite, (after.a, after.ratio, after.offset, *after.covariance)))
