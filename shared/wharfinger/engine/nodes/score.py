"""How resources are scored in short: the two names that a cluster stage without a configuration of its own is set to."""

from __future__ import annotations

from typing import Literal

import msgspec

from wharfinger.domain.scheduler import FitArgs, Profile
from wharfinger.engine.framework.profile import default_profile

Strategy = Literal["least-allocated", "most-allocated"]


def profile_of(strategy: Strategy) -> Profile:
    """The default profile with this strategy of NodeResourcesFit."""
    profile = default_profile()
    if strategy == "least-allocated":
        return profile
    arguments = msgspec.structs.replace(profile.arguments, fit=FitArgs(strategy="MostAllocated"))
    return msgspec.structs.replace(profile, arguments=arguments)
