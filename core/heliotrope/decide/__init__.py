"""The fast path's decision: estimate every plan, keep the feasible ones, choose by policy, explain the choice.

Everything here is a pure function of (request, candidates, policy, now); the picker and the simulator call the same.
"""
