"""`EndpointPickerConfig`, llm-d's configuration file: decoded strictly, completed, checked and built."""
