"""Learning while serving: from finished requests to models that decisions use, here or at a shared trainer."""
