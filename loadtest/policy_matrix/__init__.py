"""The `shoal` policy against the batchers of other servers, in simulation, over many kinds of load.

`python -m loadtest.policy_matrix` plays 89 designed scenarios and 45 generated ones, which nobody has tuned on, and
says how far the policy keeps its promises. Everything in it is simulated.
"""
