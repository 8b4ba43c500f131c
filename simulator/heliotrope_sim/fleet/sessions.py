"""Where sessions are: what schedulers believe that a site has cached of them."""

import numpy as np
from numpy.typing import NDArray

from heliotrope_sim.fleet.workload import NO_SESSION, Workload

Int64 = NDArray[np.int64]


class Sessions:
    """The site of each session's last turn and how much it said; nothing where no request belongs to one."""

    def __init__(self, workload: Workload, sites: int) -> None:
        self._workload = workload
        self._sites = sites
        self._none = not (workload.session != NO_SESSION).any()
        names, index = np.unique(workload.session, return_inverse=True)
        self._index = np.where(workload.session == NO_SESSION, -1, index)
        self._site = np.full(len(names), -1, dtype=np.int64)
        self._tokens = np.zeros(len(names), dtype=np.int64)
        self._shares = len(workload.block_hashes) > 0

    def known(self, requests: Int64) -> tuple[Int64 | None, NDArray[np.float64] | None]:
        """The home of each request, and its cached tokens by site; None where nothing is known of any."""
        if self._none:
            return None, None
        index = self._index[requests]
        home = np.where(index >= 0, self._site[index], -1)
        if not self._shares:
            return home, None
        cached = np.zeros((len(requests), self._sites))
        there = np.flatnonzero(home >= 0)
        most = self._workload.prompt_tokens[requests[there]] - 1
        cached[there, home[there]] = np.minimum(self._tokens[index[there]], most)
        return home, cached

    def sent(self, requests: Int64, sites: Int64) -> None:
        """Requests went to sites; -1: nowhere."""
        if self._none:
            return
        chosen = (self._index[requests] >= 0) & (sites >= 0)
        requests, sites = requests[chosen], sites[chosen]
        index = self._index[requests]
        self._site[index] = sites
        self._tokens[index] = self._workload.prompt_tokens[requests] + self._workload.output_tokens[requests]
