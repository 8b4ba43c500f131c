"""Images in prompts: how many tokens they are, what encoding them costs; pictures are never decoded or fetched."""
