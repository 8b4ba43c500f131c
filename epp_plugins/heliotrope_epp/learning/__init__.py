"""Learning while serving: from finished requests to models that decisions use, in this process or by a shared trainer."""
