"""The two names by which a cluster stage without a scheduler configuration selects its score of
resources."""

from __future__ import annotations

from typing import Literal

import msgspec

from wharfinger.domain.scheduler import FitArgs, Profile
from wharfinger.engine.framework.profile import default_profile

Strategy = Literal["least-allocated", "most-allocated"]


def profile_of(strategy: Strategy) -> Profile:
    """Returns the default profile, with the fit score changed to this strategy."""
    profile = default_profile()
    if strategy == "least-allocated":
        return profile
    arguments = msgspec.structs.replace(profile.arguments, fit=FitArgs(strategy="MostAllocated"))
    return msgspec.structs.replace(profile, arguments=arguments)
