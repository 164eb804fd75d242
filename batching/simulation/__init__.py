"""Simulation in virtual time: loads, service times, networks and replicas around the scheduler of the live server.

`simulate` is the one-call way to statistics, `Simulation` to a full record of a short list of arrivals.
"""

from batching.simulation.arrivals import Arrival, During, Load, Mixture, Recorded, Sender
from batching.simulation.closed_loop import ClosedLoop
from batching.simulation.draws import Choice, Constant, Exponential, uniform
from batching.simulation.front import House, play, simulate
from batching.simulation.kernel import Kernel
from batching.simulation.network import Link, Network, Wire
from batching.simulation.observers import Entry, Observer, Run
from batching.simulation.open_loads import Bursty, Diurnal, Poisson
from batching.simulation.recorder import Execution, Outcome, Recorder, Simulation
from batching.simulation.replica import Replica
from batching.simulation.requests import Requests
from batching.simulation.routers import LeastOutstanding, PowerOfTwo, Random, RoundRobin, Router
from batching.simulation.service import Affine, Occupancy, Resampled, Service, ServiceModel, Table, capacity_per_s
from batching.simulation.streaming import Latency, Statistics, StreamingStatistics

__all__ = [
    "Affine",
    "Arrival",
    "Bursty",
    "Choice",
    "ClosedLoop",
    "Constant",
    "Diurnal",
    "During",
    "Entry",
    "Execution",
    "Exponential",
    "House",
    "Kernel",
    "Latency",
    "LeastOutstanding",
    "Link",
    "Load",
    "Mixture",
    "Network",
    "Observer",
    "Occupancy",
    "Outcome",
    "Poisson",
    "PowerOfTwo",
    "Random",
    "Recorded",
    "Recorder",
    "Replica",
    "Requests",
    "Resampled",
    "RoundRobin",
    "Router",
    "Run",
    "Sender",
    "Service",
    "ServiceModel",
    "Simulation",
    "Statistics",
    "StreamingStatistics",
    "Table",
    "Wire",
    "capacity_per_s",
    "play",
    "simulate",
    "uniform",
]
