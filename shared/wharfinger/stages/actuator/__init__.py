"""The logic of the actuator, without IO: which effects are open, the requests for them, and what
the answers mean."""

from wharfinger.stages.actuator.observer import ActuatorObserver as ActuatorObserver
from wharfinger.stages.actuator.observer import ActuatorState as ActuatorState
from wharfinger.stages.actuator.observer import StandingClosures as StandingClosures
from wharfinger.stages.actuator.observer import StandingRelease as StandingRelease
from wharfinger.stages.actuator.plan import open_effects as open_effects
