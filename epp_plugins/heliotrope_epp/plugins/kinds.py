"""The slots that plugins go into, and how settled a plugin is."""

from enum import StrEnum


class PluginKind(StrEnum):
    """The slot of the configuration that a plugin goes into."""

    FILTER = "filter"
    SCORER = "scorer"
    PICKER = "picker"
    PROFILE_HANDLER = "profile handler"
    DECIDER = "decider"
    HEADERS_HANDLER = "headers handler"
    ENCODE_DECIDER = "decider of encoders"
    PRODUCER = "producer"
    EMBEDDINGS_PRODUCER = "producer of embeddings"
    PARSER = "parser"
    DISCOVERY = "discovery"
    DATA_SOURCE = "data source"
    EXTRACTOR = "extractor"


class Stability(StrEnum):
    """How settled a plugin's parameters and behaviour are, in llm-d's grades."""

    ALPHA = "Alpha"
    BETA = "Beta"
    STABLE = "Stable"
